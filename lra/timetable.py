"""After which steps a run evaluates and redraws: no call crosses them."""

from ml_collections import config_dict


class Timetable:
    """A function of the configuration alone.

    Args:
        config: of the run.
    """

    def __init__(self, config: config_dict.ConfigDict):
        attention = config.model.attention
        self._steps, self._eval_every = config.train.steps, config.train.eval_every
        self._redraw_every = attention.redraw_steps if "redraw_steps" in attention else 0

    def evaluates(self, step: int) -> bool:
        """Whether there is an evaluation after `step` steps; always after the last."""
        return step > 0 and (step % self._eval_every == 0 or step == self._steps)

    def redraws(self, step: int) -> bool:
        """Whether the step after `step` steps begins with new untrained arrays."""
        return self._redraw_every > 0 and 0 < step < self._steps and step % self._redraw_every == 0

    def next_stop(self, step: int) -> int:
        """How many steps are made when the next evaluation or redraw is due."""
        everies = [every for every in (self._eval_every, self._redraw_every) if every]
        return min(self._steps, *((step // every + 1) * every for every in everies))
