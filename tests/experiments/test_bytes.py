"""Bytes really encoded: of every message, of what an aggregator hides, and of the downlink."""

from __future__ import annotations

import collections
import types
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from experiments.aggregation import build_aggregation
from experiments.bytes import ByteCounter, MessageMismatchError, flatten
from experiments.experiment_config import ExperimentConfig
from experiments.histogram import EDGES, count_magnitudes
from tff_fen.codec import Float16Codec, LosslessCodec, QuantisedCodec, parse_codec
from tff_fen.process import ClientMessage


def counter(
    messages: Sequence[str] = ("delta",), releases: Sequence[str] | None = None, **settings: Any
) -> ByteCounter:
    process: Any = types.SimpleNamespace(messages=tuple(messages), releases=tuple(releases or messages))
    return ByteCounter(process, **settings)


def message(vector: np.ndarray, control: np.ndarray | None = None) -> ClientMessage:
    delta = (vector[:3], vector[3:].reshape(2, -1))
    sent = delta if control is None else collections.OrderedDict(delta=delta, control=(control,))
    return ClientMessage(np.int64(1), sent)


def test_uplink_counts_are_the_lengths_of_messages() -> None:
    rng = np.random.default_rng(0)
    vectors = [np.where(rng.random(1003) < 0.1, rng.normal(size=1003), 0).astype(np.float32) for _ in range(3)]
    controls = [rng.normal(size=20).astype(np.float32) for _ in range(3)]
    both = counter(("delta", "control"), counted=[Float16Codec(), QuantisedCodec(0.01)])
    counts, histogram = both.count_uplink([message(v, c) for v, c in zip(vectors, controls, strict=True)])
    assert counts["uplink_bytes"] == sum(len(LosslessCodec().encode(v)) for v in vectors)
    assert counts["uplink_control_bytes"] == sum(len(LosslessCodec().encode(c)) for c in controls)
    assert counts["uplink_bytes_float16"] == sum(len(Float16Codec().encode(v)) for v in vectors)
    assert counts["uplink_control_bytes_quantised:0.01"] == sum(len(QuantisedCodec(0.01).encode(c)) for c in controls)
    assert histogram.sum() == 3 * 1003
    assert histogram[0] == sum(np.count_nonzero(v == 0) for v in vectors)


def test_a_message_that_the_server_did_not_get_is_found() -> None:
    quantised = counter(codec=parse_codec("quantised:0.01"))
    quantised.count_uplink([message(np.array([0, 0.01, 0, 0.02, -0.03, 0, 0], np.float32))])
    with pytest.raises(MessageMismatchError, match=r"quantised:0.01"):
        quantised.count_uplink([message(np.array([0, 0.012, 0, 0, 0, 0, 0], np.float32))])


def test_messages_are_decoded_as_those_of_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = []
    decode = QuantisedCodec.decode

    def note(self: QuantisedCodec, message: bytes, **settings: Any) -> np.ndarray:
        expected.append(settings)
        return decode(self, message, **settings)

    monkeypatch.setattr(QuantisedCodec, "decode", note)
    counter(codec=parse_codec("quantised:0.5")).count_uplink([message(np.zeros(7, np.float32))])
    assert expected == [{"length": 7, "step": 0.5, "finite": True}]


def test_other_ways_to_encode() -> None:
    vector = np.zeros(1003, np.float32)
    for name, expected in (("compression", 1003 + 2 * 8), ("secure", 4 * 1003)):
        message_bytes = build_aggregation(ExperimentConfig(l2=0.1, aggregator=name), 10).message_bytes
        assert counter(message_bytes=message_bytes).count_uplink([message(vector)])[0] == {"uplink_bytes": expected}
        # Signs are a second message where the server never sees a client's delta.
        hidden = counter(releases=("delta", "sign"), message_bytes=message_bytes)
        counts = hidden.count_uplink([message(vector), message(vector)])[0]
        assert counts == {"uplink_bytes": 2 * expected, "uplink_sign_bytes": 2 * expected}
    seen = counter(releases=("delta", "sign"))
    assert list(seen.count_uplink([message(vector)])[0]) == ["uplink_bytes"], "else they follow from delta"


def test_a_codec_that_only_counts_stops_nothing() -> None:
    messages = [message(np.array([1.0, 0, 0, 0, 0, 0, 0], np.float32))] * 2
    counts, _ = counter(counted=[parse_codec("quantised:1e-09"), Float16Codec()]).count_uplink(messages)
    assert counts["uplink_bytes_quantised:1e-09"] is None and counts["uplink_bytes_float16"] is not None


def test_downlink() -> None:
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=100).astype(np.float32), rng.normal(size=(3, 5)).astype(np.float32)]
    one = len(LosslessCodec().encode(flatten(weights)))
    counted = counter().count_downlink(weights, {"control": weights[:1]}, 7)
    assert counted["downlink_bytes"] == 7 * one and 0 < counted["downlink_control_bytes"] < 7 * one
    assert list(counter().count_downlink(weights, {}, 7)) == ["downlink_bytes"]


def test_histogram_of_magnitudes() -> None:
    counts = count_magnitudes(np.array([0, 0, 1e-9, -1.1e-8, 0.0101, 100], np.float32))
    assert counts[0] == 2 and counts[1] == 1 and counts[2] == 1 and counts[-1] == 1 and counts.sum() == 6
    place = int(np.searchsorted(EDGES, 0.0101)) + 1
    assert counts[place] == 1
