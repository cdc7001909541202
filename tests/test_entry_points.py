"""Flags of train.py and eval.py reach what they are for."""

import pytest

import eval as evaluating
import train as training


@pytest.fixture
def calls(monkeypatch):
    """Record the arguments of a training or an evaluation instead of carrying it out."""
    made = []

    def record(*arguments, **options):
        made.append((arguments, options))
        return 0

    monkeypatch.setattr("lra.loop.train", record)
    monkeypatch.setattr("lra.evaluation.evaluate_workdir", record)
    return made


def test_flags_reach_the_training(calls):
    flags = ["--config=configs/listops.py:nystrom", "--config.seeds=(3,)", "--workdir=runs/x"]
    assert training.main([*flags, "--data_dir=elsewhere"]) == 0
    more = ["--budget_minutes=2", "--tensorboard", "--debug_nans"]
    assert training.main([*flags, *more]) == 0
    ((config, workdir, data_dir), plain), ((*_, usual_data), told) = calls
    assert (config.model.attention.name, config.seeds) == ("nystrom", (3,))
    assert (str(workdir), str(data_dir), str(usual_data)) == ("runs/x", "elsewhere", "data")
    stops = [options.pop("stop") for options in (plain, told)]
    assert plain == {"tensorboard": False, "debug_nans": False}
    assert told == {"tensorboard": True, "debug_nans": True}
    late = 2 * 60 + 1  # for a call of so many seconds
    assert [bool(stop.before(late)) for stop in stops] == [False, True]


def test_flags_reach_the_evaluation(calls, tmp_path):
    assert evaluating.main(["--workdir=runs/x"]) == 0
    file = tmp_path / "out.npz"
    flags = ["--data_dir=elsewhere", "--split=validation", f"--predictions={file}"]
    flags += ["--eval_batch_size=8"]
    assert evaluating.main(["--workdir=runs/x", *flags]) == 0
    (_, plain), ((workdir,), told) = calls
    assert str(workdir) == "runs/x"
    options = ("data_dir", "predictions", "eval_batch_size")
    assert plain == dict.fromkeys(options) | {"split": "test"}
    assert {key: str(value) for key, value in told.items()} == {
        "data_dir": "elsewhere",
        "split": "validation",
        "predictions": str(file),
        "eval_batch_size": "8",
    }
