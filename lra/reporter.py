"""Progress reports of a run: a bar or lines on stderr, metrics.jsonl, TensorBoard."""

import contextlib
import pathlib
import sys
from collections.abc import Iterable

import numpy as np
from ml_collections import config_dict
from tqdm import tqdm

from lra.evaluation_run import Evaluation
from lra.events import Events
from lra.metrics import Metrics, read_metrics
from lra.programs import CallMetrics
from lra.row import LRA_DATA, Row

_Values = list[float | None]  # one value per seed, None for seeds that have diverged


class Reporter:
    """Reports each training call and evaluation to the terminal and to files.

    Diverged seeds are not reported, although their frozen parameters still give numbers.

    Args:
        seeds: Seeds of the run.
        steps: Total number of training steps.
        step: Number of steps already made; later lines of metrics.jsonl are removed and later
            TensorBoard events hidden.
        evaluated: Step of the latest evaluation that is kept.
        metrics: Path of metrics.jsonl.
        tensorboard: Folder for TensorBoard event files; None for none.
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
            # Hiding an evaluation at `step` that is not kept also hides the events of the training
            # call that ended there, so they are added again.
            first = step + (evaluated == step)
            self._events = Events(tensorboard, first)
            for line in read_metrics(metrics):
                if line["step"] >= first and len(line["loss"]) == len(seeds):  # else damaged
                    self._add_events("train", line["step"], line["loss"], line["accuracy"])
        self._speed, self._calls, self._first_seconds = 0.0, 0, 0.0
        # Without a terminal there is no bar; the lines of `say` remain.
        self._bar = tqdm(total=steps, initial=step, unit="step", disable=None, dynamic_ncols=True)

    def say(self, text: str) -> None:
        """Print a line above the bar; a closed pipe or a full disk does not end the training."""
        with contextlib.suppress(OSError):
            tqdm.write(text, file=sys.stderr)

    def trained(
        self, step: int, count: int, metrics: CallMetrics, examples: int, seconds: float
    ) -> None:
        """Report a call of `count` steps up to `step`: `examples`, over all seeds, in `seconds`."""
        self._speed = speed = examples / seconds
        alive = metrics.diverged_step < 0
        loss = _values_of_alive(metrics.loss, alive)
        accuracy = _values_of_alive(metrics.accuracy, alive)
        self._write("train", step, loss, accuracy, examples_per_second=speed)
        self._bar.set_postfix(
            loss=_join(loss, ".3f"), acc=_join(accuracy, ".3f"), ex_s=f"{speed:.0f}"
        )
        self._bar.update(count)
        self._say_pace_once(step, count, seconds)

    def evaluated(self, step: int, evaluation: Evaluation, alive: Iterable[bool]) -> None:
        """Report a validation after `step`, of the seeds that are `alive`."""
        loss = _values_of_alive(evaluation.loss, alive)
        accuracy = _values_of_alive(evaluation.accuracy, alive)
        self._write("validation", step, loss, accuracy)
        rate = self._bar.format_dict["rate"]
        remaining = ""
        if rate:
            remaining = f", {tqdm.format_interval((self._steps - step) / rate)} left"
        self.say(
            f"step {step}/{self._steps}: validation accuracy {_join(accuracy, '.4f')}, "
            f"loss {_join(loss, '.4f')}, {self._speed:.0f} examples/s{remaining}"
        )

    def _say_pace_once(self, step: int, count: int, seconds: float) -> None:
        """Print speed and remaining time after the second call, since the first one compiles."""
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
        """Close the bar and all files."""
        with contextlib.ExitStack() as stack:  # an error of one does not keep another open
            if self._events:
                stack.callback(self._events.close)
            stack.callback(self._metrics.close)
            stack.callback(self._bar.close)

    def _write(self, name: str, step: int, loss: _Values, accuracy: _Values, **more: float) -> None:
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

    def _add_events(self, name: str, step: int, loss: _Values, accuracy: _Values) -> None:
        for metric, values in (("loss", loss), ("accuracy", accuracy)):
            for seed, value in zip(self._seeds, values, strict=True):
                if value is not None:
                    self._events.add(f"{name}/{metric}/seed_{seed}", value, step)
        self._events.flush()


class NullReporter:
    """A reporter that does nothing, for all hosts of a run but the one that reports."""

    def say(self, *_: object) -> None:
        """Do nothing."""

    trained = evaluated = close = say


def describe_start(
    config: config_dict.ConfigDict,
    data: str,
    device: str,
    params: int,
    step: int,
    workdir: pathlib.Path,
) -> str:
    """Describe in one line what is going to be trained; the next line may take minutes.

    Args:
        config: Config of the run.
        data: Data mark (`lra.row.Row.data`).
        device: Name of the device or devices.
        params: Number of trained parameters per seed.
        step: Step that the run starts or continues at.
        workdir: Folder of the run.
    """
    model = f"{config.task} {config.model.attention.name}"
    source = f"data {data}" if data in LRA_DATA else f"data {data}: not LRA's"
    noun = "seeds" if len(config.seeds) > 1 else "seed"
    seeds = f"{noun} {' '.join(map(str, config.seeds))}"
    start = f"from step {step:,} " if step > 0 else ""
    steps = f"{start}to step {config.train.steps:,}"
    what = f"{model}, {source}, {params:,} parameters, {seeds}, {steps}"
    return f"{what}, in {config.dtype} on {device}, in {workdir}; compiling"


def describe(row: Row) -> str:
    """Describe the result of one seed in one line."""
    if row.status != "ok":
        return f"seed {row.seed}: {row.status} at step {row.diverged_step}"
    return (
        f"seed {row.seed}: test accuracy {row.test_accuracy:.4f} with the parameters of step "
        f"{row.best_step} (validation {row.val_accuracy:.4f}), "
        f"{row.test_accuracy_last:.4f} with the last"
    )


def _join(values: _Values, form: str) -> str:
    return " ".join("diverged" if value is None else format(value, form) for value in values)


def _values_of_alive(values: np.ndarray, alive: Iterable[bool]) -> _Values:
    """Values of the seeds that have not diverged, as numbers for JSON, which has no NaN."""
    return [
        float(value) if is_alive and np.isfinite(value) else None
        for value, is_alive in zip(values, alive, strict=True)
    ]
