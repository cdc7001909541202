"""Search for the largest batch of `benchmarks.train_step` that fits, by doubling."""

from collections.abc import Callable, Iterator
from typing import Any

Answer = dict[str, Any]

HEADER = "| task | attention | seeds | batch | examples/s | needs MB |\n|---|---|---|---|---|---|"


def doubled(
    ask: Callable[[int], Answer], first: int, most: int, max_seconds: float
) -> Iterator[Answer]:
    """Try batches of `first` examples, twice as many, and so on; yield the answers.

    Ends after the first batch that does not fit or whose step takes too long. (A CPU accumulates
    gradients over parts of a batch, so almost any batch fits there.)

    Args:
        ask: Tries a batch; the answer has `fits` and, if that is true, `seconds_per_step`.
        first: Size of the first batch.
        most: Size of the largest batch to try: the number of training examples.
        max_seconds: Seconds of a step above which no larger batch is tried.
    """
    batch, proceed = first, True
    while proceed:
        answer = ask(batch)
        yield answer
        batch *= 2
        quick = answer["fits"] and answer["seconds_per_step"] <= max_seconds
        proceed = quick and batch <= most


def line(answer: Answer) -> str:
    """Format an answer as a row of the table under `HEADER`."""
    case = " | ".join(str(answer[name]) for name in ("task", "attention", "seeds", "batch"))
    if not answer["fits"]:
        return f"| {case} | {_outcome(answer)}: {answer['why']} |"
    return f"| {case} | {answer['examples_per_second']:.4g} | {answer['needed_mb']:,.0f} |"


def _outcome(answer: Answer) -> str:
    """Describe an answer without success; a crash for other reasons says nothing about memory."""
    return "failed" if answer.get("crashed") else "does not fit"


def verdict(answers: list[Answer], max_seconds: float) -> str:
    """Summarise the answers for one case in a sentence."""
    last, fitting = answers[-1], [answer for answer in answers if answer["fits"]]
    title = f"{last['task']}, {last['attention']}, seeds in a program: {last['seeds']}"
    if not fitting:
        why = f"a batch of {last['batch']} {_outcome(last)}: {last['why']}"
        advice = "" if last.get("crashed") else "; try a smaller --batch"
        return f"{title}: {why}{advice}"
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
