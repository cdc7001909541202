"""ListOps (LRA, arXiv 2011.04006, section 2.1): evaluate a nested expression, 10 classes.

    python -m lra.data.prepare listops                                  generated, as in LRA
    python -m lra.data.prepare listops --source=lra_release/listops-1000          LRA's own files
    python -m lra.data.prepare listops --min_length=16 --max_length=64 --train=8000

Expressions are stored as ids 1 to 15, including brackets: without them the value is ambiguous.
The ids are fixed, where those of LRA's reader follow the arbitrary order of a set.
Generated splits are consecutive parts of one sequence of distinct expressions. No hash of LRA's
files is published: `official` means that numbers and lengths are theirs, and no expression repeats.
"""

import argparse
import itertools
import pathlib
from collections.abc import Iterator
from typing import Any

from tqdm import tqdm

from lra.data import listops_tsv, official
from lra.data.listops_generator import MOST_TOKENS, Rules, expressions
from lra.data.listops_language import VOCABULARY as VOCABULARY  # for users of this module
from lra.data.listops_language import evaluate
from lra.data.prepared import SPLITS, Estimate
from lra.data.task_writer import TaskWriter
from lra.errors import UserError
from lra.tasks import TASKS

SOURCES = ("generate",)
OFFICIAL_COUNTS = TASKS["listops"].counts

# Measured on one core of a small virtual machine (benchmarks/listops_generation.py).
_TOKENS_PER_SECOND = 3e7
_TSV_BYTES_PER_SECOND = 5e7
_START_SECONDS = 2
_LRA_TOKENS = 1_040  # average per expression under LRA's rules, rounded up
_TSV_BYTES_PER_TOKEN = 5  # at least
_BYTES_PER_EXPRESSION = 12  # offset and label


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ListOps, with LRA's values as defaults."""
    rules, counts = Rules(), OFFICIAL_COUNTS
    for flag, value, meaning in (
        ("min_length", rules.min_length, "expressions are longer than this"),
        (
            "max_length",
            rules.max_length,
            "expressions are shorter (in files: not longer) than this",
        ),
        ("max_depth", rules.max_depth, "no operator lies at this depth, the root has depth 1"),
        ("max_args", rules.max_args, "most arguments of an operator"),
        ("train", counts["train"], "training expressions"),
        ("validation", counts["validation"], "validation expressions"),
        ("test", counts["test"], "test expressions"),
    ):
        parser.add_argument(
            f"--{flag}", type=int, default=value, metavar="N", help=f"{meaning} (%(default)s)"
        )


def estimate(options: argparse.Namespace) -> Estimate:
    """Estimate size and time.

    For rules other than LRA's, both are overestimated, since most expressions are short.

    Raises:
        UserError: Options are invalid or files are missing.
    """
    if _from_files(options):
        size = sum(path.stat().st_size for path in listops_tsv.locate(options.source).values())
        return Estimate(size // _TSV_BYTES_PER_TOKEN, _START_SECONDS + size / _TSV_BYTES_PER_SECOND)
    rules, counts = _rules(options), _counts(options)
    rules.check()
    total = sum(counts.values())
    mean_length = (rules.min_length + rules.max_length) // 2
    tokens = total * (_LRA_TOKENS if rules == Rules() else mean_length)
    return Estimate(
        tokens + total * _BYTES_PER_EXPRESSION, _START_SECONDS + tokens / _TOKENS_PER_SECOND
    )


def prepare(options: argparse.Namespace, writer: TaskWriter) -> dict[str, Any]:
    """Generate or read all splits and return the manifest.

    Raises:
        UserError: Options are invalid, there are too few distinct expressions, or a file is missing
            or malformed.
    """
    return _from_tsv(options, writer) if _from_files(options) else _generate(options, writer)


def generated_mark(options: argparse.Namespace) -> str:
    """Return the data mark of the generated expressions: `generated` if the flags are LRA's."""
    rules, counts = _rules(options), _counts(options)
    if (rules, counts) == (Rules(), OFFICIAL_COUNTS):
        return "generated"
    parts = [f"lengths {rules.min_length + 1} to {rules.max_length - 1}"]
    if rules.max_depth != Rules().max_depth:
        parts.append(f"depth {rules.max_depth}")
    if rules.max_args != Rules().max_args:
        parts.append(f"up to {rules.max_args} arguments")
    parts.append(" / ".join(f"{count:,}" for count in counts.values()))
    return f"differs ({', '.join(parts)})"


def generated_parameters(options: argparse.Namespace) -> dict[str, Any]:
    """Return the rules of the generated expressions, as in their manifest."""
    return _rules(options)._asdict()


def _generate(options: argparse.Namespace, writer: TaskWriter) -> dict[str, Any]:
    rules, counts = _rules(options), _counts(options)
    source = expressions(rules, options.seed, options.workers)
    with tqdm(total=sum(counts.values()), unit=" expressions", disable=None) as bar:
        for split, count in counts.items():
            subset = itertools.islice(source, count)
            writer.examples(split, ((tokens, evaluate(tokens)) for tokens in subset), bar)
    source.close()
    return writer.finish(
        data=generated_mark(options),
        source="lra.data.listops_generator",
        counts=counts,
        max_length=rules.max_length - 1,
        seed=options.seed,
        parameters=generated_parameters(options),
    )


def _from_tsv(options: argparse.Namespace, writer: TaskWriter) -> dict[str, Any]:
    paths, counts = listops_tsv.locate(options.source), {}
    lengths: set[int] = set()
    hashes: set[int] = set()

    def examples(path: pathlib.Path) -> Iterator[tuple[bytes, int]]:
        for tokens, label in listops_tsv.read(path, options.max_length):
            lengths.add(len(tokens))
            hashes.add(hash(tokens))
            yield tokens, label

    with tqdm(unit=" expressions", disable=None) as bar:
        for split, path in paths.items():
            counts[split] = writer.examples(split, examples(path), bar)
    are_distinct = len(hashes) == sum(counts.values())
    mark = _mark_of_files(counts, options.max_length, lengths, are_distinct=are_distinct)
    return writer.finish(
        data=mark,
        source=", ".join(listops_tsv.FILES.values()),
        counts=counts,
        max_length=options.max_length,
    )


def _mark_of_files(
    counts: dict[str, int], max_length: int, lengths: set[int], *, are_distinct: bool
) -> str:
    """Return the data mark; another `max_length` changes the positions and so every model.

    Files count as LRA's, of which no hash is published, if their numbers are, all `lengths` of
    expressions are within LRA's bounds, and all expressions are distinct. Files that another run of
    LRA's generator has written have these properties, too.
    """
    low, high = Rules().min_length, Rules().max_length
    follows_rules = are_distinct and low < min(lengths) and max(lengths) < high
    mark = official.compare(counts, OFFICIAL_COUNTS, "expressions", same_content=follows_rules)
    if max_length == high:
        return mark
    others = mark.removeprefix("differs (").removesuffix(")")
    return f"differs (max_length {max_length}{f', {others}' * (mark != others)})"


def _from_files(options: argparse.Namespace) -> bool:
    """Return whether `source` is a folder; raise UserError for flags that conflict with it."""
    if options.source in (None, *SOURCES):
        return False
    given = (_rules(options)._replace(max_length=Rules().max_length), _counts(options))
    if given != (Rules(), OFFICIAL_COUNTS):
        raise UserError(
            "of the flags of the generator only --max_length goes with files "
            f"(--source={options.source})"
        )
    if not 1 <= options.max_length <= MOST_TOKENS:
        raise UserError(f"--max_length={options.max_length} is not in 1 to {MOST_TOKENS:,}")
    return True


def _rules(options: argparse.Namespace) -> Rules:
    return Rules(*(getattr(options, name) for name in Rules._fields))


def _counts(options: argparse.Namespace) -> dict[str, int]:
    counts = {split: getattr(options, split) for split in SPLITS}
    for split, count in counts.items():
        if count < 1:
            raise UserError(f"--{split}={count}: every split needs an expression")
    return counts
