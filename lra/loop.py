"""Training loop: calls, evaluations, checkpoints, and rows at the end.

A run is a pure function of its configuration and data: where and how often it was stopped, and how
many steps were made in a call, do not affect its parameters and accuracies.
"""

import contextlib
import os
import time

import numpy as np
from flax import nnx
from ml_collections import config_dict

from lra import ahead, environment, hosts, nans, sharding
from lra.data import prepared as prepared_data
from lra.errors import UserError
from lra.evaluation_run import Evaluation
from lra.events import check_events
from lra.pace import MAX_STEPS_PER_CALL, Pace, Timetable
from lra.protocol import protocol_of
from lra.records import write_once
from lra.reporter import NullReporter, Reporter, describe, describe_start
from lra.results import STATUS_ALL_DIVERGED, make_rows, status_of_complete
from lra.saving import Saver
from lra.settings import flatten
from lra.state import TrainState, still_training
from lra.stopping import STATUS_STOPPED, Stop, Stopped
from lra.trainer import Trainer
from lra.warm_start import initial_state
from lra.workdir import Workdir


def train(
    config: config_dict.ConfigDict,
    workdir: str | os.PathLike,
    data_dir: str | os.PathLike,
    *,
    stop: Stop | None = None,
    tensorboard: bool = False,
    debug_nans: bool = False,
) -> int:
    """Train all seeds of `config` to the end, or until a stop is requested.

    Args:
        config: Validated config of the run.
        workdir: Folder of the run; an interrupted run in it is resumed.
        data_dir: Folder of the prepared data.
        stop: Object that is asked between calls whether to stop; None to train to the end.
        tensorboard: Whether to also write event files to `<workdir>/tensorboard`.
        debug_nans: Whether to end at the first NaN and name its step and operation; slow.

    Returns:
        The exit status: 0, `STATUS_STOPPED`, `STATUS_ALL_DIVERGED`, or `nans.STATUS_NAN`.

    Raises:
        UserError: If the data are missing or damaged, the configuration does not fit them, or the
            workdir cannot be used.
    """
    stop = stop or Stop()
    if tensorboard:
        hosts.on_every(check_events)
    hosts.on_every(lambda: nans.check(debug_nans))
    folder = Workdir(workdir)
    hosts.on_main(folder.check_free)
    protocol_of(config)  # needed for the rows: raises now if the config file alone is not valid
    prepared = hosts.on_every(lambda: prepared_data.load(data_dir, config.task))
    hosts.check_equal(
        flatten(config) | {"the data (sha256)": prepared.sha256} | environment.of_every_host()
    )
    # A call that may be repeated to find a NaN must not donate its arguments.
    trainer = hosts.on_every(lambda: Trainer(config, prepared, donate=not debug_nans))
    sharding.connect_groups(trainer.shardings)
    first = None
    if config.train.init_from and not hosts.on_main(folder.config.exists):
        first = initial_state(trainer)  # its errors are raised before anything is written
    data = {"data_dir": os.path.abspath(data_dir), "data": prepared.manifest["data"]}
    data |= {"data_sha256": prepared.sha256, "length": trainer.length}
    facts = data | environment.facts(trainer.num_devices)
    with (
        hosts.entered_on_main(folder.open_for(config, facts)),
        nans.watched(debug_nans),
        contextlib.closing(trainer.ahead),
    ):
        hosts.check_shared(folder.root)
        status = hosts.on_main(lambda: status_of_complete(folder, config, prepared))
        if status is not None:
            return status
        run = Run(
            trainer,
            prepared,
            folder,
            stop,
            first,
            tensorboard=tensorboard,
            debug_nans=debug_nans,
        )
        return run.to_the_end()


class Run:
    """A run in its folder: restores the latest checkpoint, then alternates training and evaluation.

    `first` is the state before the first step, if it has been made already; else None.
    """

    def __init__(
        self,
        trainer: Trainer,
        prepared: prepared_data.Prepared,
        folder: Workdir,
        stop: Stop,
        first: TrainState | None,
        *,
        tensorboard: bool,
        debug_nans: bool,
    ):
        self._trainer, self._prepared, self._folder, self._stop = trainer, prepared, folder, stop
        self._config, self._timetable = trainer.config, Timetable(trainer.config)
        self._saver = Saver(trainer, folder, stop.started)
        state = self._saver.restore()
        if state is None:
            state, self._alive = first, [True] * len(self._config.seeds)
        else:
            self._alive = still_training(trainer.fetch(state.diverged_step))
            if debug_nans and not all(self._alive):
                raise UserError(
                    f"--debug_nans: a seed in {folder.root} has diverged before, and what it gives "
                    "from there on is NaN; train it from the start in another workdir"
                )
        self._step = self._saver.progress.step
        will_train = self._step < self._config.train.steps and any(self._alive)
        if will_train and ahead.is_worthwhile() and not debug_nans:
            trainer.compile_ahead()
        self._state = initial_state(trainer) if state is None else state
        self._reporter = self._make_reporter(tensorboard) if hosts.is_main() else NullReporter()
        steps_per_call = 1 if debug_nans else self._config.train.steps_per_call
        self._pace = Pace(steps_per_call, MAX_STEPS_PER_CALL)

    def to_the_end(self) -> int:
        """Run until the last step or a stop, and return the exit status."""
        try:
            params = self._trainer.num_params(self._state)
            data = self._prepared.manifest["data"]
            device, root = environment.devices_name(self._trainer.num_devices), self._folder.root
            self._reporter.say(describe_start(self._config, data, device, params, self._step, root))
            if advice := environment.advice_on_format(self._config.dtype):
                self._reporter.say(advice)
            while not self._is_complete():
                self._evaluate_if_due()
                self._train_to_next_boundary()
            return self._finish()
        except Stopped:
            return self._interrupted()
        except FloatingPointError as error:
            self._reporter.say(f"error: step {self._step}: {nans.describe(error)}")
            return nans.STATUS_NAN
        finally:
            with contextlib.closing(self._saver):
                self._reporter.close()

    def _make_reporter(self, tensorboard: bool) -> Reporter:
        return Reporter(
            self._config.seeds,
            steps=self._config.train.steps,
            step=self._step,
            evaluated=self._saver.progress.evaluated,
            metrics=self._folder.metrics,
            tensorboard=self._folder.root / "tensorboard" if tensorboard else None,
        )

    def _is_complete(self) -> bool:
        step, evaluated = self._step, self._saver.progress.evaluated
        done = step == evaluated == self._config.train.steps
        return done or not any(self._alive)

    def _evaluate_if_due(self) -> None:
        """Evaluate on the validation set if the configuration asks for it after this step."""
        step = self._step
        if not self._timetable.evaluates(step) or self._saver.progress.evaluated == step:
            return
        name = f"validation-{step}"
        evaluation = self._evaluate(name, self._state.params, self._state.rest, "validation")
        if step == self._config.train.steps:
            self._state = self._trainer.check_end(self._state, evaluation.loss)
            self._note_divergence(self._trainer.fetch(self._state.diverged_step))
        self._state = self._trainer.update_best(self._state, evaluation.accuracy, step)
        self._saver.note_evaluation(step)
        self._reporter.evaluated(step, evaluation, self._alive)

    def _train_to_next_boundary(self) -> None:
        """Train up to the next evaluation or redraw."""
        end = self._timetable.next_boundary(self._step)
        if self._timetable.redraws(self._step):
            self._state = self._trainer.redraw(self._state, self._step)
        while self._step < end and any(self._alive):
            self._stop_unless_time_for(self._pace.call_seconds)
            self._train(hosts.least(self._pace.next(end - self._step)))
            self._saver.save_if_due(self._state, self._step, self._pace.call_seconds)

    def _train(self, count: int) -> None:
        """Make `count` steps in one call, wait for it, and record its time and metrics.

        Only one call is in flight at a time, since two could not be timed separately: on several
        hosts, and on GPUs, where the number of steps is not part of the program, dispatching one
        call may wait for another. The gap between calls is a few milliseconds; drawing the order of
        an epoch takes some 10 ms more.
        """
        self._saver.note_work()
        start, beside_compilation = time.monotonic(), self._trainer.ahead.is_compiling
        with nans.located(lambda: self._trainer.train(self._state, self._step, count)):
            self._state, metrics = self._trainer.train(self._state, self._step, count)
        self._step += count
        metrics = self._trainer.fetch(metrics)
        seconds = time.monotonic() - start
        examples = count * self._config.train.batch_size * len(self._config.seeds)
        if self._pace.measured(count, seconds) and not beside_compilation:
            self._saver.note_training(examples, seconds)
        self._reporter.trained(self._step, count, metrics, examples, seconds)
        self._note_divergence(metrics.diverged_step)

    def _note_divergence(self, diverged_step: np.ndarray) -> None:
        config = self._config
        for index, seed in enumerate(config.seeds):
            if self._alive[index] and diverged_step[index] >= 0:
                self._reporter.say(
                    f"seed {seed} diverged at step {diverged_step[index]} (loss, gradient or "
                    f"parameters not finite): {config.task}, {config.model.attention.name}, "
                    f"{protocol_of(config)}; it is frozen"
                )
        self._alive = still_training(diverged_step)

    def _evaluate(self, name: str, params: nnx.State, rest: nnx.State, split: str) -> Evaluation:
        def before_call(seconds: float) -> None:
            self._stop_unless_time_for(seconds)
            self._saver.note_work()
            self._saver.save_if_due(self._state, self._step, seconds)

        return self._saver.evaluations.evaluate(name, params, rest, split, before_call)

    def _stop_unless_time_for(self, seconds: float) -> None:
        """Raise Stopped if a stop was requested or no time is left for a call of `seconds`."""
        if hosts.any_of(self._stop.before(seconds)):
            raise Stopped

    def _interrupted(self) -> int:
        self._saver.save(self._state, self._step)
        reason = self._stop.reason or "as another host was told to"
        end = "saved, the same command goes on from here"
        if not self._saver.has_worked and self._stop.is_over_budget:
            end = "no time was left for a single call: give it more minutes"
        self._reporter.say(
            f"stopped at step {self._step} of {self._config.train.steps} ({reason}); {end}"
        )
        return STATUS_STOPPED

    def _finish(self) -> int:
        """Evaluate on the test set, save, and write the rows, in this order."""
        evaluations = []
        if any(self._alive):
            for name, source in (("test-best", self._state.best), ("test-last", self._state)):
                evaluations.append(self._evaluate(name, source.params, source.rest, "test"))
        self._saver.save(self._state, self._step)
        rows = make_rows(
            self._trainer,
            self._prepared,
            self._state,
            self._saver.progress_at(self._step),
            evaluations,
            hosts.on_main(self._folder.load_facts),
        )
        hosts.on_main(lambda: write_once(self._folder.rows, rows))
        self._saver.evaluations.forget()
        self._saver.evaluations.save()
        for row in rows:
            self._reporter.say(describe(row))
        return 0 if any(self._alive) else STATUS_ALL_DIVERGED
