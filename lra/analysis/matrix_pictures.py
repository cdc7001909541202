"""Figures of attention matrices: heat maps, spectra, and Linformer's Theorem 1."""

from typing import Any, NamedTuple

import numpy as np

from lra.analysis.look import COLOURS, DATA, RANDOM_LINE, Rows, kinds, shade
from lra.analysis.spectrum import spectrum_rank
from lra.report.axes import logarithmic
from lra.report.drawing import COLUMN
from lra.report.styles import LINES, RC, STYLES


class HeatMap(NamedTuple):
    """One head's attention matrix [length, length] and its approximation by Nyström."""

    data: str
    layer: int
    head: int
    landmarks: int
    error: float
    exact: np.ndarray
    approximated: np.ndarray


def draw_heat_maps(maps: list[HeatMap]) -> Any:
    """Draw exact matrices above approximated ones, with one scale per column."""
    from matplotlib import pyplot
    from matplotlib.colors import PowerNorm

    columns = max(2, len(maps))
    height = 0.35 + 2 * (COLUMN - 0.25) / columns
    figure, axes = pyplot.subplots(2, columns, figsize=(COLUMN, height), squeeze=False)
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0, hspace=0.02)
    for ax in axes[:, len(maps) :].flat:
        ax.remove()
    for column, heat_map in zip(axes.T, maps, strict=False):
        # On a linear scale a few large weights would leave the rest dark.
        weights = heat_map.exact[heat_map.exact > 0]  # none of padding
        scale = PowerNorm(0.5, vmin=0, vmax=float(np.percentile(weights, 99.5)), clip=True)
        for ax, matrix in zip(column, (heat_map.exact, heat_map.approximated), strict=True):
            ax.imshow(matrix, norm=scale, cmap=COLOURS, interpolation="nearest")
            ax.set_xticks([])
            ax.set_yticks([])
            ax.grid(False)
        title = f"layer {heat_map.layer + 1}\nhead {heat_map.head + 1}"
        column[0].set_title(title, fontsize=RC["xtick.labelsize"])
    axes[0, 0].set_ylabel("exact")
    axes[1, 0].set_ylabel("Nyström")
    return figure


def draw_spectrum(rows: Rows) -> Any:
    """Draw cumulative singular values of each layer and head, and their share at a quarter."""
    from matplotlib import pyplot

    rows = [row for row in rows if row["kind"] == "spectrum"]
    trained = [row for row in rows if row["data"] == "trained"]
    layers = 1 + max((row["layer"] for row in trained), default=0)
    heads = 1 + max((row["head"] for row in trained), default=0)
    height = (2.1 if trained else 0) + 0.55 + 0.28 * layers
    figure, axes = pyplot.subplots(
        2 if trained else 1,
        1,
        figsize=(COLUMN, height if trained else 2.3),
        height_ratios=[2.0, 0.45 + 0.28 * layers] if trained else None,
        squeeze=False,
    )
    upper = axes[0, 0]
    length = rows[0]["length"]
    indices = np.arange(1, length + 1)
    for row in trained:
        title = f"layer {row['layer'] + 1}" + (f", head {row['head'] + 1}" if heads <= 4 else "")
        upper.plot(
            indices,
            row["cumulative"],
            color=shade(row["layer"], layers),
            linestyle=LINES[row["head"] % len(LINES)],
            label=title if heads <= 4 or row["head"] == 0 else None,
        )
    random = [row["cumulative"] for row in rows if row["data"] == "random"]
    look = {"color": "#7F7F7F", "linewidth": 0.9}
    upper.plot(indices, np.mean(random, axis=0), linestyle=(0, (1, 1)), label="random q, k", **look)
    upper.plot(indices, indices / length, label="identity", **look)
    upper.set_ylim(0, 1.02)
    upper.set_xlabel("index of singular value")
    upper.set_ylabel("cumulative share")
    upper.legend(loc="lower right", fontsize=6.5)
    if trained:
        _draw_shares(axes[1, 0], trained, layers, heads)
    return figure


def draw_theorem(rows: Rows) -> Any:
    """Draw the errors of P R^T R w against epsilon, as printed and as proven."""
    from matplotlib import pyplot

    rows = [row for row in rows if row["kind"] == "theorem1"]
    figure, axes = pyplot.subplots(1, 2, figsize=(COLUMN, 2.4), sharex=True, sharey=True)
    epsilons = sorted({row["epsilon"] for row in rows})
    ticks, label = _epsilons_and_ranks(rows)
    titles = {"printed": "relative to |Pw|", "proven": "row by row, to |u| |w|"}
    for ax, (name, title) in zip(axes, titles.items(), strict=True):
        for data in kinds(rows):
            data_rows = [row for row in rows if row["data"] == data]
            errors = np.array(
                [
                    np.mean([r[f"{name}_errors"] for r in data_rows if r["epsilon"] == e], axis=0)
                    for e in epsilons
                ]
            )
            colour = STYLES["nystrom" if data == "trained" else "linformer"].colour
            look = {"marker": "o" if data == "trained" else "s", "color": colour}
            if data == "random":
                look |= {"linestyle": RANDOM_LINE, "markerfacecolor": "white"}
            ax.plot(epsilons, errors[:, 1], label=DATA[data], **look)
            ax.fill_between(
                epsilons, errors[:, 0], errors[:, 2], color=colour, alpha=0.15, linewidth=0
            )
        ax.plot(epsilons, epsilons, color="#000000", linewidth=0.8, label="ε")
        logarithmic(ax)
        ax.set_xticks(epsilons, ticks, fontsize=6)
        ax.set_title(title)
    axes[0].set_ylabel("error")
    figure.supxlabel(label, fontsize=RC["axes.labelsize"])
    handles, _ = axes[0].get_legend_handles_labels()
    figure.legend(handles=handles, loc="outside upper center", ncols=3)
    return figure


def _epsilons_and_ranks(rows: Rows) -> tuple[list[str], str]:
    """Return tick labels and axis label of Theorem 1; k depends on the number of positions."""
    ranks = {
        data: {row["epsilon"]: row["rank"] for row in rows if row["data"] == data}
        for data in kinds(rows)
    }
    label, (first, *others) = "ε, and k below it", ranks.values()
    if any(other != first for other in others):
        label += f": {', '.join(DATA[data] for data in ranks)}"
    else:
        ranks = {"": first}
    ticks = ["\n".join([f"{e:g}", *(f"{k[e]}" for k in ranks.values())]) for e in sorted(first)]
    return ticks, label


def _draw_shares(ax: Any, rows: Rows, layers: int, heads: int) -> None:
    shares = np.zeros((layers, heads))
    for row in rows:
        shares[row["layer"], row["head"]] = row["at_quarter"]
    ax.imshow(shares, vmin=0.25, vmax=1, cmap=COLOURS, aspect="auto")
    if layers * heads <= 64:
        for (layer, head), share in np.ndenumerate(shares):
            colour = "black" if share > 0.6 else "white"
            ax.text(head, layer, f"{share:.2f}", ha="center", va="center", color=colour)
    ax.grid(False)
    ax.set_xticks(range(heads), [f"{head + 1}" for head in range(heads)])
    ax.set_yticks(range(layers), [f"{layer + 1}" for layer in range(layers)])
    ax.set_xlabel("head")
    ax.set_ylabel("layer")
    length = rows[0]["length"]
    ax.set_title(f"share at {spectrum_rank(length)} of {length}")
