"""Which training steps were measured? Renders the rows of a folder as a page, TRAINING.md.

    python -m benchmarks.train_step --tasks=listops --out=results/training/train_step.jsonl
    python -m benchmarks.torch_train_step --out=results/training/torch_train_step.jsonl
    python -m benchmarks.training_page results/training

The page has a table for each device, precision, version of JAX and commit of the first file, the
newest first, and for each device, sizes and versions of the second. If a case has several rows, the
latest is shown. Either file may be missing.
"""

import pathlib
from collections.abc import Callable, Iterable, Iterator

from benchmarks import training_tables
from lra import training_rows
from lra.command_line import ArgumentParser, run
from lra.errors import UserError
from lra.files import write_atomically
from lra.report.formats import plain
from lra.report.provenance import short_commit
from lra.report.table import Table
from lra.training_rows import PeerRow, StepRow, StepValues

STEPS, PEERS, PAGE = "train_step.jsonl", "torch_train_step.jsonl", "TRAINING.md"


def main(argv: list[str]) -> int:
    """Write the page and print its path."""
    parser = ArgumentParser(prog="python -m benchmarks.training_page", description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, help=f"of {STEPS} and {PEERS}")
    folder = parser.parse_args(argv).folder
    text = page(folder)
    write_atomically(folder / PAGE, text)
    print(folder / PAGE)
    return 0


def page(folder: pathlib.Path) -> str:
    """Render the rows of a folder as a Markdown page.

    Raises:
        UserError: If both files are missing or empty, or a line is not a valid row.
    """
    steps, peers = _rows(folder / STEPS, StepRow), _rows(folder / PEERS, PeerRow)
    if not steps + peers:
        raise UserError(f"no rows in {folder / STEPS} or {folder / PEERS}; see --help")
    lines = ["# Training steps", "", _LEGEND, ""]
    for table in (*_step_tables(steps), *_peer_tables(peers)):
        lines += [f"## {table.title}", "", table.caption, "", plain(table)]
    failed = [*_failed(steps, "train_step"), *_failed(peers, "torch_train_step")]
    lines += [f"Could not be measured: {'; '.join(failed)}.", ""] if failed else []
    return "\n".join(lines)


def _failed(rows: Iterable[StepValues], benchmark: str) -> Iterator[str]:
    """Describe the cases of a benchmark that failed, and have no later row of success."""
    failures: dict[tuple, StepValues] = {}
    for row in rows:
        case = row["task"], row["attention"], row.get("seeds")
        conditions = row.get("batch"), row.get("dtype"), tuple(row.get("overrides", ()))
        if "failed" in row:
            failures[*case, *conditions] = row
        else:
            failures.pop((*case, *conditions), None)
            failures.pop((*case, None, None, ()), None)  # of older rows, without conditions
    for task, attention, seeds, batch, dtype, overrides in failures:
        words = [task, attention, *([f"{seeds} seeds"] if (seeds or 1) > 1 else [])]
        words += [f"batch {batch}"] if batch else []
        yield f"{', '.join([*words, *([dtype] if dtype else []), *overrides])} ({benchmark})"


_LEGEND = (
    f"Rendered by `python -m benchmarks.training_page` from {STEPS} and {PEERS} beside this page. "
    "[benchmarks/README.md](../../benchmarks/README.md#training) says what they are good for. "
    "Newest steps first: where a case is in several sections of a device, the first is of the "
    "latest code. "
    "≤ marks bounds: these rows count operations of padding too, unless it is cut before a step."
)


def _rows(path: pathlib.Path, kind: type) -> list[StepValues]:
    return training_rows.read(path, kind) if path.exists() else []


def _step_tables(rows: Iterable[StepValues]) -> Iterator[Table]:
    def conditions(row: StepValues) -> tuple:
        fields = ("num_devices", "dtype", "matmul_precision", "deterministic")
        return (*_provenance(row), *(row[name] for name in fields))

    def case(row: StepValues) -> tuple:
        fields = ("task", "attention", "seeds", "batch")
        return (*(row[name] for name in fields), *row.get("overrides", ()))

    for group in reversed(_groups(rows, conditions, case)):
        first = group[0]
        devices = f"{first['num_devices']} x " if first["num_devices"] > 1 else ""
        title = f"{devices}{first['device']}, {first['dtype']}"
        caption = (
            f"benchmarks.train_step, {_versions_text(first, 'jax')}, products in "
            f"{first['matmul_precision']}. Steps are of all seeds of a program together."
        )
        if beside := max(row.get("compiled_beside", 0) for row in group):
            caption += f" Compiled beside up to {beside} other cases, timed alone."
        lines = [training_tables.step_cells(row) for row in group]
        notes = [f"{line}." for line in training_tables.sums(group)]
        yield Table(title, caption, training_tables.STEP_TITLES, lines, notes, words=(0, 1, 4))


def _peer_tables(rows: Iterable[StepValues]) -> Iterator[Table]:
    def conditions(row: StepValues) -> tuple:
        sizes = (row[name] for name in ("task", "length", "batch", "threads"))
        return (*_provenance(row), *sizes, row.get("compiled", False), row["versions"].get("torch"))

    for group in _groups(rows, conditions, lambda row: (row["attention"],)):
        first = group[0]
        mode = "compiled" if first.get("compiled") else "eager"
        # Only some peers need transformers.
        versions = {row["versions"].get("transformers") for row in group} - {None}
        hugging_face = f", transformers {' and '.join(sorted(versions))}" if versions else ""
        title = f"{first['device']}, against {mode} PyTorch, {first['task']}"
        caption = (
            f"benchmarks.torch_train_step, {_versions_text(first, 'jax', 'torch')}{hugging_face}; "
            f"batch {first['batch']}, all examples {first['length']:,} long, "
            f"{first['threads']} threads, float32. "
            "Medians of turns; ratio: PyTorch's time over ours."
        )
        lines = [training_tables.peer_cells(row) for row in group]
        notes = [f"{line}." for line in training_tables.means(group)]
        yield Table(title, caption, training_tables.PEER_TITLES, lines, notes)


def _provenance(row: StepValues) -> tuple:
    return row["device"], row["commit"], row["versions"].get("jax")


def _versions_text(row: StepValues, *packages: str) -> str:
    known = [f"{name} {row['versions'][name]}" for name in packages if name in row["versions"]]
    return f"commit {short_commit(row['commit'])}, {', '.join(known)}"


def _groups(
    rows: Iterable[StepValues],
    conditions: Callable[[StepValues], tuple],
    case: Callable[[StepValues], tuple],
) -> list[list[StepValues]]:
    """Group successful rows by their conditions; of several rows of a case, keep the latest."""
    groups: dict[tuple, dict[tuple, StepValues]] = {}
    for row in rows:
        if "failed" not in row:
            groups.setdefault(conditions(row), {})[case(row)] = row
    return [list(by_case.values()) for by_case in groups.values()]


if __name__ == "__main__":
    run(main)
