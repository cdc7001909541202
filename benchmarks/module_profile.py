"""Which operations of an attention module take its time?

    export GLIBC_TUNABLES=glibc.malloc.hugetlb=1                as in `speed_memory`
    python -m benchmarks.module_profile --methods=nystrom:num_landmarks=64,linear --length=2048

The module, cases and options are those of `benchmarks.speed_memory`, for our methods only. Prints,
for each method, the median time of --repeats calls, and the longest operations of one traced call:
milliseconds, share of all operations, shape and origin. Tracing makes operations a little slower.
"""

import pathlib
import statistics
import tempfile

from benchmarks.cases import Case, Contender, parse_methods, parse_widths
from benchmarks.worker import check_threads, hold_to, timed
from lra.command_line import ArgumentParser, positive_integer, run
from lra.efficiency import MODES
from lra.errors import UserError
from lra.setting_values import DTYPES


def main(argv: list[str]) -> int:
    """Profile one method after another."""
    parser = ArgumentParser(prog="python -m benchmarks.module_profile", description=__doc__)
    parser.add_argument("--methods", default="nystrom:num_landmarks=64", help="(%(default)s)")
    parser.add_argument("--length", type=positive_integer, default=2048, help="(%(default)s)")
    parser.add_argument("--batch", type=positive_integer, default=1, help="(%(default)s)")
    parser.add_argument("--width", default="768x12", help="WIDTHxHEADS (%(default)s)")
    parser.add_argument("--mode", choices=MODES, default="forward_backward", help="(%(default)s)")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="(%(default)s)")
    parser.add_argument("--threads", type=positive_integer, help="of the CPU (all)")
    parser.add_argument("--repeats", type=positive_integer, default=5, help="(%(default)s)")
    parser.add_argument("--rows", type=positive_integer, default=16, help="to print (%(default)s)")
    options = parser.parse_args(argv)
    (dim, heads), *more = parse_widths(options.width, "--width")
    if more:
        raise UserError("--width takes one WIDTHxHEADS")
    contenders = parse_methods(options.methods)
    sizes = {"length": options.length, "batch": options.batch, "dim": dim, "heads": heads}
    case = Case(benchmark="module", mode=options.mode, dtype=options.dtype, **sizes)
    check_threads(options.threads)
    hold_to(options.threads)
    for contender in contenders:
        print(f"\n{contender.label}, length {case.length:,}, width {dim}, {case.mode}")
        print(_profile(contender, case, options.repeats, options.rows), flush=True)
    return 0


def _profile(contender: Contender, case: Case, repeats: int, rows: int) -> str:
    """Compile, time and trace one method; return the lines to print."""
    from benchmarks import programs
    from benchmarks.largest_costs import largest_costs, table, trace

    programs.configure(None, "float32", None)
    try:
        programs.check(contender, case)
        program = programs.build(contender, case)
    except ValueError as error:
        raise UserError(f"{contender.label}: {error}") from None
    program.run()
    seconds = [timed(program.run) for _ in range(repeats)]
    with tempfile.TemporaryDirectory() as folder:
        trace(pathlib.Path(folder), program.run)
        costs = largest_costs(pathlib.Path(folder), program.text)
    return f"{1e3 * statistics.median(seconds):9.2f} ms a call\n{table(costs, 1, rows)}"


if __name__ == "__main__":
    run(main, out_of_memory="a smaller --length or --batch needs less")
