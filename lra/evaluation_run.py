"""An evaluation of a split, in as many calls as its caller likes.

Every example counts, once. The code behind Table 3 of the Nyströmformer paper leaves out the last,
partly filled batch (of ListOps 16 of 2,000 examples) and goes four times over Pathfinder's
validation set.
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
    """Of one split: `accuracy` and mean `loss` [seeds], `logits` [seeds, examples, classes]."""

    accuracy: np.ndarray
    loss: np.ndarray
    logits: np.ndarray


class EvaluationRun:
    """An evaluation in progress: taken `to_the_end`, or by hand: `advance` until
    `remaining` is 0, then `result`.

    Attributes:
        logits: [seeds, batches, batch, classes] on the devices, those of the first `done` batches.
        done: batches.
        order: of the examples, as given.

    Args:
        programs: of the run.
        shardings: where its arrays live.
        examples: the split, on the devices.
        params: trained arrays, per seed.
        rest: untrained arrays, per seed.
        order: in which examples are evaluated, int [examples].
        shape: number of seeds, size of a batch, number of classes.
        before_programs: called before each program.
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
        before_programs: Callable[[], None],
    ):
        self._programs, self._examples = programs, examples
        self._before_programs = before_programs
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

    @property
    def remaining(self) -> int:
        """Batches still to do."""
        return self._batches - self.done

    def resume(self, logits: np.ndarray, done: int) -> None:
        """Goes on from the first `done` batches of another run over the same parameters."""
        self.logits, self.done = sharding.put(logits, self._place), done

    def advance(self, count: int) -> None:
        """Evaluates the next `count` batches and waits for them."""
        self._before_programs()
        self.logits = sharding.call(self._programs.logits, *self.arguments(count))
        self.logits.block_until_ready()
        self.done += count

    def to_the_end(
        self, pace: Pace, before_call: Callable[[float], None] = lambda seconds: None
    ) -> Evaluation:
        """Evaluates what remains and returns the result.

        Args:
            pace: what earlier evaluations taught about the length of calls.
            before_call: told the expected seconds before each call; may raise to end it.
        """
        while self.remaining:
            before_call(pace.call_seconds)
            count = hosts.least(pace.next(self.remaining))
            begun = time.monotonic()
            self.advance(count)
            pace.measured(count, time.monotonic() - begun)
        return self.result()

    def arguments(self, count: int) -> tuple[Any, ...]:
        """What the compiled evaluation call takes."""
        fixed = (self._params, self._rest, self._examples, self._table)
        numbers = (sharding.put_number(number, self._replicated) for number in (self.done, count))
        return self.logits, *fixed, *numbers

    @property
    def score_arguments(self) -> tuple[Any, ...]:
        """What the compiled scoring call takes."""
        return self.logits, self._examples.labels, self._table, self._total

    def result(self) -> Evaluation:
        """Accuracy, loss and logits of every example."""
        self._before_programs()
        scores = sharding.call(self._programs.scores, *self.score_arguments)
        correct, loss, logits = jax.device_get(jax.block_until_ready(scores))
        return Evaluation(correct / self._total, loss, logits)  # in float64
