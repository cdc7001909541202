"""Sweep files: what they list, and what is wrong with them; more of that in tests/bad_sweeps.py."""

import pathlib

import pytest

from lra.errors import UserError
from lra.sweep.sweep_file import load_sweep

ROOT = pathlib.Path(__file__).resolve().parents[3]
SWEEPS = sorted(path.stem for path in (ROOT / "configs" / "sweeps").glob("*.py"))


def test_names_of_folders_are_no_longer_than_file_systems_allow(place):
    sizes = f"({'16, ' * 100})"
    place.file.write_text(
        "RUNS = [{'config': 'configs/listops.py:linformer', 'model.num_layers': 100, "
        f"'model.attention.proj_dim': {sizes}, 'model.attention.share': ('kv',)}}]"
    )
    assert place.run("--dry_run") == 0
    assert place.run() == 0
    assert len(place.rows()) == 1


def test_a_run_listed_twice_is_said_and_run_once(place, capsys):
    place.file.write_text(
        "run = {'config': 'configs/listops.py:standard', 'seeds': (0, 1)}\n"
        "RUNS = run, dict(run), run | {'seeds': (1, 2)}\n"  # a tuple is a list, too
    )
    assert place.run() == 0
    assert [row.seed for row in place.rows()] == [0, 1, 2]
    said = capsys.readouterr().err
    assert "lists listops standard, seeds 0 1 twice: run once" in said
    assert "lists listops standard, seeds 1 twice: run once" in said


def test_a_zero_with_a_minus_is_the_same_zero(place, capsys):
    place.file.write_text(
        "RUNS = [{'config': 'configs/listops.py:performer', 'model.attention.epsilon': zero}\n"
        "        for zero in (0.0, -0.0)]\n"
    )
    assert place.run() == 0
    assert [row.config_overrides for row in place.rows()] == [{"model.attention.epsilon": 0.0}]
    assert "epsilon=0.0, seeds 0 twice: run once" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("RUNS = None", "has no list RUNS"),
        ("RUNS = [{'config': 'configs/listops.py:nystrom', 'seeds': ()}]", "seeds is empty"),
        ("\nimport math\nRUNS = [math.log(0)]", "sweep.py, line 3: ValueError"),
        ("def runs():\n    raise KeyError('mine')", "sweep.py, line 2: KeyError: 'mine'"),
        ("raise BaseException('mine')", "sweep.py, line 1: BaseException: mine"),
        ("def runs():\n    raise GeneratorExit", "sweep.py, line 2: GeneratorExit"),
        ("RUNS = [{'config': 'x', 'seeds': (10**5000,)}]", "run 1: a value that cannot be written"),
        ("a = []\na.append(a)\nRUNS = [{'config': 'x', 'seeds': a}]", "run 1: a value that cannot"),
    ],
)
def test_bad_sweep_files_are_named_before_anything_runs(place, text, message):
    place.file.write_text(text)
    with pytest.raises(UserError, match=message):
        place.run()
    assert not place.workdir.exists()


def test_ctrl_c_while_a_sweep_file_runs_is_no_mistake_of_it(place):
    place.file.write_text("raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load_sweep(str(place.file))


def test_numbers_of_numpy_and_sequences_of_any_kind_are_values(place):
    place.file.write_text(
        "import numpy as np\n"
        "run = {'config': 'configs/listops.py:nystrom'}\n"
        "RUNS = [run | {'train.learning_rate': rate} for rate in np.logspace(-4, -3, 2)]\n"
        "RUNS += [run | {'model.attention.num_landmarks': np.int64(32), 'seeds': [0, 1]}]\n"
        "RUNS += [run | {'train.steps': 9, 'seeds': range(3)}]\n"
        "RUNS += [run | {'train.steps': 8, 'seeds': np.arange(2)}]\n"
        "RUNS += [run | {'train.steps': 7, 'seeds': (np.int64(4),)}]\n"
        "import pathlib\n"
        "RUNS += [run | {'train.init_from': pathlib.Path('runs/a')}]\n"
    )
    runs = load_sweep(str(place.file)).runs
    assert [run.config["train.learning_rate"] for run in runs[:2]] == [1e-4, 1e-3]
    assert runs[2].config["model.attention.num_landmarks"] == 32
    assert runs[-1].config["train.init_from"] == "runs/a"
    assert [run.seeds for run in runs[:-1]] == [(0,), (0,), (0, 1), (0, 1, 2), (0, 1), (4,)]


@pytest.mark.parametrize("value", ["None", "b'x'", "{}", "[None]", "object()"])
def test_what_no_key_holds_is_refused(place, value):
    place.file.write_text(
        f"RUNS = [{{'config': 'configs/listops.py:nystrom', 'train.init_from': {value}}}]"
    )
    with pytest.raises(UserError, match=r"run 1: a value .* \(.* is no text, number or list"):
        load_sweep(str(place.file))


def test_runs_may_be_generated(place):
    place.file.write_text(
        "def runs(tasks=('listops', 'image')):\n"
        "    for task in tasks:\n"
        "        yield {'config': f'configs/{task}.py:nystrom'}\n"
    )
    assert [run.task for run in load_sweep(str(place.file)).runs] == ["listops", "image"]
    place.file.write_text("def runs():\n    yield 1 / 0")
    with pytest.raises(UserError, match=r"sweep.py, line 2: ZeroDivisionError"):
        load_sweep(str(place.file))


def test_all_tasks_without_runs_are_named(place):
    with pytest.raises(UserError, match=r"lists no runs of image, text$"):
        place.run("--tasks=listops,image,text,image")


@pytest.mark.parametrize("name", SWEEPS)
def test_the_sweep_files_resolve(name):
    sweep = load_sweep(str(ROOT / "configs" / "sweeps" / f"{name}.py"))
    runs = [(run.task, run.attention, str(run.changed)) for run in sweep.runs]
    assert len(runs) == len(set(runs)) >= 3


def test_the_table_finishes_columns_first():
    runs = load_sweep("configs/sweeps/table.py").runs
    assert len(runs) == 25
    assert [run.task for run in runs[:5]] == ["listops"] * 5
    assert {run.protocol for run in runs} == {"table3"}
    assert {run.seeds for run in runs} == {(0, 1, 2)}


def test_a_sweep_may_take_the_data_of_another():
    epsilon, quick = (load_sweep(f"configs/sweeps/{name}.py") for name in ("epsilon", "quick"))
    assert epsilon.data == quick.data
    values = [run.config["model.attention.epsilon"] for run in epsilon.runs]
    assert values == [1e-4, 1e-6, 0.0]


def test_tasks_can_be_chosen():
    runs = load_sweep("configs/sweeps/landmarks.py", ("text",)).runs
    assert {run.task for run in runs} == {"text"}
    assert [run.config["model.attention.num_landmarks"] for run in runs] == [
        16, 32, 64, 128, 256, 512,
    ]  # fmt: skip


def test_folders_tell_runs_apart(place):
    runs = load_sweep("configs/sweeps/projections.py").runs
    folders = {run.folder(data) for run in runs for data in ("official", "generated")}
    assert len(folders) == 2 * len(runs)
    assert runs[0].folder("official").startswith("listops-linformer-proj_dim=32-")
