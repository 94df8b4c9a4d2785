"""Compressors and codecs by name: what makes a message cheaper, and the bytes that would really be sent.

    codec = parse_codec("quantised:0.01")
    message = codec.encode(vector)              # len(message) bytes go over the wire
    codec.decode(message)                       # float32[n], the same bits as codec.apply(vector)
    codec.decode(message, length=n, step=codec.step, finite=True)  # of a sender who may be hostile

Each codec has two halves in one file of `compressors`: `as_received`, TensorFlow code for a client's graph, which
cannot hold an entropy coder, and `encode`, `decode`, the bytes. Both round alike, so that client, server and decoder
have the same numbers.

    compressor = parse_compressor("qsgd:4")
    compressor.compress(message, seed)          # in the graph; its bytes are those of `QuantisedCodec(step)`
"""

from __future__ import annotations

import difflib

from tff_fen.checks import check_name, check_type
from tff_fen.compressors.compressor import Codec, Compressor
from tff_fen.compressors.float16 import Float16Codec
from tff_fen.compressors.lossless import LosslessCodec
from tff_fen.compressors.qsgd import Qsgd
from tff_fen.compressors.quantised import QuantisedCodec
from tff_fen.compressors.stc import Stc
from tff_fen.compressors.top_k import TopK
from tff_fen.entropy_coding.numbers import CodecError

__all__ = [
    "CODECS",
    "COMPRESSORS",
    "Codec",
    "CodecError",
    "Compressor",
    "Float16Codec",
    "LosslessCodec",
    "Qsgd",
    "QuantisedCodec",
    "Stc",
    "TopK",
    "parse_codec",
    "parse_compressor",
]


_KNOWN: dict[str, type[LosslessCodec] | type[Float16Codec] | type[QuantisedCodec]] = {
    "lossless": LosslessCodec,
    "float16": Float16Codec,
    "quantised": QuantisedCodec,
}
CODECS = tuple(_KNOWN.values())


def parse_codec(name: str) -> Codec:
    """The codec of a name: "lossless", "float16", "quantised" (step 0.01) or "quantised:STEP"."""
    check_type("codec", name, str, "Take 'lossless', 'float16' or 'quantised:0.01'.")
    kind, colon, step = name.partition(":")
    if kind not in _KNOWN:
        nearest = difflib.get_close_matches(kind, _KNOWN, n=1, cutoff=0.0)[0]
        raise ValueError(
            f"codec must be 'lossless', 'float16', 'quantised' or 'quantised:STEP', found {name!r}. "
            f"Did you mean {nearest!r}?"
        )
    if not colon:
        return _KNOWN[kind]()
    if kind != "quantised":
        raise ValueError(f"codec {kind!r} takes no step, found {name!r}. Take {kind!r}, or 'quantised:STEP'.")
    try:
        number = float(step)
    except ValueError:
        raise ValueError(f"codec must be 'quantised:STEP' with a number > 0 as STEP, found {name!r}.") from None
    return QuantisedCodec(number)


_KNOWN_COMPRESSORS: dict[str, tuple[type[TopK] | type[Qsgd] | type[Stc], type, str]] = {
    "top_k": (TopK, float, "SHARE"),
    "qsgd": (Qsgd, int, "LEVELS"),
    "stc": (Stc, float, "SHARE"),
}
COMPRESSORS = tuple(kind for kind, _, _ in _KNOWN_COMPRESSORS.values())


def parse_compressor(name: str) -> Compressor:
    """The compressor of a name: "top_k:SHARE", "qsgd:LEVELS" or "stc:SHARE"."""
    check_type("compressor", name, str, "Take 'top_k:0.1', say.")
    key, _, text = name.partition(":")
    check_name("kind of compressor", key, _KNOWN_COMPRESSORS)
    kind, number, what = _KNOWN_COMPRESSORS[key]
    try:
        value = number(text)
    except ValueError:
        raise ValueError(f"compressor must be '{key}:{what}', found {name!r}.") from None
    return kind(value)
