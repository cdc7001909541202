"""Logarithmic axes, and tick labels in plain text (matplotlib's own are formulas)."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

# Multiples of powers of ten that have labels on an axis of less than so many times its least value.
_SUBS = (
    (2.5, (1, 1.1, 1.2, 1.3, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)),
    (10, (1, 1.5, 2, 3, 5, 7)),
    (200, (1, 2, 5)),
)


def logarithmic(ax: "Axes") -> None:
    """Make the y axis logarithmic; the shorter its range, the more is labelled between powers."""
    from matplotlib.ticker import LogLocator, NullFormatter

    ax.set_yscale("log")
    low, high = ax.get_ylim()
    subs = next((subs for times, subs in _SUBS if high < times * low), None)
    if subs:
        ax.yaxis.set_major_locator(LogLocator(subs=subs))
    # matplotlib's own labels are formulas.
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_major_formatter(_power_label if high > 1e9 * low else tick_label)


def tick_label(value: float, _position: int | None = None) -> str:
    """Format a number briefly: `0.01`, `500`, `2.5k`, `20k`, `1M`, `10⁻⁹`, `2·10⁻⁹`."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if size <= abs(value) < 1e9:
            return f"{value / size:g}{unit}"
    digits, _, exponent = f"{value:g}".partition("e")
    if not exponent:
        return digits
    power = _power(int(exponent))
    return power if digits == "1" else f"{digits}·{power}"


def _power_label(value: float, _position: int | None = None) -> str:
    return _power(round(math.log10(value)))


def _power(exponent: int) -> str:
    return f"10{str(exponent).translate(_SUPERSCRIPTS)}"
