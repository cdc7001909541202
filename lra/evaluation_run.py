"""Evaluation of a split, in as many calls as the caller likes.

Every example counts exactly once. The code behind Table 3 of the Nyströmformer paper leaves out the
last, partly filled batch (16 of the 2,000 examples of ListOps) and goes over Pathfinder's
validation set four times.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx

from lra import arrays, hosts, sharding
from lra.pace import Pace
from lra.programs import Programs


class Evaluation(NamedTuple):
    """Results on one split.

    Attributes:
        accuracy: Fraction of correct answers, [seeds].
        loss: Mean loss in nats, [seeds].
        logits: Logits, [seeds, examples, classes].
    """

    accuracy: np.ndarray
    loss: np.ndarray
    logits: np.ndarray


class EvaluationRun:
    """An evaluation in progress.

    Args:
        programs: Compiled functions of the run.
        shardings: Shardings of the run's arrays.
        examples: Examples of the split, on the devices.
        params: Trained arrays, [seeds, ...].
        rest: Untrained arrays, [seeds, ...].
        order: Order in which examples are evaluated, int [examples].
        shape: Number of seeds, batch size, number of classes.
        call: Function that calls a program with its arguments.

    Attributes:
        logits: Logits on the devices, [seeds, batches, batch, classes], valid for the first `done`
            batches.
        done: Number of batches evaluated.
        order: Order of the examples, as given.
    """

    def __init__(
        self,
        programs: Programs,
        shardings: sharding.Shardings,
        examples: arrays.Examples,
        params: nnx.State,
        rest: nnx.State,
        *,
        order: np.ndarray,
        shape: tuple[int, int, int],
        call: Callable,
    ):
        self._programs, self._examples = programs, examples
        self._call = call
        self._params, self._rest = params, rest
        seeds, batch, classes = shape
        self.order, self._total = order, len(order)
        self._batches = -(-self._total // batch)
        # The last batch is filled up with copies of the last example.
        table = np.pad(order.astype(np.int32), (0, self._batches * batch - self._total), "edge")
        self._table = sharding.put(table.reshape(self._batches, batch), shardings.table)
        self._place, self._replicated = shardings.logits, shardings.replicated
        empty = np.zeros((seeds, self._batches, batch, classes), np.float32)
        self.logits = sharding.put(empty, self._place)
        self.done = 0

    def resume(self, logits: np.ndarray, done: int) -> None:
        """Continue from the logits of the first `done` batches for the same parameters."""
        self.logits, self.done = sharding.put(logits, self._place), done

    def to_the_end(
        self, pace: Pace, before_call: Callable[[float], None] = lambda seconds: None
    ) -> Evaluation:
        """Evaluate the remaining batches and return the result.

        Args:
            pace: Pace of earlier evaluations with the same program.
            before_call: Function of the expected seconds of a call, called before each call; it may
                raise to end the evaluation.
        """
        while self.done < self._batches:
            before_call(pace.call_seconds)
            count = hosts.least(pace.next(self._batches - self.done))
            start = time.monotonic()
            self.logits = self._call(self._programs.logits, *self.arguments(count))
            self.logits.block_until_ready()
            self.done += count
            pace.measured(count, time.monotonic() - start)
        scores = self._call(self._programs.scores, *self.score_arguments)
        correct, loss, logits = jax.device_get(jax.block_until_ready(scores))
        return Evaluation(correct / self._total, loss, logits)  # in float64

    def arguments(self, count: int) -> tuple[Any, ...]:
        """Arguments of the compiled evaluation call."""
        inputs = (self._params, self._rest, self._examples, self._table)
        start_count = (sharding.put_number(n, self._replicated) for n in (self.done, count))
        return self.logits, *inputs, *start_count

    @property
    def score_arguments(self) -> tuple[Any, ...]:
        """Arguments of the compiled scoring call."""
        return self.logits, self._examples.labels, self._table, self._total
