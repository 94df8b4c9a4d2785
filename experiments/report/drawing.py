"""How pictures look: colours, panels, legends; light and dark, for wide screens and for phones."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from PIL import Image

from experiments.methods import Method

_DARK_STYLE: dict[str, Any] = {
    "figure.facecolor": "#1d232a", "axes.facecolor": "#1d232a", "savefig.facecolor": "#1d232a", "text.color": "#e4e7eb",
    "axes.labelcolor": "#e4e7eb", "axes.edgecolor": "#76808c", "xtick.color": "#c5ccd3", "ytick.color": "#c5ccd3",
    "grid.color": "#76808c", "legend.facecolor": "#1d232a", "legend.edgecolor": "#3a424c",
}  # fmt: skip
NARROW = 4.4  # inches, of pictures for phones
_OFFSETS = [
    np.array([radius * np.cos(angle), radius * np.sin(angle)])
    for radius, angle in itertools.product((11, 20, 30, 42), np.arange(8) * np.pi / 4)
]
_STYLE: dict[str, Any] = {
    "font.size": 10.5, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
}  # fmt: skip


class Look(NamedTuple):
    """Whether a picture is on dark paper, its ink, and whether it is for a phone: panels below each other then."""

    dark: bool
    ink: str
    narrow: bool

    def of(self, method: Method) -> str:
        """A method's colour: the algorithm's; the line's kind tells which of its variants it is."""
        return method.colours.dark if self.dark else method.colours.light


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


def panels(look: Look, count: int, sharey: bool = False) -> tuple[plt.Figure, list[plt.Axes]]:
    """Panels side by side or, for a phone, below each other."""
    shape, size = ((count, 1), (NARROW, 3.1 * count + 0.8)) if look.narrow else ((1, count), (10, 4.4))
    if count == 1 and not look.narrow:
        size = (8, 4.6)
    figure, axes = plt.subplots(*shape, figsize=size, sharey=sharey, layout="constrained", squeeze=False)
    for ax in axes.flat:
        ax.grid(alpha=0.3)
    return figure, list(axes.flat)


def legend(figure: plt.Figure, ax: plt.Axes, look: Look) -> None:
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        longest = max(map(len, labels))
        columns = 1 if look.narrow else 4 if longest < 25 else 3 if longest < 40 else 2 if longest < 60 else 1
        columns, size = min(columns, len(labels)), 8 if look.narrow else 9
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=size)


def number_points(ax: plt.Axes, points: dict[int, tuple[float, float]]) -> None:
    """Writes numbers, counted from 1, beside points, where neither a point nor another number is."""
    places = {i: ax.transData.transform(point) * 72 / plt.rcParams["figure.dpi"] for i, point in points.items()}
    taken = list(places.values())
    for i, place in sorted(places.items(), key=lambda item: tuple(item[1])):
        for offset in _OFFSETS:
            spot = place + offset
            if all(abs(spot[0] - x) > 11 or abs(spot[1] - y) > 9 for x, y in taken):
                break
        taken.append(spot)
        ax.annotate(
            str(i + 1), points[i], xytext=tuple(spot - place), textcoords="offset points", fontsize=8.5, ha="center",
            va="center", arrowprops=dict(arrowstyle="-", lw=0.5, alpha=0.5) if np.hypot(*offset) > 16 else None,
        )  # fmt: skip


def plain_numbers(ax: plt.Axes, look: Look) -> None:
    """Marks a logarithmic x axis with 20 and 200, not with powers of ten, and with no more than there is room for."""
    low, high = ax.get_xlim()
    many = np.log10(high / low) < (1.0 if look.narrow else 1.8)
    ax.xaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0) if many else (1.0, 3.0)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_locator(NullLocator())
