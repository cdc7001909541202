"""How much time and memory does each attention need at each length, compared with its peers?

    python -m benchmarks.speed_memory --table=nystromformer_1      Table 1 of arXiv 2102.03902
    python -m benchmarks.speed_memory --table=linformer_3          Table 3 of arXiv 2006.04768
    python -m benchmarks.speed_memory --table=linformer_figure_2   its Figure 2, fixed tokens
    python -m benchmarks.speed_memory --table=lra_2                Table 2 of arXiv 2011.04006
    python -m benchmarks.speed_memory --peers --threads=1 --lengths=512,1024,2048 --dry_run

A table sets flags, each of which may be overridden. Rows are appended to --results for
`python -m lra.report`. `module` is a whole attention module, projections included; `fixed_tokens`
is the same with batch = tokens / length; `model` is a training step of the two-layer encoder on
Text.

Time is the median of repeated blocking calls after a warm-up. The contenders take turns, each in
its own process: compare only rows of one run. A method is `NAME:OPTION=VALUE:...`; --peers adds
the third-party implementations of the same methods that are installed, with the same options.

Memory counts parameters, inputs, outputs and temporary values. For our methods it is from XLA's
analysis of the compiled program; for peers, from the device's statistics or, on a CPU, from the
growth of the process. The latter is recorded for our methods too: on a busy machine it may fall
short, but if it is larger by more than a quarter it is shown, since products may allocate memory
of which XLA's analysis does not know.

--batch=fill takes for each contender the largest power of two that fits in --memory_limit_gb (off
the CPU in half of it, since others may occupy the rest) and whose call takes about --fill_seconds.
The largest batch that fits in all of it is recorded too, from the memory of one more example.

A case that would exceed --max_seconds, warm-up and repeats together, is not run but marked as
extrapolated. Its time is taken to grow from the longest measured length on as the flops or, where
these are not known, by a power law fitted to shorter lengths (at least quadratic for exact
attention, linear for the others). A case that takes more than the memory, or would by its estimate,
is recorded as out of memory, with that figure.
"""

import argparse
import dataclasses
import pathlib
import secrets

from benchmarks.cases import (
    OURS,
    Case,
    Contender,
    parse_methods,
    peers_of,
    version_of,
)
from benchmarks.plan import ALL_METHODS, FILL, LENGTHS, TABLES, cases_of, settle
from benchmarks.schedule import Limits, Schedule
from benchmarks.worker import (
    Contending,
    Worker,
    WorkerError,
    check_threads,
    environment_for,
)
from lra import efficiency, records
from lra.command_line import ArgumentParser, run
from lra.errors import UserError
from lra.setting_values import MATMUL_PRECISIONS


def main(argv: list[str]) -> int:
    """Measure every case with every contender and append the rows."""
    options = _parser().parse_args(argv)
    flags = settle(options)
    contenders, skipped = _contenders(options, flags)
    cases = cases_of(flags)
    for line in skipped:
        print(line)
    if options.dry_run:
        for case in cases:
            print(_describe(case), "·", ", ".join(c.label for c in contenders))
        print(f"cases: {len(cases)}, contenders: {len(contenders)}, nothing was run")
        return 0
    check_threads(options.threads)
    records.check_writable(options.results)
    efficiency.append(options.results, [])  # rejects a malformed file before anything is measured
    workers: dict[str, Worker] = {}
    try:
        machine = _start_workers(workers, contenders, options)
        _check_lengths(workers, cases)
        schedule = _schedule(workers, contenders, options, flags["dtypes"], machine)
        for case in cases:
            print(_describe(case), flush=True)
            rows = schedule.rows(contenders, case)
            efficiency.append(options.results, rows)
            for row in rows:
                print(_line(row), flush=True)
    finally:
        for worker in workers.values():
            worker.close()
    return 0


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m benchmarks.speed_memory", description=__doc__)
    add = parser.add_argument
    add("--table", choices=tuple(TABLES), help="a published table: sets the flags it needs")
    add("--benchmark", choices=efficiency.BENCHMARKS, help="what is measured (module)")
    add("--methods", help=f"comma-separated ({ALL_METHODS})")
    add("--peers", nargs="?", const="all", help="beside others' code: all, or distributions a,b")
    add("--lengths", help=f"positions ({LENGTHS})")
    add("--modes", help="forward, forward_backward (both)")
    add("--dtypes", help="float32, bfloat16 (both)")
    add("--widths", help="WIDTHxHEADS (64x2,768x12)")
    add("--batch", help="sequences: numbers and `fill`, which includes 1 (1,fill)")
    add("--tokens", type=int, help="of fixed_tokens (65536)")
    add("--threads", type=int, help="CPU threads of every framework (all)")
    add("--matmul_precision", choices=MATMUL_PRECISIONS, default="float32")
    add("--repeats", type=int, default=5, help="turns; short calls five times each (%(default)s)")
    add("--max_seconds", type=float, default=60, help="of one contender's case (%(default)s)")
    add("--fill_seconds", type=float, default=1, help="of a call with batch fill (%(default)s)")
    add("--memory_limit_gb", type=float, help="10^9 bytes that count as fitting (the device's)")
    rows = pathlib.Path("results/efficiency.jsonl")
    add("--results", type=pathlib.Path, default=rows, help="appends rows there (%(default)s)")
    add("--dry_run", action="store_true", help="list the cases and stop")
    return parser


def _contenders(options, flags: dict) -> tuple[list[Contender], list[str]]:
    ours = parse_methods(flags["methods"])
    if options.peers is None:
        return ours, []
    if flags["benchmark"] == "model":
        raise UserError("--peers are attention modules: --benchmark=module or fixed_tokens")
    peers, skipped = peers_of(ours, options.peers)
    return ours + peers, skipped


def _start_workers(workers: dict[str, Worker], contenders: list[Contender], options) -> dict:
    """Add a worker for each contender; return the answer of the first to `Contending.hello`.

    The first contender is ours; the others must run on its platform.
    """
    from models.attention import options_of

    machine: dict = {}
    for contender in contenders:
        if contender.source != OURS:
            all_options = options_of(contender.method) | contender.options
            contender = dataclasses.replace(contender, options=all_options)
        settings = (options.threads, options.matmul_precision, machine.get("platform"))
        environment = environment_for(options.threads)
        worker = Worker(Contending, contender, *settings, environment=environment)
        workers[contender.label] = worker
        machine = machine or _ask_first(worker, "hello")
    return machine


def _ask_first(worker: Worker, command: str, **arguments) -> dict:
    """Return the answer of the first contender, without which nothing can be measured."""
    try:
        return worker.ask(command, **arguments)
    except WorkerError as error:
        raise UserError(f"nothing can be measured: {error}") from None


def _check_lengths(workers: dict[str, Worker], cases: list[Case]) -> None:
    """Raise UserError for a length that no method supports, before anything is measured."""
    first_cases = {case.length: case for case in reversed(cases)}
    for length, case in sorted(first_cases.items()):
        reasons = []
        for label, worker in workers.items():
            try:
                worker.ask("check", case=case)
                break
            except WorkerError as error:
                reasons.append(f"{label}: {error}")
        else:
            raise UserError(f"no method supports length {length}: {'; '.join(reasons)}")


def _schedule(
    workers: dict[str, Worker],
    contenders: list[Contender],
    options: argparse.Namespace,
    dtypes: list[str],
    machine: dict,
) -> Schedule:
    """Return the schedule of the run; measure peak rates, and print them with device and memory."""
    first = workers[contenders[0].label]
    ceilings = {dtype: _ask_first(first, "ceilings", dtype=dtype) for dtype in dtypes}
    first.close()  # frees its large arrays
    memory = machine["device_bytes"] or machine["available_bytes"]
    if options.memory_limit_gb:
        memory = int(options.memory_limit_gb * 1e9)
    limits = Limits(options.repeats, options.max_seconds, options.fill_seconds, memory)
    sources = {c.source for c in contenders} | {c.framework for c in contenders}
    versions = machine["versions"] | {s: version_of(s) for s in sorted(sources - {OURS})}
    facts = {
        "device": machine["device"],
        "run": secrets.token_hex(4),
        "threads": options.threads,
        "matmul_precision": options.matmul_precision,
        "versions": versions,
        "commit": machine["commit"],
    }
    print(f"run {facts['run']} on {facts['device']}, memory {memory / 1e9:.1f} GB")
    for dtype, c in ceilings.items():
        flops, moved = c["flops_per_second"] / 1e9, c["bytes_per_second"] / 1e9
        print(f"{dtype}: at most {flops:,.0f} GFLOP/s, {moved:,.1f} GB/s")
    return Schedule(workers, limits, facts, ceilings, machine["platform"])


def _describe(case: Case) -> str:
    batch = FILL if case.filled else case.batch
    return (
        f"{case.benchmark} {case.mode}, length {case.length:,}, batch {batch}, "
        f"width {case.dim}, {case.heads} heads, {case.dtype}"
    )


def _line(row: efficiency.CostRow) -> str:
    def format_number(value, template):
        return "-" if value is None else template.format(value)

    milliseconds = None if row.seconds is None else row.seconds * 1e3
    return (
        f"  {row.label:<32}{format_number(milliseconds, '{:,.2f} ms'):>14}"
        f"{format_number(row.peak_memory_mb, '{:,.1f} MB'):>14}"
        f"{f'batch {row.batch}' if row.filled else '':>12}"
        f"  {'' if row.status == 'ok' else row.status}{f' ({row.note})' if row.note else ''}"
    )


if __name__ == "__main__":
    run(main, out_of_memory="shorter --lengths or a smaller --batch need less")
