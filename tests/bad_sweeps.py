"""Sweep files, results and flags that `lra.sweep` must refuse."""

from tests.small_world import Case, write

SWEEP = "lra.sweep"
TO_RESULTS = "--results=results/accuracy.jsonl --workdir=run --data_dir=data"
COMMAND = f"{SWEEP} sweep.py {TO_RESULTS}"
STANDARD = "'configs/listops.py:standard'"


def cases() -> list[Case]:
    """All of them."""
    return [*_flags(), *_runs(), *_data(), *_results()]


def _flags() -> list[Case]:
    return [
        Case(SWEEP, "required: SWEEP.py, --results"),
        Case(f"{SWEEP} sweep.py --results=runs/sweep", "is the folder of the runs (--workdir)"),
        Case(f"{COMMAND} --workdir=data/listops", "data/listops holds prepared data"),
        Case(f"{SWEEP} swep.py {TO_RESULTS}", "did you mean 'sweep.py'?"),
        Case(f"{SWEEP} data {TO_RESULTS}", "data is a folder: name a sweep file"),
        Case(f"{COMMAND} --launcher=cloud", "invalid choice: 'cloud'"),
        Case(f"{COMMAND} --budget_minutes=-1", "'-1' is not a positive number of minutes"),
        Case(f"{COMMAND} --budget_minutes=soon", "'soon' is not a positive number of minutes"),
        Case(f"{COMMAND} --jobs=0", "'0' is not a positive integer"),
        Case(f"{COMMAND} --jobs=2 --launcher=print", "--jobs=2 needs --launcher=local"),
        Case(f"{COMMAND} --launcher=slurm --slurm=gpus", "--slurm=gpus is not KEY=VALUE"),
        Case(f"{COMMAND} --slurm=gpus_per_node=1", "gpus_per_node=1 needs --launcher=slurm"),
        Case(f"{COMMAND} --launcher=print --slurm=gpus=1", "--slurm=gpus=1 needs --launcher=slurm"),
        Case(f"{COMMAND} --known=table.jsonl", "no rows in table.jsonl: no such file"),
        Case(f"{COMMAND} --tasks=txt", "did you mean 'text'?"),
        Case(f"{COMMAND} --tasks=text", "lists no runs of text"),
        Case(f"{COMMAND} --tasks=,", "--tasks=, names no task"),
        Case(f"{COMMAND} --config.train.stps=3", "did you mean 'train.steps'?"),
    ]


def _runs() -> list[Case]:
    return [
        Case(COMMAND, cause, write("sweep.py", f"{text}\n"))
        for text, cause in (
            ("RUN = 3", "has no list RUNS"),
            ("RUNS = []", "lists no runs"),
            ("RUNS = [3]", "run 1: not of the form"),
            ("RUNS = [{'config': 'configs/lists.py'}]", "run 1: no config file"),
            (f"RUNS = [{{'config': {STANDARD}, 'steps': 1}}]", "run 1: unknown config key"),
            (f"RUNS = [{{'config': {STANDARD}, 'seeds': 3}}]", '--config.seeds="(3,)"'),
            ("RUNS = 1 / 0", "sweep.py, line 1: ZeroDivisionError"),
            ("RUNS = [", "sweep.py: SyntaxError"),
            ("import sys\nsys.exit(0)", "sweep.py, line 2: SystemExit: 0"),
            ("def runs():\n    raise SystemExit", "sweep.py, line 2: SystemExit"),
        )
    ]


def _data() -> list[Case]:
    runs = f"RUNS = [{{'config': {STANDARD}}}]"
    nothing = "text: 1 run cannot start: no prepared text in data; prepare it: "
    return [
        Case(COMMAND, nothing, write("sweep.py", "RUNS = [{'config': 'configs/text.py:linear'}]\n"))
    ] + [
        Case(
            f"{COMMAND} --dry_run",
            f"sweep.py: {cause}",
            write("sweep.py", f"DATA = {text}\n{runs}\n"),
        )
        for text, cause in (
            ("[1]", "DATA is not of the form {'TASK': {'FLAG': value, ...}}: [1]"),
            ("{'listops': 5}", "DATA of listops is not of the form"),
            ("{'lstops': {}}", "DATA: unknown task 'lstops' (did you mean 'listops'?)"),
            ("{('a', 'b'): {}}", "DATA: unknown task ('a', 'b') (known:"),
            (
                "{'listops': {'train': 1, 'test': 0}}",
                "DATA of listops: --test=0: every split needs an expression",
            ),
            (
                "{'listops': {'min_length': 50, 'max_length': 10}}",
                "DATA of listops: no length lies between --min_length=50 and --max_length=10",
            ),
            (
                "{'listops': {'min_lenght': 5}}",
                "DATA of listops: unknown flag 'min_lenght' (did you mean 'min_length'?)",
            ),
            ("{'listops': {'source': 'generate'}}", "DATA of listops: unknown flag 'source'"),
            (
                "{'listops': {'min_length': 'abc'}}",
                "DATA of listops: argument --min_length: invalid int value: 'abc'",
            ),
            ("{'listops': {'min_length': '5'}}", "DATA of listops: min_length is 5, not '5' (str)"),
            (
                "{'listops': {'train': 2.5}}",
                "DATA of listops: argument --train: invalid int value: '2.5'",
            ),
            (
                "{'pathfinder': {'difficulty': 'esy'}}",
                "DATA of pathfinder: argument --difficulty: invalid choice: 'esy'",
            ),
        )
    ]


def _results() -> list[Case]:
    sweep = f"{SWEEP} sweep.py"
    return [
        Case(COMMAND, "line 1: not a row", write("results/accuracy.jsonl", '{"a": 1}\n')),
        Case(f"{sweep} --results=results", "cannot write rows to results"),
        Case(f"{sweep} --results=results --dry_run", "results: it is a folder"),
        Case(
            f"{sweep} --results=notes.txt --dry_run",
            "notes.txt, line 1: not JSON",
            write("notes.txt", "test 0.37\n"),
        ),
        Case(f"{sweep} --results=mine.py/a.jsonl", "cannot write rows to mine.py/a.jsonl"),
    ]
