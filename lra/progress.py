"""What a run tells while it goes on: a bar or lines, metrics.jsonl, TensorBoard."""

import contextlib
import importlib.util
import pathlib
import sys
from collections.abc import Iterable

import numpy as np
from ml_collections import config_dict
from tqdm import tqdm

from lra.errors import UserError
from lra.evaluation_run import Evaluation
from lra.programs import CallMetrics
from lra.row import Row
from lra.workdir import Metrics, read_metrics

_Known = list[float | None]  # a value a seed, None for one that has diverged


class Reporter:
    """Writes each training call and evaluation wherever someone looks for it.

    Nothing is reported of a diverged seed, although its frozen parameters still give numbers.

    Args:
        seeds: of the run.
        steps: total number in the run.
        step: number already made; later lines of metrics.jsonl are removed, later events hidden.
        evaluated: the last step whose evaluation counts.
        metrics: path of metrics.jsonl.
        tensorboard: folder for event files, None for none.
    """

    def __init__(
        self,
        seeds: tuple[int, ...],
        *,
        steps: int,
        step: int,
        evaluated: int,
        metrics: pathlib.Path,
        tensorboard: pathlib.Path | None,
    ):
        self._seeds, self._steps = seeds, steps
        self._metrics = Metrics(metrics, step, evaluated)
        self._events = None
        if tensorboard:
            # An evaluation at `step` that does not count is hidden, and with it the events of the
            # training call that ended there; those are added again.
            first = step + (evaluated == step)
            self._events = _open_events(tensorboard, first)
            for line in read_metrics(metrics):
                if line["step"] >= first and len(line["loss"]) == len(seeds):  # else damaged
                    self._add_events("train", line["step"], line["loss"], line["accuracy"])
        self._speed, self._calls, self._first_seconds = 0.0, 0, 0.0
        # Without a terminal there is no bar; the lines of `say` remain.
        self._bar = tqdm(total=steps, initial=step, unit="step", disable=None, dynamic_ncols=True)

    def say(self, text: str) -> None:
        """Prints a line beside the bar; a reader that has gone (`| tee`) ends no training."""
        with contextlib.suppress(BrokenPipeError):
            tqdm.write(text, file=sys.stderr)

    def trained(
        self, step: int, count: int, metrics: CallMetrics, examples: int, seconds: float
    ) -> None:
        """Notes a call of `count` steps up to `step`: `examples`, over all seeds, in `seconds`."""
        self._speed = speed = examples / seconds
        alive = metrics.diverged_step < 0
        loss, accuracy = (_known(values, alive) for values in metrics[:2])
        self._write("train", step, loss, accuracy, examples_per_second=speed)
        self._bar.set_postfix(
            loss=_join(loss, ".3f"), acc=_join(accuracy, ".3f"), ex_s=f"{speed:.0f}"
        )
        self._bar.update(count)
        self._tell_pace(step, count, seconds)

    def evaluated(
        self, step: int, split: str, evaluation: Evaluation, alive: Iterable[bool]
    ) -> None:
        """Notes an evaluation after `step` of the seeds that are `alive`."""
        accuracy, loss = (_known(values, alive) for values in evaluation[:2])
        self._write(split, step, loss, accuracy)
        left = self._bar.format_dict
        remaining = ""
        if left["rate"]:
            remaining = f", {tqdm.format_interval((self._steps - step) / left['rate'])} left"
        self.say(
            f"step {step}/{self._steps}: {split} accuracy {_join(accuracy, '.4f')}, "
            f"loss {_join(loss, '.4f')}, {self._speed:.0f} examples/s{remaining}"
        )

    def _tell_pace(self, step: int, count: int, seconds: float) -> None:
        """Once, after the second call: the first one compiles."""
        self._calls += 1
        if self._calls == 1:
            self._first_seconds = seconds
        if self._calls == 2:
            left = tqdm.format_interval((self._steps - step) * seconds / count)
            self.say(
                f"first call after {self._first_seconds:.0f} s, most of it compilation; now "
                f"{count / seconds:.3g} steps/s: {left} left, evaluations aside"
            )

    def close(self) -> None:
        """Ends bar and files."""
        self._bar.close()
        self._metrics.close()
        if self._events:
            self._events.close()

    def _write(self, name: str, step: int, loss: _Known, accuracy: _Known, **more: float) -> None:
        kind = {"kind": "train"} if name == "train" else {"kind": "eval", "split": name}
        self._metrics.write(
            **kind,
            step=step,
            seeds=list(self._seeds),
            loss=loss,
            accuracy=accuracy,
            **more,
        )
        if self._events:
            self._add_events(name, step, loss, accuracy)

    def _add_events(self, name: str, step: int, loss: _Known, accuracy: _Known) -> None:
        for metric, values in (("loss", loss), ("accuracy", accuracy)):
            for seed, value in zip(self._seeds, values, strict=True):
                if value is not None:
                    self._events.add_scalar(f"{name}/{metric}/seed_{seed}", value, step)


class Silence:
    """A reporter that reports nothing: of the hosts of a run only one does."""

    def say(self, *_: object) -> None:
        """Does nothing."""

    trained = evaluated = close = say


def describe_start(
    config: config_dict.ConfigDict, device: str, params: int, step: int, workdir: pathlib.Path
) -> str:
    """What is going to be trained, in one line: without a terminal the next may take minutes.

    Args:
        config: of the run.
        device: or devices.
        params: trained numbers of one seed.
        step: that the run begins or goes on at.
        workdir: of the run.
    """
    model = f"{config.task} {config.model.attention.name}"
    seeds = f"seed{'s' * (len(config.seeds) > 1)} {' '.join(map(str, config.seeds))}"
    steps = f"from step {step:,} " * (step > 0) + f"to step {config.train.steps:,}"
    return f"{model}, {params:,} parameters, {seeds}, {steps}, on {device}, in {workdir}; compiling"


def describe(row: Row) -> str:
    """A finished seed in one line."""
    if row.status != "ok":
        return f"seed {row.seed}: {row.status} at step {row.diverged_step}"
    return (
        f"seed {row.seed}: test accuracy {row.test_accuracy:.4f} with the parameters of step "
        f"{row.best_step} (validation {row.val_accuracy:.4f}), "
        f"{row.test_accuracy_last:.4f} with the last"
    )


def _open_events(folder: pathlib.Path, first: int):
    """A writer of TensorBoard events; those of earlier starts from step `first` on are hidden."""
    import tensorboardX

    return tensorboardX.SummaryWriter(logdir=str(folder), purge_step=first)


def check_events() -> None:
    """Raises UserError where tensorboardX is not installed."""
    if importlib.util.find_spec("tensorboardX") is None:
        raise UserError("--tensorboard needs tensorboardX: pip install tensorboardX")


def _join(values: _Known, form: str) -> str:
    return " ".join("diverged" if value is None else format(value, form) for value in values)


def _known(values: np.ndarray, alive: Iterable[bool]) -> _Known:
    """Plain numbers for JSON, which has no NaN, of the seeds that have not diverged."""
    return [
        float(value) if going_on and np.isfinite(value) else None
        for value, going_on in zip(values, alive, strict=True)
    ]
