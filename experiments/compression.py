"""The table of what makes messages cheaper: codecs and compressors as flags name them, without TensorFlow.

What each does is in `tff_fen.compressors`, and `tff_fen.codec` has them by the same names. Whoever adds one there adds
a row here, and nothing else.
"""

from __future__ import annotations

from typing import NamedTuple


class Compression(NamedTuple):
    """A codec, a compressor, or the threshold.

    Attributes:
      form: how it is written, `"name:NUMBER"`.
      title: its name for readers, in a picture's caption.
      text: what it does to values; of codecs.
      setting: the field of `Settings` that has it. `compressor` may name any, and is then another spelling of that.
      rounds: whether a compressor rounds by itself, so that no codec may round as well.
      step: what values are multiples of where a codec's name says no other; `None` where they are of none.
      marker: of its points, a key of `SHAPES`; `None` for the circles of messages without loss.
    """

    form: str
    title: str
    text: str = ""
    setting: str = "compressor"
    rounds: bool = False
    step: float | None = None
    marker: str | None = None

    @property
    def name(self) -> str:
        """What it is called in flags and by the library."""
        return self.form.partition(":")[0]


COMPRESSIONS = {
    row.name: row
    for row in (
        Compression("lossless", "lossless", "float32 as it is, gaps and values through an entropy coder", "uplink"),
        Compression("float16", "float16", "values rounded to float16", "uplink", marker="s"),
        Compression(
            "quantised:STEP", "quantised", "values rounded to multiples of STEP, 0.01 say", "uplink", step=0.01,
            marker="D",
        ),
        Compression("threshold:EPSILON", "threshold", setting="threshold"),
        Compression("top_k:SHARE", "top-k", marker="^"),
        Compression("qsgd:LEVELS", "QSGD", rounds=True, marker="D"),
        Compression("stc:SHARE", "top-k of one magnitude", rounds=True, marker="v"),
    )
}  # fmt: skip
SHAPES = {
    "s": "squares", "D": "diamonds", "^": "triangles", "v": "triangles on their points", "p": "pentagons",
    "h": "hexagons",
}  # fmt: skip
"""Of points in a picture, by Matplotlib's marker."""
_UNKNOWN = "P"


def compression_of(name: str | None) -> Compression | None:
    """Returns the row of a name with its number, `"quantised:0.01"`; `None` if there is none."""
    return COMPRESSIONS.get((name or "").partition(":")[0])


def forms_of(setting: str) -> str:
    """Returns how the values of a field are written, for a flag's text."""
    return ", ".join(row.form for row in COMPRESSIONS.values() if row.setting == setting)


def step_of(name: str | None) -> float | None:
    """Returns what the values of a codec are multiples of; `None` if they are of none."""
    row = compression_of(name)
    return None if name is None or row is None or row.step is None else float(name.partition(":")[2] or row.step)


def marker_of(name: str | None) -> str | None:
    """Returns the marker of a name; `None` without loss, and one of its own for what is in no row."""
    row = compression_of(name)
    return row.marker if row is not None else _UNKNOWN if name else None


def legend() -> str:
    """What the markers stand for, in words."""
    shapes = {
        words: ", ".join(row.title for row in COMPRESSIONS.values() if row.marker == marker)
        for marker, words in SHAPES.items()
    }
    return "; ".join(f"{words}: {titles}" for words, titles in shapes.items() if titles)
