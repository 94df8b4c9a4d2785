"""How pictures look: colours, panels, legends; light and dark, for wide screens and for phones."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from PIL import Image

from experiments.methods import Colours

_DARK_STYLE: dict[str, Any] = {
    "figure.facecolor": "#1d232a", "axes.facecolor": "#1d232a", "savefig.facecolor": "#1d232a", "text.color": "#e4e7eb",
    "axes.labelcolor": "#e4e7eb", "axes.edgecolor": "#76808c", "xtick.color": "#c5ccd3", "ytick.color": "#c5ccd3",
    "grid.color": "#76808c", "legend.facecolor": "#1d232a", "legend.edgecolor": "#3a424c",
}  # fmt: skip
NARROW = 4.4  # inches, of pictures for phones
_OFFSETS = [
    np.array([radius * np.cos(angle), radius * np.sin(angle)])
    for radius, angle in itertools.product((11, 16, 22, 30, 40, 52), np.arange(12) * np.pi / 6)
]
_STYLE: dict[str, Any] = {
    # Labels may be anybody's: a dollar sign in one is no mathematics.
    "text.parse_math": False, "font.size": 10.5, "axes.spines.top": False, "axes.spines.right": False,
    "legend.frameon": False,
}  # fmt: skip


class Look(NamedTuple):
    """Whether a picture is on dark paper, its ink, and whether it is for a phone: panels below each other then."""

    dark: bool
    ink: str
    narrow: bool

    def of(self, colours: Colours) -> str:
        """The colour that fits the paper."""
        return colours.dark if self.dark else colours.light


Draw = Callable[[Look], plt.Figure]


class Picture(NamedTuple):
    """A picture as PNG."""

    light: bytes
    dark: bytes
    light_narrow: bytes
    dark_narrow: bytes


def render(draw: Draw) -> Picture:
    """Returns a picture in all its forms."""
    forms = []
    for narrow in (False, True):
        for dark, ink, style in ((False, "#1d232b", {}), (True, "#e4e7eb", _DARK_STYLE)):
            with plt.rc_context({**_STYLE, **style}):
                figure = draw(Look(dark, ink, narrow))
                forms.append(_png(figure, dpi=180 if narrow else 130))
                plt.close(figure)
    return Picture(*forms)


def _png(figure: plt.Figure, dpi: int) -> bytes:
    raw, content = io.BytesIO(), io.BytesIO()
    figure.savefig(raw, format="png", dpi=dpi)
    # A third of the size, and nothing that tells of the day or of the software.
    Image.open(raw).convert("RGB").quantize(96, dither=Image.Dither.NONE).save(content, format="png", optimize=True)
    return content.getvalue()


def panels(
    look: Look, count: int, sharey: bool = False, most: int = 4, entries: int = 0
) -> tuple[plt.Figure, list[plt.Axes]]:
    """Panels side by side, at most so many in a row; for a phone, below each other.

    Args:
      look: of the picture.
      count: of the panels.
      sharey: whether they have the same y axis.
      most: panels in a row.
      entries: of the legend, for which there must be room.
    """
    wide = min(count, most)
    shape = (count, 1) if look.narrow else (-(-count // wide), wide)
    height = 0.16 * entries + (2.9 * count + 0.6 if look.narrow else 4.0 if shape[0] == 1 else 2.8 * shape[0])
    width = NARROW if look.narrow else 8 if count == 1 else 10
    figure, axes = plt.subplots(*shape, figsize=(width, height), sharey=sharey, layout="constrained", squeeze=False)
    for ax in axes.flat[count:]:
        ax.set_axis_off()
    for ax in axes.flat[:count]:
        ax.grid(alpha=0.3)
    return figure, list(axes.flat[:count])


def legend(figure: plt.Figure, ax: plt.Axes, look: Look) -> None:
    """Puts the legend of a panel below all panels."""
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        longest = max(map(len, labels))
        columns = 1 if look.narrow else 4 if longest < 25 else 3 if longest < 40 else 2 if longest < 60 else 1
        columns, size = min(columns, len(labels)), 8 if look.narrow else 9
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=size)


def number_points(
    ax: plt.Axes, points: dict[int, tuple[float, float]], others: Sequence[tuple[float, float]] = ()
) -> None:
    """Writes numbers, counted from 1, beside points, where neither a point nor a number nor anything else is.

    Args:
      ax: the panel.
      points: by number.
      others: more places to keep free, such as those of error bars.
    """
    assert ax.figure is not None
    unit = 72 / ax.figure.dpi
    places = {i: ax.transData.transform(point) * unit for i, point in points.items()}
    taken = [*places.values(), *(ax.transData.transform(place) * unit for place in others)]
    low, high = (np.array(corner) * unit for corner in (ax.bbox.p0, ax.bbox.p1))

    def crowd(spot: np.ndarray) -> float:
        """How much of what is there a number would cover."""
        outside = np.any(spot < low + 6) or np.any(spot > high - 6)
        return 100 * outside + sum(abs(spot[0] - x) < 11 and abs(spot[1] - y) < 9 for x, y in taken)

    for i, place in sorted(places.items(), key=lambda item: tuple(item[1])):
        offset = min(_OFFSETS, key=lambda offset: crowd(place + offset))  # the first, which is the nearest, of the best
        taken.append(place + offset)
        ax.annotate(
            str(i + 1), points[i], xytext=tuple(offset), textcoords="offset points", fontsize=8.5, ha="center",
            va="center", arrowprops=dict(arrowstyle="-", lw=0.5, alpha=0.5) if np.hypot(*offset) > 16 else None,
        )  # fmt: skip


def along(ax: plt.Axes, points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Returns places along the lines between points of a panel, a few units of the picture apart."""
    if len(points) < 2:
        return []
    corners = ax.transData.transform(points)
    places = [a + (b - a) * t for a, b in itertools.pairwise(corners) for t in np.linspace(0, 1, 60)]
    return [tuple(place) for place in ax.transData.inverted().transform(places)]


def plain_numbers(ax: plt.Axes, look: Look) -> None:
    """Marks a logarithmic x axis with 20 and 200, not with powers of ten, and with no more than there is room for."""
    low, high = ax.get_xlim()
    many = np.log10(high / low) < (1.0 if look.narrow else 1.8)
    digits = (1.0, 2.0, 5.0) if many else (1.0, 3.0)
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    marked = sum(low <= digit * 10.0**decade <= high for digit in digits for decade in decades)
    ax.xaxis.set_major_locator(LogLocator(base=10, subs=digits) if marked > 1 else MaxNLocator(3 if look.narrow else 6))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_locator(NullLocator())


def powers_of_ten(ax: plt.Axes) -> None:
    """Marks a logarithmic x axis with powers of ten."""
    raised = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    ax.xaxis.set_major_locator(LogLocator(base=10, numticks=6))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: "10" + str(round(np.log10(v))).translate(raised)))
    ax.xaxis.set_minor_locator(NullLocator())
