"""Tables and figures of an analysis, and the page that holds them."""

import statistics
from typing import Any

from lra.analysis import error_pictures, matrix_pictures
from lra.analysis.look import DATA, Rows, kinds
from lra.report.cells import attention_title, task_title
from lra.report.figure_files import Figure
from lra.report.formats import plain
from lra.report.places import MISSING
from lra.report.provenance import short_commit
from lra.report.table import Table

_SCALED_RANKS = "Where pixels are masked, ranks are scaled from the number of the others."


def tables(rows: Rows) -> list[Table]:
    """Return all tables: errors by size, by Nyström's iterations, spectrum, Theorem 1, features."""
    return [
        *_error_tables(rows),
        _iteration_table(rows),
        _spectrum_table(rows),
        _theorem_table(rows),
        _feature_table(rows),
    ]


def figures(rows: Rows, maps: list[matrix_pictures.HeatMap]) -> list[Figure]:
    """Return all figures in the order of the page; those of errors if any attention has a size."""
    length = rows[0]["length"]
    averaged = "Means over layers, heads and examples."
    best = (
        "Black: the best approximation of the same rank by singular values (Linformer, Eq. 6), "
        "rank being landmarks, projection dimension, features, or keys that a query sees; dashed "
        "on random inputs. That Longformer and Reformer see few keys a query bounds no rank: their "
        "black line is no limit."
    )
    cut = "Errors below 0.01 are not drawn."
    reformer = (
        "Reformer is compared with attention with queries for keys (a single chunk), to which more "
        "hash rounds come closer, but not all the way."
    )
    if error_pictures.stars(rows):
        reformer += " Star: the model's own attention, with what it has learned."
    errors = [
        Figure(
            "error-matrix",
            f"Relative Frobenius error of the attention matrix, {length} positions. {averaged} "
            f"{best} Below the line of the others lies no matrix of that rank. {cut} {reformer}",
            lambda: error_pictures.draw_errors(rows, "matrix_error"),
        ),
        Figure(
            "error-output",
            f"Relative Frobenius error of the output, {length} positions. {averaged} {best} "
            f"{cut} {reformer}",
            lambda: error_pictures.draw_errors(rows, "output_error"),
        ),
    ]
    return [
        *(errors if error_pictures.curves(rows) else []),
        Figure(
            "nystrom-iterations",
            "Nyström: relative error of the attention matrix against landmarks and against "
            "iterations of the pseudo-inverse. With every position a landmark it tends to 0 "
            "(Lemma 2), to rounding in float64. Upper panels: errors below 0.01 are not drawn.",
            lambda: error_pictures.draw_iterations(rows),
        ),
        Figure(
            "heat-maps",
            f"Attention matrices of one example, {maps[0].data} q and k: exact, and by Nyström "
            f"with {maps[0].landmarks} landmarks and 6 iterations (relative errors "
            f"{', '.join(f'{m.error:.2f}' for m in maps)}). One scale a column, of square roots, "
            "from 0 (and what is negative) to the 99.5th percentile of the exact weights.",
            lambda: matrix_pictures.draw_heat_maps(maps),
        ),
        Figure(
            "spectrum",
            "Cumulative normalised singular values of exact attention matrices, and their share "
            f"at a quarter of the length (Linformer, Figure 1). {_SCALED_RANKS}",
            lambda: matrix_pictures.draw_spectrum(rows),
        ),
        Figure(
            "theorem1",
            "Linformer's Theorem 1: errors of P RᵀR w with k = 5 log n / (ε² - ε³) rows of R; "
            "median, 5th to 95th percentile over draws and columns of each head, averaged over "
            "layers and heads, of one example. Left as the theorem states it, right as its lemma "
            f"gives it. Below the black line the statement holds.{_on_ranks(rows)}",
            lambda: matrix_pictures.draw_theorem(rows),
        ),
    ]


def _on_ranks(rows: Rows) -> str:
    """Return a sentence if Theorem 1 projects to more rows than there are positions."""
    theorem_rows = [row for row in rows if row["kind"] == "theorem1"]
    above = sorted({row["epsilon"] for row in theorem_rows if row["rank"] > row["length"]})
    if not above:
        return ""
    all_above = len(above) == len({row["epsilon"] for row in theorem_rows})
    where = "every ε" if all_above else f"ε = {', '.join(f'{epsilon:g}' for epsilon in above)}"
    return f" Here k is above n at {where}, where it bounds no rank."


def page(about: dict[str, Any], tables: list[Table], figures: list[Figure]) -> str:
    """Render the analysis as Markdown, to be stored beside `figures/`."""
    source = "All numbers but those of the heat maps are in analysis.jsonl."
    lines = ["# Analysis", "", f"{_subject(about)} {source}", ""]
    for figure in figures:
        lines += [f"![{figure.title}](figures/{figure.name}.png)", "", figure.caption, ""]
    for table in tables:
        lines += [f"## {table.title}", "", table.caption, "", plain(table)]
    return "\n".join(lines)


def _subject(about: dict[str, Any]) -> str:
    """Describe what was analysed, according to the first row."""
    sizes = f"{about['examples']} examples of {about['length']} positions"
    commit = short_commit(about["commit"])
    if about["workdir"] is None:
        return f"Random queries, keys and values, {sizes}; commit {commit}."
    return (
        f"A model with {attention_title(about['attention'])} attention, trained on "
        f"{task_title(about['task'])} (data: {about['data_mark']}) in {about['workdir']}, seed "
        f"{about['seed']}, its "
        f"{about['parameters']} parameters, of step {about['step']:,}; {sizes} of the validation "
        f"set, and random ones of the same sizes; commit {commit}.{_on_training(about)}"
    )


def _on_training(about: dict[str, Any]) -> str:
    """Return a sentence if the model's queries and keys were not trained for exact attention."""
    if about["attention"] == "standard":
        return ""
    return (
        " Exact attention is a softmax of this model's queries and keys, which it has not computed "
        "itself: in training they served its own attention."
    )


def _error_tables(rows: Rows) -> list[Table]:
    tables = []
    errors = ("matrix_error", "best_rank_matrix_error", "output_error", "best_rank_output_error")
    for data in kinds(rows):
        groups: dict[tuple, Rows] = {}
        for row in rows:
            if row["kind"] == "approximation" and row["data"] == data:
                key = row["method"], row["variant"], row["option"], row["size"]
                groups.setdefault(key, []).append(row)
        lines = []
        for (method, variant, _, size), members in groups.items():
            title = attention_title(method) + (f", {variant}" if variant else "")
            ranked = size and members[0]["rank"] is not None
            numbers = [
                f"{statistics.fmean(row[name] for row in members):.4f}"
                if ranked or not name.startswith("best")
                else MISSING
                for name in errors
            ]
            lines.append(
                [title, f"{size or MISSING}", f"{members[0]['rank'] or MISSING}", *numbers]
            )
        header = ["attention", "size", "rank*", "matrix", "best of rank", "output", "best of rank"]
        caption = (
            "Relative Frobenius errors, means over layers, heads, examples and draws. * Of "
            "Longformer and Reformer, the number of keys that a query sees, which bounds no rank."
        )
        tables.append(Table(f"Approximation errors, {DATA[data]}", caption, header, lines, []))
    return tables


def _iteration_table(rows: Rows) -> Table:
    iteration_rows = [row for row in rows if row["kind"] == "iterations"]
    numbers = sorted({row["iterations"] for row in iteration_rows})
    lines = []
    for data in kinds(iteration_rows):
        for landmarks in sorted({row["landmarks"] for row in iteration_rows}):
            errors = [
                statistics.fmean(
                    row["matrix_error"]
                    for row in iteration_rows
                    if (row["data"], row["landmarks"], row["iterations"])
                    == (data, landmarks, number)
                )
                for number in numbers
            ]
            lines.append([data, f"{landmarks}", *(f"{error:.2g}" for error in errors)])
    header = ["q, k", "landmarks", *(f"{number} it." for number in numbers)]
    caption = (
        "Relative error of the attention matrix by iterations of the pseudo-inverse; the last "
        "landmarks are all positions (Lemma 2)."
    )
    return Table("Nyström: landmarks and iterations", caption, header, lines, [])


def _spectrum_table(rows: Rows) -> Table:
    lines = [
        [
            row["data"],
            f"{row['layer'] + 1}",
            f"{row['head'] + 1}",
            f"{row['at_quarter']:.3f}",
            MISSING if row["at_128"] is None else f"{row['at_128']:.3f}",
            f"{row['rank_of_90_percent']}",
        ]
        for row in rows
        if row["kind"] == "spectrum"
    ]
    length = rows[0]["length"]
    header = ["q, k", "layer", "head", "at a quarter", "at 128", "90 % at"]
    caption = (
        f"Share of the largest singular values in the sum of all {length}, means. {_SCALED_RANKS}"
    )
    return Table("Spectrum of attention matrices", caption, header, lines, [])


def _theorem_table(rows: Rows) -> Table:
    theorem_rows = [row for row in rows if row["kind"] == "theorem1"]
    lines = []
    for data in kinds(theorem_rows):
        for epsilon in sorted({row["epsilon"] for row in theorem_rows}):
            members = [r for r in theorem_rows if (r["data"], r["epsilon"]) == (data, epsilon)]
            printed, proven = (
                statistics.fmean(row[f"{name}_failures"] for row in members)
                for name in ("printed", "proven")
            )
            n, rank, bound = (members[0][name] for name in ("length", "rank", "failure_bound"))
            sizes = [data, f"{n}", f"{epsilon:g}", f"{rank}"]
            lines.append([*sizes, f"{bound:.2f}", f"{proven:.3f}", f"{printed:.3f}"])
    header = ["q, k, v", "n", "ε", "k", "bound", "proven fails", "printed fails"]
    caption = (
        "How often P RᵀR w is further than ε from P w: row by row relative to |u| |w|, which the "
        "Johnson-Lindenstrauss lemma gives (with the bound on its failures), and relative to "
        "|P w|, as the theorem is printed. Means over layers and heads, of one example. n counts "
        "real positions; k above n bounds no rank."
    )
    return Table("Linformer's Theorem 1", caption, header, lines, [])


def _feature_table(rows: Rows) -> Table:
    lines = [
        [
            row["data"],
            f"{row['layer'] + 1}",
            f"{row['head'] + 1}",
            f"{row['epsilon']:g}",
            f"{100 * row['below']:.1f} %",
            f"{row['from_mean']:.2g}",
            f"{row['exact_from_mean']:.2g}",
        ]
        for row in rows
        if row["kind"] == "features"
    ]
    header = ["q, k, v", "layer", "head", "epsilon", "features below", "output", "exact output"]
    caption = (
        "Share of the keys' features whose exponential is below epsilon (both relative to that of "
        "the largest projection of a key), and relative distance of the outputs, Performer's and "
        "exact attention's, from the mean of "
        "the values."
    )
    return Table("What Performer's epsilon covers", caption, header, lines, [])
