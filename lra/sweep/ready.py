"""What has to be there before the runs of a sweep are executed."""

from lra import records
from lra.errors import UserError
from lra.sweep.place import Place, gather, say, without_rows
from lra.sweep.plan import Run, Sweep, count


def remaining(sweep: Sweep, place: Place) -> tuple[list[tuple[Run, str]], int]:
    """Gets everything ready, and says what is to be done.

    Takes in rows that runs have written without us (`--launcher=print`, a killed sweep) and
    generates data that are missing.

    Returns:
        The runs to execute with the marks of their data, and the number of those that cannot be
        because their data are neither prepared nor can be generated.

    Raises:
        UserError: the results file cannot be written.
    """
    records.check_writable(place.results)
    todo, without_data = [], 0
    for task in dict.fromkeys(run.task for run in sweep.runs):
        runs = [run for run in sweep.runs if run.task == task]
        try:
            mark = place.mark(task)
            gather(runs, place, mark, sorted(place.workdir.glob("*/rows.jsonl")))
            if mark is None and without_rows(runs, place, mark):
                mark = place.generate(task)
        except UserError as error:
            unfinished = len(without_rows(runs, place, None))
            say(f"{task}: {count(unfinished)} cannot start: {error}")
            without_data += unfinished
            continue
        todo += [(run, mark) for run in without_rows(runs, place, mark)]
    return todo, without_data
