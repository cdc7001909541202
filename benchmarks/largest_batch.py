"""The largest batch of `benchmarks.train_step` that fits: doubled until one does not."""

from collections.abc import Callable, Iterator
from typing import Any

Answer = dict[str, Any]

HEADER = "| task | attention | seeds | batch | examples/s | needs MB |\n|---|---|---|---|---|---|"


def doubled(
    ask: Callable[[int], Answer], first: int, most: int, max_seconds: float
) -> Iterator[Answer]:
    """The answers for a batch of `first`, twice as many, and so on.

    Ends after the first batch that does not fit or whose step takes too long. (A CPU takes a batch
    in parts, so almost any batch fits there.)

    Args:
        ask: tries a batch; the answer has `fits`, and if it is true `seconds_per_step`.
        first: batch.
        most: number of training examples.
        max_seconds: of a step.
    """
    batch, goes_on = first, True
    while goes_on:
        answer = ask(batch)
        yield answer
        batch *= 2
        quick = answer["fits"] and answer["seconds_per_step"] <= max_seconds
        goes_on = quick and batch <= most


def line(answer: Answer) -> str:
    """A line of the table."""
    case = " | ".join(str(answer[name]) for name in ("task", "attention", "seeds", "batch"))
    if not answer["fits"]:
        return f"| {case} | {_outcome(answer)}: {answer['why']} |"
    return f"| {case} | {answer['examples_per_second']:.4g} | {answer['needed_mb']:,.0f} |"


def _outcome(answer: Answer) -> str:
    """In words; a process that crashed without lacking memory tells nothing of what fits."""
    return "failed" if answer.get("crashed") else "does not fit"


def verdict(answers: list[Answer], max_seconds: float) -> str:
    """The answers for one case in a sentence."""
    last, fitting = answers[-1], [answer for answer in answers if answer["fits"]]
    title = f"{last['task']}, {last['attention']}, seeds in a program: {last['seeds']}"
    if not fitting:
        why = f"a batch of {last['batch']} {_outcome(last)}: {last['why']}"
        return f"{title}: {why}" + "; try a smaller --batch" * (not last.get("crashed"))
    best = fitting[-1]
    if not last["fits"]:
        end = f"{last['batch']} {_outcome(last)}: {last['why']}"
    elif last["seconds_per_step"] > max_seconds:
        end = f"its steps take more than {max_seconds:g} s, so larger ones were not tried"
    else:
        end = "twice as many would exceed the training set"
    return (
        f"{title}: a batch of {best['batch']} fits, {best['examples_per_second']:.4g} examples/s; "
        f"{end}"
    )
