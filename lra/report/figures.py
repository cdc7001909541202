"""All figures of a report: what each shows, and its caption."""

import functools
from collections.abc import Iterator, Sequence

from lra.report import curves, dots_drawing, drawing
from lra.report.cells import attention_title, task_title
from lra.report.dots import UNSTEADY, Dot, panels
from lra.report.figure_files import Figure
from lra.report.groups import Group
from lra.report.names import file_name
from lra.report.notes import OTHER_DATA, on_other_data
from lra.report.speeds import Speeds, of_table
from lra.report.styles import Style, styles
from lra.report.sweep_points import Sweep, labels, shared, sweeps, timed

_MOST_CURVES = 6  # in a panel
_MOST_SPEED_FIGURES = 6  # for groups other than the paper's table
NO_SPEED_FIGURE = (
    "Accuracy against speed is drawn for the table and for the "
    f"{_MOST_SPEED_FIGURES} other groups with most results, of which this is none: give its rows "
    "to lra.report alone."
)
_RUNS_APART = "Each speed is of a run of its own, beside whatever else its machine did. Speeds: "
_MEASURED = (
    "Accuracies are those of the table, of whatever device and number format; speeds are of one "
    "seed, measured by benchmarks.train_step: "
)


def figures(
    groups: list[Group], workdirs: list[str], measured: Sequence[Speeds] = ()
) -> tuple[list[list[Figure]], list[Figure]]:
    """Return the figures of each group, and the learning curves of the runs in `workdirs`.

    Args:
        groups: Groups of the rows.
        workdirs: Workdirs of the runs.
        measured: Measured speeds, drawn in place of those of the rows: for the paper's table, and
            for sweeps on LRA's data whose every point was measured on one platform.
    """
    runs = curves.histories(workdirs) if workdirs else {}
    looks = styles(
        each.attention
        for each in [
            *(line for group in groups for line in group.lines),
            *(run for their_runs in runs.values() for run in their_runs),
        ]
    )
    without_speed_figure = beyond_speed_figures(groups)
    group_figures = [
        [
            *([] if each in without_speed_figure else _speed_figures(each, looks, measured)),
            *_sweep_figures(each, looks, measured),
        ]
        for each in groups
    ]
    return group_figures, [_curves_figure(of, their_runs, looks) for of, their_runs in runs.items()]


def beyond_speed_figures(groups: list[Group]) -> list[Group]:
    """Return the groups whose figure of accuracy against speed is left out.

    Those are all but the paper's table and the groups with the most results.
    """

    def results(each: Group) -> int:
        return sum(len(cell.ok) for _, _, cell in each.all_cells())

    others = [each for each in groups if not each.is_table3 and panels(each).by_task]
    return sorted(others, key=lambda each: -results(each))[_MOST_SPEED_FIGURES:]


def _speed_figures(
    group: Group, looks: dict[str, Style], measured: Sequence[Speeds]
) -> list[Figure]:
    separate = of_table(measured) if group.is_table3 else None
    by_task, platform, missing = panels(group, separate)
    if not by_task:
        return []
    dots = [dot for panel in by_task.values() for dot in panel.values()]
    together = "" if separate else ", all seeds of a program together"
    caption = (
        f"Test accuracy against training speed{together}; the area of a dot is the number of "
        "parameters (small dots are enlarged), bars are standard deviations over seeds. Axes need "
        "not start at 0. "
        f"{_MEASURED if separate else _RUNS_APART}{platform.title_with_jax}{_programs(dots)}"
        f"{_commits(dots)}."
    )
    if "" in by_task:
        bar = ""
        if any(each.accuracy.std for each in by_task[""].values()):
            bar = ", and the bar of a mean over tasks, each with a seed of its own"
        caption += f" Average: the geometric mean of the speeds, the mean of the parameters{bar}."
    if missing:
        caption += f" No dot for cells {', '.join(missing)}."
    if any(dot.marked for dot in dots):
        caption = " ".join([caption, *on_other_data(group)])
    draw = functools.partial(dots_drawing.draw_dots, by_task, looks)
    return [Figure(f"{group.slug}-speed", caption, draw)]


def _sweep_figures(
    group: Group, looks: dict[str, Style], measured: Sequence[Speeds]
) -> list[Figure]:
    result, other_data = [], any(map(group.data_of, group.tasks))  # of other lengths
    for (attention, option), all_sweeps in sweeps(group).items():
        # A legend has room for few curves, so only those with most values are shown.
        largest = sorted(all_sweeps, key=lambda sweep: -sum(map(len, sweep.by_task.values())))
        shown = [sweep for sweep in all_sweeps if sweep in largest[:_MOST_CURVES]]
        separate = None if other_data else timed(shown, measured)
        shown, fixed = separate or shown, shared(shown)
        caption = (
            f"{attention_title(attention)}: test accuracy and training speed against "
            f"{option}{f', {fixed}' if fixed else ''}; lines are means, small dots the seeds, "
            f"open marks single seeds. {_MEASURED if separate else _RUNS_APART}"
            f"{_platforms(shown)}.{_left_out(shown)}{_lost(shown)}{_without_speed(shown)}"
        )
        if not all(dot.is_steady for sweep in shown for dot in sweep.dots):
            caption += (
                f" Speeds are not joined where those of one cell differ by more than {UNSTEADY} "
                "times."
            )
        if len(all_sweeps) > len(shown):
            caption += f" Not drawn: {len(all_sweeps) - len(shown)} with other options fixed."
        name = file_name(f"{group.slug}-{attention}-{option}")
        draw = functools.partial(drawing.draw_sweep, option, shown, looks[attention])
        result.append(Figure(name, caption, draw))
    return result


def _curves_figure(
    of: tuple[str, ...], runs: list[curves.History], looks: dict[str, Style]
) -> Figure:
    """Return the figure of the curves of a task, or of an attention on a task."""
    task, *attention = of
    title = ", ".join([task_title(task), *map(attention_title, attention)])
    losses, several = any(run.loss.steps for run in runs), any(run.seeds > 1 for run in runs)
    of_seeds = (
        "; thick lines are means over the seeds that have not diverged, thin lines are those seeds"
    )
    caption = (
        f"{title}: {'training loss and ' * losses}validation accuracy"
        f"{of_seeds * several}. A point is a mean over at least "
        f"{f'1/{curves.MOST_LOSSES} of the steps (losses) or ' * losses}"
        f"1/{curves.MOST_EVALUATIONS} of the steps (evaluations)."
    )
    ends = [
        f"{run.title}: {left} of {run.seeds} seeds from step {step:,} on"
        for run in runs
        for step, left in run.ends
    ]
    if ends:
        caption += f" {'; '.join(ends)}."
    on_test = [run.title for run in runs if run.val_is_test]
    if on_test:
        which = "" if len(on_test) == len(runs) else f" of {', '.join(on_test)}"
        caption += f" The validation set{which} is the test set, as LRA has it."
    marks = dict.fromkeys(run.other_data for run in runs if run.other_data is not None)
    if marks:
        caption += f" {OTHER_DATA} On other data: {'; '.join(marks)}."
    if losses and (lacking := sum(not run.loss.steps for run in runs)):
        caption += f" No losses are kept of {lacking} of the {len(runs)} lines."
    draw = functools.partial(drawing.draw_histories, runs, looks)
    return Figure("-".join(["curves", *of]), caption, draw)


def _left_out(shown: list[Sweep]) -> str:
    """Name the values that have rows but no point: ` No point: ListOps at 32 (no result).`"""
    points = [
        f"{_curve_name(shown, sweep, task)} at {value:g} ({why})"
        for sweep in shown
        for task, values in sweep.left_out.items()
        for value, why in values.items()
    ]
    return f" No point: {', '.join(points)}." if points else ""


def _lost(shown: list[Sweep]) -> str:
    """Name the means over fewer seeds than were trained."""
    points = [
        f"{place} ({dot.lost} of {dot.lost + len(dot.seeds)})"
        for place, dot in _named_dots(shown)
        if dot.lost
    ]
    return f" Seeds that diverged or failed: {', '.join(points)}." if points else ""


def _without_speed(shown: list[Sweep]) -> str:
    """Name the dots that have no speed, if others of the figure have one."""
    points = [place for place, dot in _named_dots(shown) if not dot.speed]
    some = any(dot.speed for _, dot in _named_dots(shown))
    return f" No speed on that platform: {', '.join(points)}." if some and points else ""


def _named_dots(shown: list[Sweep]) -> Iterator[tuple[str, Dot]]:
    """Yield the dots of a figure with their names: `ListOps at 32`."""
    for sweep in shown:
        for task, dots in sweep.by_task.items():
            for value, dot in dots.items():
                yield f"{_curve_name(shown, sweep, task)} at {value:g}", dot


def _platforms(shown: list[Sweep]) -> str:
    """Name the platform of all curves of a figure, `a device, float32`, or that of each."""
    dots = [dot for sweep in shown for dot in sweep.dots]
    programs = _programs(dots) + _commits(dots)
    titles = {
        _curve_name(shown, sweep, task): platform.title_with_jax
        for sweep in shown
        for task, platform in sweep.platforms.items()
    }
    if len(set(titles.values())) > 1:
        places = "; ".join(f"{place}: {title}" for place, title in titles.items())
        return f"{places}{programs}"
    return f"{next(iter(titles.values()))}{programs}"


def _curve_name(shown: list[Sweep], sweep: Sweep, task: str) -> str:
    """Name a curve: `ListOps`, or `ListOps with pinv_iterations=8` if a panel has several."""
    title = task_title(task)
    return f"{title} with {labels(shown)[shown.index(sweep)]}" if len(shown) > 1 else title


def _commits(dots: Sequence[Dot]) -> str:
    """Name the commits at which tasks' speeds were measured, if there are several."""
    commits = sorted({dot.commit for dot in dots} - {None})
    if len(commits) < 2:
        return ""
    return f"; each task's at one of the commits {', '.join(commits)}, with other code and days"


def _programs(dots: Sequence[Dot]) -> str:
    """Describe which speeds are shown: seeds per program, and the choice among programs."""
    seeds = sorted({dot.seeds_together for dot in dots} - {None})
    text = ""
    if seeds and seeds[-1] > 1:
        text = f", programs of {' to '.join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))} seeds"
    if all(dot.slowest in (dot.speed, None) for dot in dots):
        return text
    return (
        f"{text}; of several programs of a cell the fastest, with a line to the slowest, which "
        "other work on the machine or older code held up: what benchmarks.train_step measures in "
        "one run compares methods better"
    )
