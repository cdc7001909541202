"""Curves of few points: means over neighbouring steps, of each seed and over the seeds."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

# A training step, and the values of the seeds that have not diverged.
Entry = tuple[int, list[float]]
# The same after the number of steps that it covers; its step may be the middle of them.
_Span = tuple[int, float, list[float]]


class Curve(NamedTuple):
    """Mean over the seeds at some training steps, and the value of each seed there."""

    steps: list[float]
    mean: list[float]
    seeds: list[list[float]]

    def in_percent(self) -> "Curve":
        """Return a curve of shares with values in percent."""
        seeds = [[100 * value for value in values] for values in self.seeds]
        return Curve(self.steps, [100 * value for value in self.mean], seeds)


def curve(entries: list[Entry], most: int, *, spans: bool = False) -> Curve:
    """Merge entries into points that cover at least 1/`most` of the steps each.

    Entries are weighted by the number of steps since the previous one: an evaluation often cuts a
    call short, and the loss of few steps is mostly noise. If an entry is a mean over these steps
    (`spans`), it belongs to the middle of them. Each seed is averaged by itself; entries with
    different numbers of seeds are not merged.
    """
    steps = [step for step, _ in entries]
    lengths = [max(1, step - before) for before, step in itertools.pairwise([0, *steps])]
    known = [
        (length, step - spans * (length - 1) / 2, values)
        for length, (step, values) in zip(lengths, entries, strict=True)
        if values
    ]
    least = steps[-1] / most if steps else 0
    points = [
        _merge(part)
        for _, same_seeds in itertools.groupby(known, key=lambda entry: len(entry[2]))
        for part in _parts(list(same_seeds), least)
    ]
    return Curve(*([point[field] for point in points] for field in range(3)))


def _parts(entries: list[_Span], least: float) -> list[list[_Span]]:
    """Group neighbouring entries that cover `least` steps together; the rest joins the last."""
    parts: list[list[_Span]] = []
    part: list[_Span] = []
    for entry in entries:
        part.append(entry)
        if sum(length for length, _, _ in part) >= least:
            parts.append(part)
            part = []
    if parts:
        parts[-1] += part
    elif part:
        parts.append(part)
    return parts


def _merge(entries: list[_Span]) -> tuple[float, float, list[float]]:
    """Weighted mean of the steps; mean of the seeds' weighted means, and these."""
    lengths, steps, values = zip(*entries, strict=True)
    seeds = [_weighted_mean(lengths, column) for column in zip(*values, strict=True)]
    return _weighted_mean(lengths, steps), sum(seeds) / len(seeds), seeds


def _weighted_mean(weights: Sequence[int], values: Sequence[float]) -> float:
    total = sum(weights)
    return sum(weight / total * value for weight, value in zip(weights, values, strict=True))
