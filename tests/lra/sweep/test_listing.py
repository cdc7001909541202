"""What --dry_run says of a sweep: done, missing, failed, in which order and how long."""

import json
import re
from typing import Any

import pytest

from lra import records
from lra.row import Row
from lra.settings import flatten, load_config
from lra.sweep.estimate import duration, estimate, rows_with_costs
from lra.sweep.sweep_file import load_sweep
from lra.sweep.under_way import UnderWay, read
from tests.lra.row_factory import failed_row, make_row
from tests.lra.sweep.place import ONE_RUN, SWEEP, without_folders, write_data

OURS = "generated".__eq__  # whether rows on data marked so are of the data of the run


def test_a_dry_run_repairs_nothing(place, capsys):
    place.run()
    content = place.results.read_bytes() + b'{"task": "lis'
    place.results.write_bytes(content)
    assert place.run("--dry_run") == 0
    assert place.results.read_bytes() == content
    assert "6 of 6 rows done" in capsys.readouterr().out


def test_dry_run_lists_done_missing_failed_and_time(place, capsys):
    assert place.run(linformer="crash") == 1
    capsys.readouterr()
    place.file.write_text(SWEEP.replace("(0, 1)", "(0, 1, 2)"))
    before = sorted(place.root.rglob("*"))
    assert place.run("--dry_run") == 0
    assert without_folders(capsys.readouterr().out) == [
        "missing  listops standard, seeds 2 (about 3 min by 2 rows)",
        "missing  listops nystrom num_landmarks=32, seeds 2 (about 3 min by 2 rows)",
        "missing  listops linformer, seeds 0 1 2 (time unknown; "
        "failed before: RuntimeError: INTERNAL: a mistake of XLA)",
        "4 of 9 rows done, 5 missing",
        "time left: about 7 min, unknown for 1 run",
        "times by rows are those of a device, where the latest was made",
    ]
    assert sorted(place.root.rglob("*")) == before


def test_dry_run_names_the_folder_of_each_run(place, capsys):
    """Runs that differ in a learning rate have folders that differ in a hash."""
    nystrom = {"config": "configs/listops.py:nystrom", "seeds": (0, 1)}
    rates = [nystrom | {"train.learning_rate": rate} for rate in (1e-4, 2e-4)]
    place.file.write_text(f"RUNS = {rates}")
    place.run("--dry_run")
    said = [line.split(" in ") for line in capsys.readouterr().out.splitlines()[:2]]
    assert place.run() == 0
    folders = [start["folder"] for start in place.starts()]
    assert [name for _, name in said] == folders
    place.file.write_text(f"RUNS = {[run | {'seeds': (0, 1, 2)} for run in rates]}")
    assert place.run() == 0
    capsys.readouterr()
    place.run("--dry_run")
    more = [start["folder"] for start in place.starts()[2:]]
    assert capsys.readouterr().out.splitlines()[:2] == [
        f"done     listops nystrom learning_rate={rate}, seeds 0 1 2 in {', '.join(pair)}"
        for rate, *pair in zip((0.0001, 0.0002), folders, more, strict=True)
    ]


def test_dry_run_says_which_data_will_be_generated(place, capsys):
    flags = "{'min_length': 3, 'max_length': 12, 'train': 20, 'validation': 5, 'test': 5}"
    place.file.write_text(f"DATA = {{'listops': {flags}}}{SWEEP}")
    assert place.run("--dry_run", f"--data_dir={place.root / 'none'}") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "missing  listops standard, seeds 0 1 (time unknown; data not prepared)"
    (line,) = [line for line in lines if "generated" in line]
    folder = place.root / "none"
    assert re.fullmatch(
        rf"listops: its data will be generated in {folder}, about 0\.\d MB and \d+ s", line
    )
    write_data(folder, "text")
    place.file.write_text("RUNS = [{'config': 'configs/image.py:standard'}]")
    assert place.run("--dry_run", f"--data_dir={folder}") == 0
    assert "will be generated" not in capsys.readouterr().out


def test_dry_run_goes_by_the_speed_of_a_run_under_way(place, capsys):
    place.file.write_text(ONE_RUN)
    assert place.run(standard="in parts") == 75
    metrics = next(place.workdir.glob("*/metrics.jsonl"))
    with open(metrics, "a") as file:
        file.write('{"kind": "eval", "step": 4, "loss": [2.3], "accuracy": [0.1]}\n{"kind": "tr')
    capsys.readouterr()
    assert place.run("--dry_run") == 0
    # (5000 - 4) steps of 32 examples for each of two seeds, 64 of them a second.
    assert without_folders(capsys.readouterr().out) == [
        "missing  listops standard, seeds 0 1 "
        "(4 of 5000 steps made; about 83 min at 64 examples/s, evaluations aside)",
        "0 of 2 rows done, 2 missing",
        "time left: about 83 min",
    ]


def test_the_call_that_compiled_tells_no_time(place, capsys):
    place.file.write_text(ONE_RUN)
    assert place.run(standard="in parts") == 75
    metrics = next(place.workdir.glob("*/metrics.jsonl"))
    line = {"kind": "train", "step": 1, "loss": [2.3], "accuracy": [0.1]}
    metrics.write_text(json.dumps(line | {"examples_per_second": 0.5}))
    capsys.readouterr()
    assert place.run("--dry_run") == 0
    assert "(1 of 5000 steps made; time unknown)" in capsys.readouterr().out


def test_the_latest_calls_tell_the_speed(tmp_path):
    line = {"kind": "train", "step": 1, "loss": [2.3], "accuracy": [0.1]}
    speeds = [1.0] * 30 + [64.0] * 19 + [9.0]
    lines = [json.dumps(line | {"examples_per_second": speed}) for speed in speeds]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    assert read(tmp_path / "metrics.jsonl").examples_per_second == 64.0


def test_rows_of_other_devices_tell_no_time(place, capsys):
    place.file.write_text(ONE_RUN)
    rows = [
        timed_row(data="another", seed=seed, device=device, num_devices=number, wall_seconds=time)
        for seed, (device, number, time) in enumerate(
            [
                ("a GPU", 1, 60.0),
                ("a CPU", 1, 6e4),
                ("a GPU", 2, 6e4),
                ("a GPU", 1, 60.0),
                ("a CPU, a GPU", 1, 6e4),
            ]
        )
    ]
    failed = failed_row(attention="standard", device=None, wall_seconds=None)
    records.append(place.results, [*rows, failed])
    assert place.run("--dry_run") == 0
    assert without_folders(capsys.readouterr().out) == [
        "missing  listops standard, seeds 0 1 (~40 s by 2 rows on other data; "
        "failed before: killed by SIGKILL)",
        "0 of 2 rows done, 2 missing",
        "time left: ~40 s for 1 run",
        "times by rows are those of a GPU, where the latest was made; those with ~ are of another "
        "device, other data or other settings",
    ]


def test_the_latest_row_need_not_be_the_last_of_its_file(place, capsys):
    place.file.write_text(ONE_RUN)
    late, early = (f"2026-0{month}-01T00:00:00+00:00" for month in (2, 1))
    rows = [
        timed_row(data="another", device="a GPU", finished=late, wall_seconds=60.0),
        timed_row(data="another", device="a CPU", finished=early, wall_seconds=6e4),
    ]
    records.append(place.results, rows)
    assert place.run("--dry_run") == 0
    assert "those of a GPU, where the latest was made" in capsys.readouterr().out


def test_a_row_that_two_files_have_tells_the_time_once(place, capsys):
    place.file.write_text(ONE_RUN)
    known = place.root / "known.jsonl"
    row = timed_row(data="another", device=None, num_devices=None, wall_seconds=60.0)
    for path in (place.results, known):
        records.append(path, [row])
    assert place.run("--dry_run", f"--known={known}") == 0
    assert without_folders(capsys.readouterr().out) == [
        "missing  listops standard, seeds 0 1 (~40 s by 1 row on other data)",
        "0 of 2 rows done, 2 missing",
        "time left: ~40 s for 1 run",
        "times by rows are those of unknown device, where the latest was made; those with ~ are of "
        "another device, other data or other settings",
    ]


def test_where_the_latest_device_has_no_row_another_one_tells_the_time(place, capsys):
    place.file.write_text(SWEEP)
    rows = [
        timed_row(data="another", device="a GPU", num_devices=2, wall_seconds=60.0),
        timed_row(data="another", seed=1, device="a TPU", wall_seconds=6e4),
        timed_row(data="another", seed=2, device="a GPU", num_devices=2, wall_seconds=60.0),
        timed_row(attention="nystrom", data="another", device="a CPU", wall_seconds=600.0),
    ]
    records.append(place.results, rows)
    assert place.run("--dry_run") == 0
    assert without_folders(capsys.readouterr().out) == [
        "missing  listops standard, seeds 0 1 (~40 s by 2 rows on other data on 2 x a GPU)",
        "missing  listops nystrom num_landmarks=32, seeds 0 1 "
        "(~7 min by 1 row of other settings on other data)",
        "missing  listops linformer, seeds 0 1 (time unknown)",
        "0 of 6 rows done, 6 missing",
        "time left: ~7 min for 2 runs, unknown for 1 run",
        "times by rows are those of a CPU, where the latest was made; those with ~ are of another "
        "device, other data or other settings",
    ]


@pytest.mark.parametrize("cores", ["1 core", "16 cores"])
def test_rows_of_a_gpu_tell_no_time_on_a_cpu(place, cores):
    place.file.write_text(ONE_RUN)
    (run,) = load_sweep(str(place.file)).runs
    on_gpu = timed_row(device="a GPU", wall_seconds=60.0)
    on_cpu = timed_row(device=f"AMD ({cores})", wall_seconds=60.0)
    latest = timed_row(attention="nystrom", device="Intel (2 cores)", wall_seconds=60.0)
    assert estimate(run, UnderWay(), [on_gpu, latest], OURS) is None
    found = estimate(run, UnderWay(), [on_gpu, on_cpu, latest], OURS)
    assert found.basis == f"by 1 row on AMD ({cores})"
    of_gpu = timed_row(attention="nystrom", device="another GPU", wall_seconds=60.0)
    assert estimate(run, UnderWay(), [on_cpu, of_gpu], OURS) is None


def test_a_row_of_the_same_settings_is_one_though_it_has_been_json(tmp_path):
    """Linformer's `share` is a tuple in configurations."""
    file = tmp_path / "sweep.py"
    file.write_text("RUNS = [{'config': 'configs/listops.py:linformer'}]")
    (run,) = load_sweep(str(file)).runs
    config = json.loads(json.dumps(run.config))
    row = make_row(attention="linformer", config=config, wall_seconds=60.0)
    assert estimate(run, UnderWay(), [row], OURS).basis == "by 1 row"


def test_rows_of_the_same_model_tell_the_time_and_those_that_diverged_none(place, capsys):
    place.file.write_text(ONE_RUN)
    wider = {"model.mlp_dim": 512}
    records.append(
        place.results,
        [
            timed_row(seed=2, wall_seconds=6e4, config_overrides=wider),
            timed_row(None, seed=3, wall_seconds=60.0, steps=4, status="diverged", diverged_step=3),
        ],
    )
    place.run("--dry_run")
    assert "(~11 h 7 min by 1 row of other settings)" in capsys.readouterr().out
    records.append(place.results, [timed_row(seed=4, wall_seconds=60.0)])
    place.run("--dry_run")
    assert "(about 40 s by 1 row)" in capsys.readouterr().out


def test_one_slow_row_among_others_changes_no_time(place):
    place.file.write_text(ONE_RUN)
    (run,) = load_sweep(str(place.file)).runs
    rows = [timed_row(wall_seconds=seconds) for seconds in (60.0, 6e4, 60.0)]
    assert estimate(run, UnderWay(), rows, OURS).seconds == pytest.approx(40)


def test_rows_tell_the_time_of_the_steps_that_are_left(place):
    place.file.write_text(ONE_RUN)
    (run,) = load_sweep(str(place.file)).runs
    # 60 s for 5000 steps of three seeds in the row; 1000 steps of two are left.
    found = estimate(run, UnderWay(step=4000), [timed_row(wall_seconds=60.0)], OURS)
    assert found.seconds == pytest.approx(60 / 3 / 5000 * 1000 * 2)
    # Damaged metrics may be beyond the last step.
    for row in ([], [timed_row(wall_seconds=60.0)]):
        beyond = UnderWay(step=6000, examples_per_second=None if row else 1.0)
        assert estimate(run, beyond, row, OURS).seconds == 0


@pytest.mark.parametrize(
    "costly",
    [
        *({"dtype": "bfloat16"}, {"matmul_precision": "bfloat16"}, {"mesh.data": 2}),
        *({"model.remat": True}, {"train.microbatches": 2}, {"train.eval_batch_size": 9}),
        {"train.batch_size": 8},
    ],
)
def test_what_a_step_costs_is_told_first_by_rows_that_share_it(place, costly):
    place.file.write_text(ONE_RUN)
    (run,) = load_sweep(str(place.file)).runs
    like, other = ({"train.learning_rate": 1e-3}, costly)
    rows = [timed_row(wall_seconds=60.0, config_overrides=changed) for changed in (like, other)]
    assert estimate(run, UnderWay(), rows, OURS).basis == "by 1 row"


def test_rows_on_other_data_tell_the_time_only_where_there_are_none_on_these(place):
    """Shorter examples cost less, whatever the settings."""
    place.file.write_text(ONE_RUN)
    (run,) = load_sweep(str(place.file)).runs
    shorter = timed_row(data="differs (lengths 16 to 63)", wall_seconds=60.0)
    assert estimate(run, UnderWay(), [shorter], OURS).basis == "by 1 row on other data"
    wider = timed_row(wall_seconds=600.0, config_overrides={"model.mlp_dim": 512})
    found = estimate(run, UnderWay(), [wider, shorter], OURS)
    assert (found.seconds, found.basis) == (pytest.approx(400), "by 1 row of other settings")


def test_rows_of_other_settings_tell_the_time_only_roughly(place):
    """Fewer landmarks take less time, and on a GPU 16 bits have programs of their own."""
    place.file.write_text(ONE_RUN)
    (run,) = load_sweep(str(place.file)).runs
    formats = {"dtype": "bfloat16"}
    bfloat16 = timed_row(wall_seconds=60.0, dtype="bfloat16", config_overrides=formats)
    found = estimate(run, UnderWay(), [bfloat16], OURS)
    assert (found.rough, found.basis) == (True, "by 1 row in another number format")
    wider = timed_row(wall_seconds=600.0, config_overrides={"model.mlp_dim": 512})
    found = estimate(run, UnderWay(), [wider, bfloat16], OURS)
    assert (found.rough, found.basis) == (True, "by 1 row of other settings")
    alike = timed_row(wall_seconds=600.0)
    found = estimate(run, UnderWay(), [alike, wider, bfloat16], OURS)
    assert (found.rough, found.basis) == (False, "by 1 row")


def test_times_that_are_rough_are_summed_for_themselves(place, capsys):
    place.file.write_text(SWEEP)
    rows = [
        timed_row(wall_seconds=600.0, data="generated"),
        timed_row(attention="nystrom", data="another", wall_seconds=600.0),
    ]
    records.append(place.results, rows)
    assert place.run("--dry_run") == 0
    assert "time left: about 3 min, ~7 min for 1 run, unknown for 1 run" in capsys.readouterr().out


def test_rows_of_another_batch_tell_the_time_by_the_examples(place):
    place.file.write_text(ONE_RUN)
    (run,) = load_sweep(str(place.file)).runs
    row = timed_row(wall_seconds=60.0, config_overrides={"train.batch_size": 8})
    assert estimate(run, UnderWay(), [row], OURS).seconds == pytest.approx(60 / 3 * 2 * 4)


def test_rows_and_speeds_that_tell_no_possible_time_count_as_unknown(place, capsys):
    place.file.write_text(ONE_RUN)
    (run,) = load_sweep(str(place.file)).runs
    for steps, seconds in ((1, 1e308), (1, 1e10)):
        row = timed_row(seed=5, wall_seconds=seconds, steps=steps)
        assert estimate(run, UnderWay(), [row], OURS) is None
    row = make_row(config={"train.batch_size": "32"}, wall_seconds=60.0)
    assert not rows_with_costs([row])
    beyond = timed_row(steps=10**308, wall_seconds=60.0, seeds_in_program=10**308)
    assert estimate(run, UnderWay(), [beyond], OURS).seconds == 0
    assert estimate(run, UnderWay(examples_per_second=1e-320), [], OURS) is None
    records.append(place.results, [timed_row(seed=5, wall_seconds=1e308, steps=1)])
    place.run("--dry_run")
    assert "time left: unknown for 1 run" in capsys.readouterr().out


def test_results_in_another_number_format_are_mentioned(place, capsys):
    place.file.write_text(ONE_RUN)
    coarse = {"dtype": "bfloat16"}
    rows = [
        timed_row(dtype="bfloat16", config_overrides=coarse),
        timed_row(seed=1, dtype="bfloat16", config_overrides=coarse, data="another"),
    ]
    records.append(place.results, rows)
    assert place.run("--dry_run") == 0
    (line, *_) = without_folders(capsys.readouterr().out)
    assert line.endswith("; results with dtype=bfloat16 do not count)")


def timed_row(accuracy: float | None = 0.5, attention: str = "standard", **values: Any) -> Row:
    """A row with its whole configuration, of a program of three seeds."""
    config = flatten(load_config(f"configs/listops.py:{attention}"))
    overrides = values.get("config_overrides", {})
    return make_row(accuracy, attention=attention, config=config | overrides, **values)


def test_durations():
    assert [duration(s) for s in (45, 700, 12_000)] == ["45 s", "12 min", "3 h 20 min"]


def test_the_order_said_is_the_order_of_execution(place, capsys):
    """Task by task, and what has failed before is not in the way of the others."""
    write_data(place.root / "data", "image")
    place.file.write_text(
        "RUNS = [{'config': f'configs/{task}.py:{attention}'}"
        " for attention in ('nystrom', 'standard', 'linformer') for task in ('listops', 'image')]"
    )
    assert place.run("--tasks=listops", "--config.seeds=(0,)", nystrom="crash", standard="slow")
    capsys.readouterr()
    place.run("--dry_run")
    said = [line.split()[1:3] for line in capsys.readouterr().out.splitlines()[:6]]
    assert [(task, attention.strip(",")) for task, attention in said] == [
        ("listops", "standard"), ("listops", "linformer"), ("listops", "nystrom"),
        ("image", "nystrom"), ("image", "standard"), ("image", "linformer"),
    ]  # fmt: skip
    place.run()
    assert [start["folder"].split("-")[:2] for start in place.starts()[2:]] == [
        [task, attention.strip(",")] for task, attention in said
    ]


def test_runs_are_called_by_what_tells_them_apart(place):
    place.file.write_text(
        "nystrom = {'config': 'configs/listops.py:nystrom', 'train.steps': 9}\n"
        "RUNS = [nystrom | {'train.learning_rate': rate} for rate in (1e-4, 2e-4)]\n"
        "RUNS += [{'config': 'configs/listops.py:linformer', 'train.learning_rate': 2e-4}]\n"
    )
    runs = load_sweep(str(place.file)).runs
    assert [run.title() for run in runs] == [
        "listops nystrom learning_rate=0.0001, seeds 0",
        "listops nystrom learning_rate=0.0002, seeds 0",
        "listops linformer, seeds 0",
    ]
    # Another run of the sweep does not move the folder of one that has begun.
    assert all(run.folder("").startswith(f"listops-{run.attention}-") for run in runs)
