"""How much time and memory does each attention take, at which length, beside which peers?

    python -m benchmarks.speed_memory --table=nystromformer_1      Table 1 of arXiv 2102.03902
    python -m benchmarks.speed_memory --table=linformer_3          Table 3 of arXiv 2006.04768
    python -m benchmarks.speed_memory --table=linformer_figure_2   its Figure 2, fixed tokens
    python -m benchmarks.speed_memory --table=lra_2                Table 2 of arXiv 2011.04006
    python -m benchmarks.speed_memory --peers --threads=1 --lengths=512,1024,2048 --dry_run

A table sets flags, any of which may be given besides. Rows are appended to --results for
`python -m lra.report`. `module` is a whole attention module, projections included; `fixed_tokens`
the same with batch = tokens / length; `model` a training step of the two-layer encoder on Text.

Time is the median of repeats after a warm-up, waited for, the contenders taking turns, each in a
process of its own: compare rows of one run only. A method is `NAME:OPTION=VALUE:...`; --peers adds
what others publish for the same methods, with the same options, as far as it is installed.

Memory counts parameters, inputs, outputs and what is between: of ours XLA's analysis of the
compiled program, of peers the device's statistics or, on a CPU, the growth of the process. Rows of
ours have that as well: on a busy machine it may fall short, but where it is larger by more than a
quarter it is shown, since products may take memory of which XLA's analysis does not know.

--batch=fill takes for each contender the largest power of two that fits in --memory_limit_gb (off
the CPU in half of it, since others may hold the rest) and whose call takes about --fill_seconds;
the largest batch that fits in all of it is recorded too, from what one example more needs.

What would exceed --max_seconds, warm-up and repeats together, by the power law fitted to shorter
lengths (at least quadratic for exact attention, linear for the others), is not run but marked as
extrapolated; what would exceed the memory is recorded as out of memory, with the estimate.
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
    """Measures every case with every contender and appends rows."""
    options = _parser().parse_args(argv)
    flags = settle(options)
    contenders, skipped = _contenders(options, flags)
    cases = cases_of(flags, options.tokens)
    for line in skipped:
        print(line)
    if options.dry_run:
        for case in cases:
            print(_describe(case), "·", ", ".join(c.label for c in contenders))
        print(f"cases: {len(cases)}, contenders: {len(contenders)}, nothing was run")
        return 0
    check_threads(options.threads)
    records.check_writable(options.results)
    efficiency.append(options.results, [])  # reads what is there: said before anything is measured
    workers: dict[str, Worker] = {}
    try:
        told = _meet(workers, contenders, options)
        _check_lengths(workers, cases)
        schedule = _schedule(workers, contenders, options, flags["dtypes"], told)
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
    add("--tokens", type=int, default=65_536, help="of fixed_tokens (%(default)s)")
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


def _meet(workers: dict[str, Worker], contenders: list[Contender], options) -> dict:
    """Adds the workers; returns where the first, which is ours, runs: so must all others."""
    from models.attention import options_of

    told: dict = {}
    for contender in contenders:
        if contender.source != OURS:
            every = options_of(contender.method) | contender.options
            contender = dataclasses.replace(contender, options=every)
        settings = (options.threads, options.matmul_precision, told.get("platform"))
        environment = environment_for(options.threads)
        worker = Worker(Contending, contender, *settings, environment=environment)
        workers[contender.label] = worker
        told = told or _ask_first(worker, "hello")
    return told


def _ask_first(worker: Worker, command: str, **arguments) -> dict:
    """The answer of the first contender, without which nothing can be measured."""
    try:
        return worker.ask(command, **arguments)
    except WorkerError as error:
        raise UserError(f"nothing can be measured: {error}") from None


def _check_lengths(workers: dict[str, Worker], cases: list[Case]) -> None:
    """Raises UserError for a length that no method supports, before anything is measured."""
    firsts = {case.length: case for case in reversed(cases)}
    for length, case in sorted(firsts.items()):
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
    told: dict,
) -> Schedule:
    """The schedule of the run; measures the ceilings and prints device and memory."""
    first = workers[contenders[0].label]
    ceilings = {dtype: _ask_first(first, "ceilings", dtype=dtype) for dtype in dtypes}
    first.close()  # with its large arrays
    memory = told["device_bytes"] or told["available_bytes"]
    if options.memory_limit_gb:
        memory = int(options.memory_limit_gb * 1e9)
    limits = Limits(options.repeats, options.max_seconds, options.fill_seconds, memory)
    sources = {c.source for c in contenders} | {c.framework for c in contenders}
    versions = told["versions"] | {s: version_of(s) for s in sorted(sources - {OURS})}
    facts = {
        "device": told["device"],
        "run": secrets.token_hex(4),
        "threads": options.threads,
        "matmul_precision": options.matmul_precision,
        "versions": versions,
        "commit": told["commit"],
    }
    print(f"run {facts['run']} on {facts['device']}, memory {memory / 1e9:.1f} GB")
    for dtype, c in ceilings.items():
        flops, moved = c["flops_per_second"] / 1e9, c["bytes_per_second"] / 1e9
        print(f"{dtype}: at most {flops:,.0f} GFLOP/s, {moved:,.1f} GB/s")
    return Schedule(workers, limits, facts, ceilings, told["platform"])


def _describe(case: Case) -> str:
    batch = FILL if case.filled else case.batch
    return (
        f"{case.benchmark} {case.mode}, length {case.length:,}, batch {batch}, "
        f"width {case.dim}, {case.heads} heads, {case.dtype}"
    )


def _line(row: efficiency.CostRow) -> str:
    def number(value, text):
        return "-" if value is None else text.format(value)

    milliseconds = None if row.seconds is None else row.seconds * 1e3
    return (
        f"  {row.label:<32}{number(milliseconds, '{:,.2f} ms'):>14}"
        f"{number(row.peak_memory_mb, '{:,.1f} MB'):>14}"
        f"{f'batch {row.batch}' if row.filled else '':>12}"
        f"  {'' if row.status == 'ok' else row.status}{f' ({row.note})' if row.note else ''}"
    )


if __name__ == "__main__":
    run(main, out_of_memory="shorter --lengths or a smaller --batch need less")
