"""Data that a sweep needs: missing, damaged, or generated when their first run is due."""

import json
import re
import shutil

import pytest

from lra.data import prepared
from lra.data.prepare import prepare_task
from lra.errors import UserError
from lra.sweep import child
from lra.sweep.__main__ import main
from lra.sweep.data import Data
from tests.lra.sweep.place import ONE_RUN, SWEEP, fake, write_data


def test_runs_without_data_are_said_and_the_others_run(place, capsys):
    place.file.write_text(
        "RUNS = [{'config': f'configs/{task}.py:nystrom'} for task in ('text', 'listops')]"
    )
    assert place.run() == 1
    assert [row.task for row in place.rows()] == ["listops"]
    assert "text: 1 run cannot start: no prepared text in" in capsys.readouterr().err


def test_a_sweep_that_cannot_start_is_refused_and_leaves_no_file_of_results(place, capsys):
    place.file.write_text(
        "RUNS = [{'config': f'configs/{task}.py:nystrom'} for task in ('text', 'image')]"
    )
    for launcher in ("local", "print"):
        with pytest.raises(UserError, match=r"^text: 1 run cannot start: .*; image: 1 run cannot"):
            place.run(f"--launcher={launcher}")
        assert not capsys.readouterr().err
        assert not place.results.exists()
    place.results.write_text("")  # what was there before stays
    with pytest.raises(UserError):
        place.run()
    assert place.results.read_text() == ""


def test_damaged_data_are_nothing_to_runs_that_are_done(place, capsys):
    place.file.write_text(ONE_RUN)
    place.run()
    (place.root / "data" / "listops" / "manifest.json").write_text("{}")
    capsys.readouterr()
    assert place.run() == 0
    assert "cannot start" not in capsys.readouterr().err
    place.file.write_text(SWEEP)
    with pytest.raises(UserError, match=r"^listops: 2 runs cannot start: "):
        place.run()
    capsys.readouterr()
    assert place.run("--dry_run") == 0
    said = capsys.readouterr()
    assert "listops: 2 runs cannot start: " in said.err
    assert "2 of 6 rows done, 4 missing" in said.out


GENERATED = """
DATA = {"listops": {"min_length": 3, "max_length": 12, "train": 20, "validation": 5, "test": 5}}
RUNS = [{"config": "configs/listops.py:nystrom"}]
"""


def test_data_that_a_sweep_asks_for_are_generated_in_its_own_folder(place, capsys):
    place.file.write_text(GENERATED)
    argv = [str(place.file), f"--results={place.results}", f"--workdir={place.workdir}"]
    assert main(argv, train=fake()) == 0
    assert (place.workdir / "data" / "listops" / "manifest.json").exists()
    assert "generating listops" in capsys.readouterr().err
    assert place.rows()[0].data.startswith("differs")


def test_results_on_data_that_a_sweep_no_longer_asks_for_do_not_count(place):
    place.file.write_text(GENERATED)
    argv = [str(place.file), f"--results={place.results}", f"--workdir={place.workdir}"]
    assert main(argv, train=fake()) == 0
    place.file.write_text(GENERATED.replace('"max_length": 12', '"max_length": 13'))
    with pytest.raises(UserError, match="the sweep wants listops with max_length=13, that in"):
        main(argv, train=fake())
    shutil.rmtree(place.workdir / "data")
    assert main(argv, train=fake()) == 0
    marks = [f"differs (lengths 4 to {longest}, 20 / 5 / 5)" for longest in (11, 12)]
    assert [row.data for row in place.rows()] == marks
    place.results.unlink()
    assert main(argv, train=fake()) == 0
    assert [row.data for row in place.rows()] == marks[1:]
    assert len(place.starts()) == 2


@pytest.mark.parametrize("flags", [(), ("--dry_run",)])
def test_data_that_are_not_lras_are_said_unless_the_sweep_asks_for_them(place, capsys, flags):
    place.file.write_text(ONE_RUN)
    said = f"listops: the data in {place.root / 'data'} are not LRA's: "
    for label, count in (("generated", 0), ("differs (9 examples)", 1)):
        write_data(place.root / "data", "listops", label)
        assert place.run(*flags) == 0
        assert capsys.readouterr().err.count(said + label) == count
    asked = Data(str(place.root / "data"), {"listops": {"train": 9}})
    assert asked.note("listops", "differs (9 examples)") is None


def test_a_manifest_without_its_request_is_of_other_flags_or_none(place):
    path = place.root / "data" / "listops" / "manifest.json"
    manifest = {
        k: v for k, v in json.loads(path.read_text()).items() if k not in ("request", "seal")
    }
    path.write_text(json.dumps(manifest))
    data = str(place.root / "data")
    assert Data(data, {}).mark("listops") == "generated"
    with pytest.raises(UserError, match=r"that in .* has another source"):
        Data(data, {"listops": {"train": 9}}).mark("listops")


def test_data_that_are_not_what_a_sweep_asks_for_are_left_alone(place):
    place.file.write_text(GENERATED)
    with pytest.raises(UserError, match="choose another --data_dir"):
        place.run()
    assert not place.starts()


def test_data_prepared_meanwhile_are_taken_or_left_alone(tmp_path):
    """Between the start of a sweep and the first run of a task there may be hours."""
    folder, sizes = tmp_path / "data", {"train": 20, "validation": 5, "test": 5, "max_length": 12}
    of_user = prepare_task(
        "listops", folder, source="generate", min_length=3, data_label="mine", **sizes
    )
    assert Data(str(folder), {}).generate("listops") == "mine"
    wants = Data(str(folder), {"listops": sizes | {"train": 30}})
    with pytest.raises(UserError, match="the sweep wants listops with train=30, that in"):
        wants.generate("listops")
    assert prepared.load(folder, "listops").manifest == of_user


def test_data_prepared_since_the_start_are_those_of_the_runs(place, monkeypatch):
    """Also of runs whose data were there, but are others by now."""
    place.file.write_text(
        "RUNS = [{'config': f'configs/{task}.py:nystrom'} for task in ('text', 'listops')]"
    )
    write_data(place.root / "data", "text")
    real = child.run

    def replacing(*arguments):
        write_data(place.root / "data", "listops", mark="my own")
        return real(*arguments)

    monkeypatch.setattr(child, "run", replacing)
    assert place.run() == 0
    assert [(row.task, row.data) for row in place.rows()] == [
        ("text", "generated"),
        ("listops", "my own"),
    ]


def test_data_replaced_between_runs_of_a_task_fail_no_run(place, monkeypatch, capsys):
    real = child.run

    def replacing(*arguments):
        ended = real(*arguments)
        write_data(place.root / "data", "listops", mark="my own")
        return ended

    monkeypatch.setattr(child, "run", replacing)
    assert place.run() == 1
    assert "its data were replaced meanwhile; the same command tries again" in (
        capsys.readouterr().err
    )
    assert "failed" not in [row.status for row in place.rows()]
    monkeypatch.setattr(child, "run", real)
    assert place.run() == 0


def test_data_damaged_between_runs_do_not_stop_the_rest(place, monkeypatch, capsys):
    real = child.run

    def damaging(*arguments):
        ended = real(*arguments)
        (place.root / "data" / "listops" / "manifest.json").write_text("[]")
        return ended

    write_data(place.root / "data", "text")
    text = '[{"config": "configs/text.py:standard", "seeds": (0,)}]'
    place.file.write_text(f"{place.file.read_text()}\nRUNS += {text}\n")
    monkeypatch.setattr(child, "run", damaging)
    assert place.run() == 1
    assert "manifest.json is not a manifest" in capsys.readouterr().err
    assert [row.task for row in place.rows()] == ["listops", "listops", "text"]


def test_data_that_may_not_be_read_are_said_and_the_others_run(place, capsys, monkeypatch):
    place.file.write_text(
        "RUNS = [{'config': f'configs/{task}.py:nystrom'} for task in ('text', 'listops')]"
    )
    real = prepared.load

    def load(folder, task, **options):
        if task == "text":
            raise PermissionError(13, "Permission denied", "text/manifest.json")
        return real(folder, task, **options)

    monkeypatch.setattr(prepared, "load", load)
    assert place.run() == 1
    assert [row.task for row in place.rows()] == ["listops"]
    said = "text: 1 run cannot start: Permission denied: text/manifest.json"
    assert said in capsys.readouterr().err


def test_data_are_generated_when_the_first_run_comes_up(place, capsys):
    place.file.write_text(
        f"{GENERATED}RUNS.insert(0, {{'config': 'configs/text.py:nystrom'}})\n"
        "RUNS.append({'config': 'configs/image.py:nystrom'})\n"
    )
    data_dir = place.root / "other"
    write_data(data_dir, "text")
    assert place.run(f"--data_dir={data_dir}") == 1
    assert [row.task for row in place.rows()] == ["text", "listops"]
    said = capsys.readouterr().err.splitlines()
    # What cannot be had is said before anything is done.
    order = ["image: 1 run cannot start", "3 runs, 2 to execute", "text nystrom, seeds 0: running"]
    order += ["text nystrom, seeds 0: test accuracy", "generating listops", "listops nystrom"]
    positions = [[line.startswith(text) for line in said].index(True) for text in order]
    assert positions == sorted(positions)


def test_data_are_generated_in_a_short_budget_but_not_behind_a_run_in_its_last_minute(
    place, capsys
):
    place.file.write_text(f"{GENERATED}RUNS.insert(0, {{'config': 'configs/text.py:nystrom'}})\n")
    data_dir = place.root / "other"
    write_data(data_dir, "text")
    assert place.run("--budget_minutes=0.9", f"--data_dir={data_dir}") == 75
    assert "more than the 0 s that the budget leaves for it" in capsys.readouterr().err
    assert [row.task for row in place.rows()] == ["text"]
    assert place.run("--budget_minutes=0.9", f"--data_dir={data_dir}") == 0
    assert [row.task for row in place.rows()] == ["text", "listops"]


def test_data_that_cannot_be_written_do_not_stop_the_rest(place, capsys):
    place.file.write_text(f"{GENERATED}RUNS.append({{'config': 'configs/text.py:nystrom'}})\n")
    data_dir = place.root / "other"
    write_data(data_dir, "text")
    (data_dir / ".listops.lock").mkdir()
    assert place.run(f"--data_dir={data_dir}") == 1
    assert "listops: 1 run cannot start: Is a directory" in capsys.readouterr().err
    assert [row.task for row in place.rows()] == ["text"]


def test_data_that_take_longer_than_the_budget_are_not_generated(place, capsys):
    place.file.write_text(
        "DATA = {'listops': {'train': 100_000_000}}\n"
        "RUNS = [{'config': f'configs/{task}.py:nystrom'} for task in ('listops', 'text')]"
    )
    data_dir = place.root / "other"
    write_data(data_dir, "text")
    assert place.run("--budget_minutes=2", f"--data_dir={data_dir}") == 75
    said = capsys.readouterr().err
    assert re.search(
        r"listops: generating its data takes about \d+ min, more than the 2 min that", said
    )
    assert "generating listops in" not in said
    assert [path.name for path in data_dir.iterdir() if path.is_dir()] == ["text"]
    assert [row.task for row in place.rows()] == ["text"]


def test_data_that_take_a_second_longer_than_the_budget_are_not_generated(place, monkeypatch):
    place.file.write_text(GENERATED)
    monkeypatch.setattr(Data, "seconds_to_generate", lambda *_: 121.0)
    with pytest.raises(UserError, match="takes about 2 min, more than the 2 min that"):
        place.run("--budget_minutes=2", f"--data_dir={place.root / 'other'}")


def test_a_budget_in_which_nothing_can_start_is_bad_input(place):
    """Another start with it would get no further, so a job must not be requeued for it."""
    place.file.write_text(
        "DATA = {'listops': {'train': 100_000_000}}\n"
        "RUNS = [{'config': 'configs/listops.py:nystrom'}]"
    )
    with pytest.raises(UserError, match=r"generating its data takes about .*; give it more"):
        place.run("--budget_minutes=2", f"--data_dir={place.root / 'other'}")
