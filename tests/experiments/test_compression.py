"""The table of codecs and compressors: it is the library's, and what reads it needs no name."""

from __future__ import annotations

import pathlib
import re

import pytest

from experiments.compression import COMPRESSIONS, SHAPES, compression_of, legend, marker_of, step_of
from experiments.report.texts import PARETO
from experiments.settings import FIELDS, VALUES
from tff_fen.codec import CODECS, COMPRESSORS, parse_codec, parse_compressor

ROWS = {setting: [row for row in COMPRESSIONS.values() if row.setting == setting] for setting in FIELDS}
READERS = pathlib.Path(__file__).parents[2] / "experiments"


def test_the_rows_are_the_librarys_codecs() -> None:
    assert [type(parse_codec(row.name)) for row in ROWS["uplink"]] == [*CODECS]
    assert [parse_codec(row.name).step for row in ROWS["uplink"]] == [row.step for row in ROWS["uplink"]]
    assert not any(row.rounds for row in ROWS["uplink"])


def test_the_rows_are_the_librarys_compressors() -> None:
    made = [parse_compressor(f"{row.name}:1") for row in ROWS["compressor"]]
    assert [type(compressor) for compressor in made] == [*COMPRESSORS]
    assert [compressor.sends_steps for compressor in made] == [row.rounds for row in ROWS["compressor"]]
    assert len(ROWS["uplink"] + ROWS["compressor"] + ROWS["threshold"]) == len(COMPRESSIONS)


def test_flags_and_captions_tell_all_of_them() -> None:
    for row in COMPRESSIONS.values():
        assert row.form in VALUES["compressor"].text + VALUES["uplink"].text
        assert row.marker is None or row.marker in SHAPES
        assert row.marker is None or row.title in PARETO
    assert legend() == (
        "squares: float16; diamonds: quantised, QSGD; triangles: top-k; triangles on their points: top-k of one "
        "magnitude"
    )


@pytest.mark.parametrize(
    ("name", "step", "marker"),
    [
        (None, None, None), ("lossless", None, None), ("float16", None, "s"), ("quantised", 0.01, "D"),
        ("quantised:0.5", 0.5, "D"), ("stc:0.1", None, "v"), ("of_a_later_version:1", None, "P"),
    ],
)  # fmt: skip
def test_what_a_name_says(name: str | None, step: float | None, marker: str | None) -> None:
    assert (step_of(name), marker_of(name)) == (step, marker)
    assert (compression_of(name) is None) == (name is None or name.startswith("of_a"))


def test_no_other_module_knows_a_compressor() -> None:
    """But for `top_k`, a setting of its own, and in examples that messages and texts give."""
    names = "|".join(name for name in COMPRESSIONS if name not in ("threshold", "top_k", "lossless"))
    naming = {
        path.name
        for path in READERS.rglob("*.py")
        if re.search(rf"[\"'](?:{names})[\"':]", path.read_text())
    }  # fmt: skip
    assert naming == {"compression.py"}
