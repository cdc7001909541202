"""The table of costs: rows, what several seeds cost, a profile."""

import argparse
import json
import re
import types

import jax
import numpy as np
import pytest

from benchmarks import (
    ceilings,
    random_data,
    step_profile,
    train_case,
    train_step,
    training_tables,
)
from benchmarks.worker import WorkerError
from lra import environment, records, training_rows
from lra.data import prepared
from lra.errors import UserError
from lra.settings import load_config
from lra.trainer import Trainer
from models.machine import Machine, assumed
from tests.benchmarks.fake_worker import WorkerHere
from tests.benchmarks.test_training_page import STEP
from tests.lra.conftest import ONE_DEVICE, TINY, write_listops
from tests.lra.row_factory import make_row


def fake(case, options):
    task, attention, seeds = case
    names = {"task": task, "attention": attention, "seeds": seeds}
    if attention == "reformer":
        return names | {"failed": True, "why": "see above"}
    return STEP | names | {"steps_per_second": 4.0 / (1 + 0.25 * (seeds - 1))}


def fakes(cases, options):
    return (fake(case, options) for case in cases)


def test_rows_say_what_several_seeds_cost(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(train_step, "_in_processes", fakes)
    out = tmp_path / "rows.jsonl"
    flags = ["--tasks=listops", "--attentions=nystrom,reformer", "--seeds=1,3", f"--out={out}"]
    assert train_step.main(flags) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row.get("cost_against_one_seed") for row in rows] == [1.0, 1.5, None, None]
    lines = capsys.readouterr().out.splitlines()
    assert lines[3].split(" | ")[-2:] == ["26.7%", "1.50 |"]
    assert lines[3].split(" | ")[3:5] == ["32", "no"]
    assert lines[4] == "| listops | reformer | 1 | failed |"


@pytest.mark.parametrize("more", [(), ("--largest_batch",)])
def test_a_file_of_other_rows_is_refused_before_anything_is_measured(tmp_path, monkeypatch, more):
    for name in ("_in_processes", "_in_a_process"):
        monkeypatch.setattr(train_step, name, None)
    out = tmp_path / "accuracy.jsonl"
    records.append(out, [make_row()])
    flags = ["--tasks=listops", "--attentions=linear", f"--out={out}", *more]
    with pytest.raises(UserError, match=r"accuracy\.jsonl, line 1: not a row of a training step"):
        train_step.main(flags)


def test_the_hours_of_the_cells_of_the_table_are_added_up(capsys, monkeypatch):
    monkeypatch.setattr(train_step, "_in_processes", fakes)
    flags = ["--tasks=listops,pathx,text", "--attentions=nystrom,linear,reformer", "--seeds=1,3"]
    assert train_step.main(flags) == 0
    # Neither Path-X nor linear attention is in the table, and Reformer failed.
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "1 seed: 2 of 25 cells of the table, 3.1 h in all (training, evaluations, compilation)",
        "3 seeds in one program: 2 of 25 cells of the table, 3.1 h in all (training, evaluations, "
        "compilation)",
    ]


def test_overrides_reach_the_process_and_the_configuration_of_a_case(monkeypatch):
    overrides = ("model.dropout=0.2", "model.attention.implementation=flash")
    flags = ["--tasks=listops", "--attentions=standard", "--seeds=2"]
    cases = []
    monkeypatch.setattr(train_step, "Worker", WorkerHere)

    class Measured:
        def __init__(self, case):
            cases.append(case)

        def row(self, seconds, **_):
            return STEP

    monkeypatch.setattr(train_case, "Measurement", Measured)
    assert train_step.main([*flags, *(f"--override={o}" for o in overrides)]) == 0
    assert cases == [train_case.TrainCase("listops", "standard", 2, "float32", None, overrides)]
    config = train_case.make_trainer(cases[0]._replace(overrides=overrides[:1])).config
    assert config.model.dropout == 0.2


@pytest.mark.parametrize(
    "override", ["seeds=(0, 1)", "dtype=bfloat16", "train.steps=7", "model.dropuot=0.2"]
)
def test_overrides_that_a_row_would_not_tell_are_refused(override):
    with pytest.raises(UserError, match=r"model or matmul_precision|did you mean"):
        train_step.main(["--tasks=listops", "--attentions=standard", f"--override={override}"])


class Ended:
    """A worker whose process has ended when it is asked for `request`."""

    def __init__(self, request, error, log):
        self.request, self.error, self.log = request, error, log

    def start(self):
        self.log.append("start")

    def ask(self, request, *case):
        self.log.append(f"{request} {case[1]}")
        if request == self.request:
            raise self.error
        return STEP | {"attention": case[1]}

    def close(self):
        self.log.append("close")


@pytest.mark.parametrize("request_", ["compile", "time"])
@pytest.mark.parametrize(
    ("kind", "why"), [("out_of_memory", "out of memory"), ("unsupported", "see above")]
)
def test_the_row_of_a_case_that_failed_leaves_the_message_to_stderr(
    request_, kind, why, capsys, monkeypatch
):
    ended = Ended(request_, WorkerError(kind, "f32[2] | x"), [])
    monkeypatch.setattr(train_step, "Worker", lambda *_, **__: ended)
    options = argparse.Namespace(override=["model.dropout=0.0"], batch=None, dtype="bfloat16")
    (row,) = train_step._in_processes([("text", "linear", 3)], options)
    crashed = kind == "unsupported"
    names = {"task": "text", "attention": "linear", "seeds": 3, "batch": 32, "dtype": "bfloat16"}
    names["overrides"] = ["model.dropout=0.0"]
    assert row == names | {"failed": True, "crashed": crashed, "why": why}
    assert capsys.readouterr().err.startswith("text, linear, 3: f32[2] | x")


def test_cases_compile_beside_each_other_and_are_timed_alone(tmp_path, monkeypatch):
    log, environments = [], []

    def worker(*_, environment):
        environments.append(environment)
        return Ended("none", None, log)

    monkeypatch.setattr(train_step, "Worker", worker)
    out = tmp_path / "rows.jsonl"
    flags = ["--tasks=text", "--attentions=linear,nystrom,linformer", "--compile_at_once=2"]
    flags += [f"--out={out}"]
    assert train_step.main(flags) == 0
    assert log[:2] == ["start", "start"]
    assert sorted(log[2:4]) == ["compile linear", "compile nystrom"]
    assert log[4:8] == ["time linear", "close", "time nystrom", "close"]
    assert log[log.index("compile linformer") :][:3] == [
        "compile linformer",
        "time linformer",
        "close",
    ]
    lines = out.read_text().splitlines()
    assert [json.loads(line).get("compiled_beside") for line in lines] == [1, 1, None]
    alone = {"JAX_ENABLE_COMPILATION_CACHE": "false"}  # or programs would be read, not compiled
    shared = alone | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    assert environments == [shared, shared, alone]


def test_nothing_measured_is_an_error(monkeypatch):
    monkeypatch.setattr(train_step, "_in_processes", fakes)
    with pytest.raises(UserError, match="no case could be measured"):
        train_step.main(["--tasks=listops", "--attentions=reformer"])


@pytest.mark.parametrize("flag", ["--tasks=listop", "--attentions=nystorm", "--seeds=0"])
def test_bad_flags(flag):
    with pytest.raises(UserError, match=r"did you mean|--seeds"):
        train_step.main([flag])


@pytest.mark.parametrize(
    ("precision", "named"),
    [("float32", "HIGHEST"), ("tensorfloat32", "HIGH"), ("bfloat16", "DEFAULT")],
)
def test_utilisation_is_of_products_in_the_models_precision(precision, named, monkeypatch):
    config = load_config("configs/listops.py:standard", [f"matmul_precision={precision}"])
    products = []

    def fastest(function, argument):
        products.append(str(jax.make_jaxpr(function)(argument)))
        return 2.0

    monkeypatch.setattr(ceilings, "_fastest", fastest)
    side = ceilings._SIZES["cpu"][0]
    assert train_case._matmul_rate(config) == side**3
    assert f"precision=(Precision.{named}, Precision.{named})" in products[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "attention",
    [
        "performer",
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("standard", "reformer", "nystrom")),
    ],
)
def test_operations_are_those_of_the_plain_form(attention, monkeypatch):
    """Kernels split products in two and have branches, which are no operations of the model."""
    monkeypatch.setitem(train_case.LONGEST, "listops", 256)
    monkeypatch.setitem(random_data._DECILES, "listops", (3, 256))
    case = train_case.TrainCase("listops", attention, 1, "bfloat16", batch=2)
    counts = []
    for machine in (Machine("gpu", runs_kernels=True, inverts=True), Machine("gpu")):
        with assumed(machine):
            counts.append(train_case.model_flops(train_case.make_trainer(case)))
    assert counts[0] == counts[1] > 0


@pytest.fixture(scope="module")
def trainer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_listops(folder)
    config = load_config("configs/listops.py:standard", (*TINY, *ONE_DEVICE))
    return Trainer(config, prepared.load(folder, "listops"))


def test_a_case_has_a_row_that_the_table_prints(trainer, tmp_path, monkeypatch):
    monkeypatch.setattr(train_case, "make_trainer", lambda case: trainer)
    monkeypatch.setattr(train_case, "_matmul_rate", lambda config: 1e9)
    case = train_case.TrainCase("listops", "standard", 1, "float32")
    row = json.loads(json.dumps(train_case.Measurement(case).row(0.01)))
    assert (row["task"], row["attention"], row["seeds"]) == ("listops", "standard", 1)
    assert row["examples_per_second"] == pytest.approx(8 * row["steps_per_second"])
    steps, evaluated = (
        12 / row["steps_per_second"],
        (2 * 2000 + 2 * 2000) / row["eval_examples_per_second"],
    )
    assert row["protocol_hours"] == pytest.approx((steps + evaluated) / 3600)
    compiled = sum(row[f"{what}compile_seconds"] for what in ("", "eval_", "other_"))
    assert row["other_compile_seconds"] > 0
    assert row["matmul_precision"] == "float32"
    assert row["whole_hours"] == pytest.approx(row["protocol_hours"] + compiled / 3600)
    assert row["deterministic"]
    assert row["commit"] == environment.commit()
    assert len(training_tables.step_cells(row)) == len(training_tables.STEP_TITLES)
    training_rows.append(tmp_path / "rows.jsonl", row, training_rows.StepRow)
    (read,) = training_rows.read(tmp_path / "rows.jsonl", training_rows.StepRow)
    assert read == row | {"overrides": []}


def test_a_whole_run_compiles_an_evaluation_for_each_size_of_a_split():
    times = train_case.Times(0.0, 100.0, 0.0, 10.0, 1.0)
    seconds = {
        task: 3600
        * train_case._hours(load_config(f"configs/{task}.py:standard", []), times)["whole_hours"]
        for task in ("listops", "image")
    }
    assert seconds == pytest.approx({"listops": 111.0, "image": 121.0})


def test_hours_are_of_the_protocols_steps_and_of_all_seeds_evaluations():
    config = load_config("configs/listops.py:standard", ["seeds=(0, 1, 2)"])
    hours = train_case._hours(config, train_case.Times(2.0, 0.0, 0.5, 0.0, 0.0))
    evaluated = 3 * (100 * 2000 + 2 * 2000)
    assert hours["protocol_hours"] == pytest.approx((5000 * 2.0 + evaluated * 0.5) / 3600)


def test_times_are_of_a_step_of_all_seeds_and_of_an_example_of_one(monkeypatch):
    measurement = object.__new__(train_case.Measurement)
    measurement._trainer = types.SimpleNamespace(
        config=types.SimpleNamespace(seeds=(0, 1)), num_examples=lambda split: 10, train=None
    )
    measurement._state, measurement._first_seconds = None, {"train": 1.0, "evaluation": 100.0}
    monkeypatch.setattr(measurement, "_compilation", lambda name: 5.0)
    monkeypatch.setattr(measurement, "_evaluation", lambda seconds: 40.0)
    monkeypatch.setattr(train_case, "time_steps", lambda *_: (None, 1, 3.0))
    # A first step that was faster than the others has not compiled in negative time.
    assert measurement._times(1.0) == train_case.Times(3.0, 0.0, 2.0, 60.0, 15.0)


def test_a_row_counts_the_operations_and_examples_of_all_seeds(monkeypatch):
    monkeypatch.setattr(train_case, "model_flops", lambda trainer: 5)
    monkeypatch.setattr(train_case, "_matmul_rate", lambda config: 1e9)
    config = load_config("configs/listops.py:standard", ["seeds=(0, 1)"])
    mesh = types.SimpleNamespace(size=1)
    trainer = types.SimpleNamespace(config=config, shardings=types.SimpleNamespace(mesh=mesh))
    facts = train_case._facts(trainer, train_case.Times(0.5, 0.0, 0.25, 0.0, 0.0))
    assert facts["real_flops_per_step"] == 10
    assert facts["examples_per_second"] == 2 * 32 / 0.5
    assert (facts["steps_per_second"], facts["eval_examples_per_second"]) == (2.0, 4.0)


def test_a_step_has_thrice_the_products_of_a_forward_pass(trainer, monkeypatch):
    monkeypatch.setattr(train_case, "product_flops", lambda *_: 7)
    assert train_case.model_flops(trainer) == 3 * 8 * 7


def test_steps_are_timed_until_their_results_are_there():
    waited = []

    class Result:
        def block_until_ready(self):
            waited.append(self)
            return self

    made = []

    def train(state, step, count):
        made.append(Result())
        return made[-1], None

    train_case.time_steps(train, None, 0, seconds=0.001)
    assert waited == made


def test_the_seconds_of_a_step_are_the_median_over_calls_of_many(monkeypatch):
    now, calls, of_a_step = [0.0], [], iter((0.5, 0.125, 0.25))

    def train(state, step, count):
        calls.append((step, count))
        now[0] += count * next(of_a_step)
        return state, None

    monkeypatch.setattr(train_case, "time", types.SimpleNamespace(perf_counter=lambda: now[0]))
    assert train_case.time_steps(train, "state", 0, seconds=2.0) == ("state", 11, 0.25)
    assert calls == [(0, 1), (1, 2), (3, 8)]


def test_the_median_of_three_evaluations_or_more_counts(monkeypatch):
    measurement = object.__new__(train_case.Measurement)
    seconds = iter((9.0, 1.0, 2.0))
    monkeypatch.setattr(measurement, "_time_call", lambda name: next(seconds))
    assert measurement._evaluation(0.0) == 2.0


def test_a_ceiling_is_of_the_fastest_call_after_the_first(monkeypatch):
    now, seconds = [0.0], iter((0.5, *(3.0, 2.0) * 10))

    def function(x):
        now[0] += next(seconds)
        return x

    monkeypatch.setattr(ceilings, "time", types.SimpleNamespace(perf_counter=lambda: now[0]))
    assert ceilings._fastest(function, np.ones(1)) == 2.0


def test_a_copy_is_read_and_written(monkeypatch):
    monkeypatch.setitem(ceilings._SIZES, "cpu", (8, 4000))
    monkeypatch.setattr(ceilings, "_fastest", lambda function, argument: 2.0)
    assert ceilings._copy_rate("float32") == 2 * 4000 / 2.0


def test_the_share_of_the_ceiling_is_of_all_devices():
    """4 steps of 10^9 operations a second, each device capable of 10^10."""
    assert "| 40.0% |" in training_tables.step_line(STEP)
    assert "| 10.0% |" in training_tables.step_line(STEP | {"num_devices": 4})


def test_another_batch_has_no_hours_of_the_protocol(trainer, monkeypatch, capsys):
    monkeypatch.setattr(train_case, "make_trainer", lambda case: trainer)
    monkeypatch.setattr(train_case, "_matmul_rate", lambda config: 1e9)
    case = train_case.TrainCase("listops", "standard", 1, "float32", batch=8)
    row = train_case.Measurement(case).row(0.01)
    assert (row["batch"], row["protocol_hours"], row["whole_hours"]) == (8, None, None)
    assert " | – | " in training_tables.step_line(row)
    assert training_tables.sums([row]) == []


def test_a_case_takes_its_batch_and_seeds_from_the_flags(monkeypatch):
    monkeypatch.setitem(train_case.LONGEST, "listops", 16)
    monkeypatch.setitem(random_data._DECILES, "listops", (3, 16))
    made = train_case.make_trainer(
        train_case.TrainCase("listops", "linear", 2, "bfloat16", batch=4)
    )
    assert (made.config.train.batch_size, made.config.dtype, made.length) == (4, "bfloat16", 16)
    assert (len(made.config.seeds), made.num_examples("train")) == (2, 16)


@pytest.mark.parametrize(
    ("task", "mean", "longest"),
    [("listops", 1036, 1999), ("text", 1299, 4096), ("image", 1024, 1024)],
)
def test_lengths_are_distributed_as_the_tasks(task, mean, longest):
    # The means are those of the 96,000 expressions and of the 25,000 reviews.
    lengths = random_data.usual_lengths(task, 1000)
    assert lengths.mean() == pytest.approx(mean, rel=0.02)
    assert 0.99 * longest <= lengths.max() <= longest


def test_operations_are_those_of_real_tokens(trainer, monkeypatch):
    def operations(*lengths):
        monkeypatch.setattr(trainer, "training_lengths", np.array(lengths))
        return train_case.model_flops(trainer)

    whole, half = operations(trainer.length), operations(trainer.length // 2)
    # Everything in it grows with the length, attention with its square.
    assert 0.25 * whole < half < 0.5 * whole
    both = operations(trainer.length // 2, trainer.length)
    assert both == pytest.approx((half + whole) / 2, abs=trainer.config.train.batch_size)


def test_operations_are_those_of_the_mean_lengths_of_groups(trainer, monkeypatch):
    monkeypatch.setattr(trainer, "training_lengths", np.arange(1, 49))  # sixteen groups of three
    monkeypatch.setattr(train_case, "product_flops", lambda _, state, ids, mask: ids.shape[-1])
    assert train_case.model_flops(trainer) == 3 * 8 * 24.5


def test_operations_of_older_rows_bound_the_share():
    older = STEP | {"flops_per_step": STEP["real_flops_per_step"]}
    del older["real_flops_per_step"]
    assert "| ≤40.0% |" in training_tables.step_line(older)


def test_a_profile_names_operations(trainer, tmp_path):
    text = step_profile.profile(trainer, trainer.init(), 0, 1.0, tmp_path)
    assert re.search(r"ms/step of operations.*\n.* ms +\d+\.\d%  \w+", text)
    assert list(tmp_path.rglob("*.xplane.pb"))
