"""What a folder says when its run goes on with other code, and what it reads of older ones."""

import contextlib
import json

import pytest

from lra.errors import UserError
from lra.settings import from_json, load_config
from lra.workdir import Workdir

FACTS = {
    "data_dir": "data",
    "data": "generated",
    "data_sha256": "0" * 64,
    "length": 16,
    "versions": {"python": "3.11.9", "jax": "0.10.2"},
    "commit": "a" * 40,
    "device": "a GPU",
    "deterministic": True,
}


def start(folder, config, *, first=False, **changed):
    """A start that has something to save."""
    workdir = Workdir(folder)
    with workdir.open_for(config, FACTS | changed):
        workdir.note_start(first=first)
    return workdir


def open_again(folder, config, **changed):
    start(folder, config, first=True)
    (folder / "checkpoints" / "1").mkdir(parents=True)
    start(folder, config, **changed)


def test_the_same_code_goes_on_silently(tmp_path, tiny_config, capsys):
    open_again(tmp_path, tiny_config())
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"commit": "unknown"}, f"commit {'a' * 40} (now unknown)"),
        ({"device": "2 x a GPU"}, "device a GPU (now 2 x a GPU)"),
        ({"versions": {"python": "3.11.9", "jax": "0.11.2"}}, "jax 0.10.2 (now 0.11.2)"),
        ({"versions": {"jax": "0.10.2", "new": "1"}}, "new none (now 1), python 3.11.9 (now none)"),
    ],
)
def test_other_code_is_said(tmp_path, tiny_config, capsys, changed, said):
    open_again(tmp_path, tiny_config(), **changed)
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"note: {tmp_path} was begun with {said}: it goes on, but not to the same bits"


def test_of_a_run_that_saved_nothing_nothing_goes_on(tmp_path, tiny_config, capsys):
    start(tmp_path, tiny_config(), first=True)
    start(tmp_path, tiny_config(), commit="b" * 40)
    assert capsys.readouterr().err == ""


def test_a_run_remembers_all_code_and_devices_it_was_trained_with(tmp_path, tiny_config, capsys):
    versions = FACTS["versions"] | {"jax": "0.11.2"}
    other = {"commit": "b" * 40, "versions": versions, "device": "a CPU"}
    open_again(tmp_path, tiny_config(), **other)
    with Workdir(tmp_path).open_for(tiny_config(), FACTS | other):
        pass
    assert len(capsys.readouterr().err.splitlines()) == 1  # the third start is as the second
    run = Workdir(tmp_path).load_facts()
    assert run["commit"] == f"{'a' * 40}, {'b' * 40}"
    assert run["versions"] == {"python": "3.11.9", "jax": "0.10.2, 0.11.2"}
    assert run["device"] == "a GPU, a CPU"
    with Workdir(tmp_path).open_for(tiny_config(), FACTS):
        pass
    assert "bbb (now aaa" in capsys.readouterr().err


def test_what_a_run_began_on_is_unknown_where_it_was_not_noted(tmp_path, tiny_config, capsys):
    open_again(tmp_path, tiny_config())
    folder = Workdir(tmp_path)
    noted = ("data_dir", "data_sha256", "versions", "commit")
    folder.facts.write_text(json.dumps({name: FACTS[name] for name in noted}))
    start(tmp_path, tiny_config())
    assert "device unknown device (now a GPU)" in capsys.readouterr().err
    run = folder.load_facts()
    assert (run["device"], run["deterministic"]) == ("unknown device, a GPU", None)
    assert run["length"] == 16


@pytest.mark.parametrize("starts", [(True, True), (True, False), (False, True)])
def test_a_run_is_deterministic_if_all_its_starts_are(tmp_path, tiny_config, starts):
    for number, deterministic in enumerate(starts):
        start(tmp_path, tiny_config(), first=number == 0, deterministic=deterministic)
    assert Workdir(tmp_path).load_facts()["deterministic"] is all(starts)


def test_a_start_with_nothing_to_save_has_no_part_in_a_run(tmp_path, tiny_config):
    for idle, commit in ((True, "b"), (False, "a"), (True, "b"), (False, "a")):
        folder = Workdir(tmp_path)
        with folder.open_for(tiny_config(), FACTS | {"commit": commit * 40}):
            if not idle:
                folder.note_start(first=folder.load_facts()["commit"] == "b" * 40)
    assert folder.load_facts() == FACTS | {"commit": "a" * 40}


def test_of_a_complete_run_nothing_is_said(tmp_path, tiny_config, capsys):
    start(tmp_path, tiny_config(), first=True)
    (tmp_path / "rows.jsonl").write_text("")
    with Workdir(tmp_path).open_for(tiny_config(), FACTS | {"commit": "unknown"}):
        pass
    assert capsys.readouterr().err == ""


def test_a_configuration_of_before_a_key_has_its_default(tmp_path, tiny_config):
    config = tiny_config("listops", "linformer", "seeds=(2, 3)")
    open_again(tmp_path, config)
    folder = Workdir(tmp_path)
    values = json.loads(folder.config.read_text())
    del values["sha256"], values["train"]["init_from"], values["model"]["remat"]
    folder.config.write_text(json.dumps(values))
    assert folder.load_config() == config
    del values["train"]
    folder.config.write_text(json.dumps(values))
    with pytest.raises(UserError, match="is damaged"):
        folder.load_config()


def test_a_configuration_of_before_a_key_has_its_tasks_default(tmp_path):
    config = load_config("configs/image.py:standard")
    open_again(tmp_path, config)
    folder = Workdir(tmp_path)
    values = json.loads(folder.config.read_text())
    del values["sha256"], values["train"]["eval_batch_size"], values["train"]["steps"]
    folder.config.write_text(json.dumps(values))
    assert folder.load_config() == config
    values["task"] = "mine"  # its config file is not among ours
    assert from_json(json.dumps(values)).train.eval_batch_size == 32


@pytest.mark.parametrize(
    ("name", "reason"), [("mine", "unknown attention 'mine'"), ("linear", "sets 'model.attention")]
)
def test_a_configuration_of_other_code_is_not_called_damaged(tmp_path, tiny_config, name, reason):
    config = tiny_config("listops", "nystrom")
    with config.unlocked():
        config.model.attention.name = name
    folder = start(tmp_path, config, first=True)
    with pytest.raises(UserError, match=f"config.json is of other code, or was edited: .*{reason}"):
        folder.load_config()


def test_checkpoints_without_a_configuration_are_not_gone_on_with(tmp_path, tiny_config):
    (tmp_path / "checkpoints" / "1").mkdir(parents=True)
    with (
        pytest.raises(UserError, match=r"of a run whose config\.json is not there: restore"),
        Workdir(tmp_path).open_for(tiny_config(), FACTS),
    ):
        pass
    assert not (tmp_path / "config.json").exists()


@pytest.mark.parametrize(
    "damage",
    [
        {"data_dir": 5},
        {"data_sha256": 0},
        {"versions": ""},
        {"versions": {"jax": 1}},
        {"commit": [None]},
        {"device": 1},
        {"deterministic": 1},
        {"length": "16"},
        {"data": 1},
    ],
)
def test_facts_of_a_wrong_type_are_noticed(tmp_path, tiny_config, damage):
    open_again(tmp_path, tiny_config())
    folder = Workdir(tmp_path)
    folder.facts.write_text(json.dumps(FACTS | damage))  # without a seal, as if written by hand
    with pytest.raises(UserError, match="is damaged or was edited"):
        open_again(tmp_path, tiny_config())


def test_every_flipped_bit_that_changes_a_value_is_noticed(tmp_path, tiny_config):
    config = tiny_config()
    open_again(tmp_path, config)
    folder = Workdir(tmp_path)
    for path, load in ((folder.config, folder.load_config), (folder.facts, folder.load_facts)):
        sound, value = path.read_bytes(), load()
        for position in range(0, len(sound), 7):
            path.write_bytes(
                sound[:position] + bytes([sound[position] ^ 1]) + sound[position + 1 :]
            )
            with contextlib.suppress(UserError):
                assert load() == value
        path.write_bytes(sound)
