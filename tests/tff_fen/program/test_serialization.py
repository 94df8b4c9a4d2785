"""Structures as bytes: bit for bit, named differences, and fast."""

from __future__ import annotations

import collections
import struct
from typing import Any, NamedTuple

import attrs
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from tests.support import models
from tff_fen.program.serialization import from_bytes, to_bytes


class Pair(NamedTuple):
    first: Any
    second: Any


@attrs.define
class Attrs:
    weights: Any
    _hidden: Any


def strings(*items: str | bytes) -> np.ndarray:
    return np.array(items, dtype=object)


NAN = np.array([0x7FC00001, 0xFF800000, 0x80000000, 0x00000001], np.uint32).view(np.float32)
LEAVES = [
    np.float32(0.1),
    np.int32(-5),
    np.int64(2**62),
    np.bool_(True),
    np.float16(1.5),
    np.uint8(255),
    np.complex64(1 + 2j),
    tf.constant(1.5, tf.bfloat16).numpy(),
    tf.zeros([3], tf.bfloat16).numpy(),
    NAN,
    np.zeros((0, 3), np.float32),
    np.zeros((2, 0), np.int64),
    np.array(7.0),
    np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
    np.arange(20)[::3],
    np.array([True, False]),
    np.array(["a", "bcd"]),
    np.array([b"a", b"bcd"]),
    3,
    2.5,
    True,
    "text, ü",
    "",
    b"bytes\x00\x00",
    b"",
    strings(b"a\x00", b"", b"bcd"),
    strings("x", b"y"),
    strings(),
]


def assert_same(actual: Any, expected: Any) -> None:
    """Asserts that two leaves are of the same type and have the same bits."""
    assert type(actual) is type(expected)
    if isinstance(expected, (np.ndarray, np.generic)):
        assert actual.dtype == expected.dtype and actual.shape == expected.shape
        if expected.dtype.hasobject:
            assert list(actual.flat) == list(expected.flat)
        else:
            assert actual.tobytes() == expected.tobytes()
    else:
        assert actual == expected


@pytest.mark.parametrize("leaf", LEAVES, ids=repr)
def test_a_leaf_comes_back_bit_for_bit(leaf: Any) -> None:
    assert_same(from_bytes(to_bytes(leaf), like=leaf), leaf)
    assert_same(from_bytes(to_bytes([leaf, 1]), like=[leaf, 1])[0], leaf)


def test_containers_come_from_the_like() -> None:
    def build(offset: int) -> Any:
        return Pair(
            collections.OrderedDict(z=[np.int32(1 + offset)], a=(), b={7: np.int32(2 + offset)}),
            [
                (),
                None,
                Attrs(np.float32(3 + offset), (np.float32(4 + offset),)),
                tff.structure.Struct([("x", np.int32(5 + offset)), (None, np.int32(6 + offset))]),
                {},
                Pair([], np.int32(7 + offset)),
            ],
        )

    actual, expected = from_bytes(to_bytes(build(0)), like=build(100)), build(0)
    assert actual == expected
    assert repr(actual) == repr(expected)
    assert type(actual.first) is collections.OrderedDict and list(actual.first) == ["z", "a", "b"]


def test_the_order_of_a_mapping_does_not_matter_and_is_that_of_like() -> None:
    back = from_bytes(to_bytes({"a": 1, "b": 2}), like={"b": 0, "a": 0})
    assert list(back.items()) == [("b", 2), ("a", 1)]


def test_arrays_of_the_other_byte_order_come_back_in_this_one() -> None:
    back = from_bytes(to_bytes(np.array([1, 2], ">i4")), like=np.zeros(2, np.int32))
    assert back.tolist() == [1, 2] and back.dtype == np.int32


def test_the_bytes_are_as_documented() -> None:
    content = to_bytes({"w": np.array([1.0, -2.0], np.float32)})
    header = b'[{"path":["w"],"dtype":"<f4","shape":[2],"size":8}]'
    assert content[:8] == b"tff_fen1" and int.from_bytes(content[8:16], "little") == 112
    assert content[16:128] == header.ljust(112)
    assert content[128:136] == bytes.fromhex("0000803f000000c0") and len(content) == 192


@pytest.mark.parametrize(
    ("stored", "like", "message"),
    [
        ({"a": 1}, {"b": 1}, "has no leaf b; it has a"),
        ([1, 2], [1, 2, 3], r"has no leaf \[2\]; it has \[0\], \[1\]"),
        (Pair([1, 2], 3), Pair([1], 3), r"leaves that are not expected: first\[1\]"),
        ([], [1], r"has no leaf \[0\]; it has none"),
        (1, [1], r"has no leaf \[0\]; it has \(the structure\)"),
        ([np.int32(1)], [np.int64(1)], r"Leaf \[0\] must be <i8 of shape \[\], found <i4 of shape \[\]"),
        (Pair(1, np.zeros(2)), Pair(1, np.zeros(3)), r"Leaf second must be <f8 of shape \[3\], found .* shape \[2\]"),
        ({"w": {"k": np.zeros((2, 3))}}, {"w": {"k": np.zeros((3, 2))}}, r"Leaf w\.k .*\[3, 2\], found .*\[2, 3\]"),
        (b"x", 1, r"Leaf \(the structure\) must be <i8 .*found strings"),
        (np.zeros(2, np.float16), tf.zeros([2], tf.bfloat16).numpy(), "must be bfloat16 .*found <f2"),
    ],
)
def test_what_differs_from_like_is_named(stored: Any, like: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_bytes(to_bytes(stored), like=like)


@pytest.mark.parametrize("leaf", [object(), np.array([object()]), np.datetime64("2020-01-01"), {1, 2}])
def test_what_is_no_number_and_no_string_is_refused(leaf: Any) -> None:
    with pytest.raises(TypeError, match=r"Leaf state\[1\] must be"):
        to_bytes({"state": [1, leaf]})


def test_other_bytes_are_refused() -> None:
    content = to_bytes([np.zeros(100)])
    headers = (b"[{}]", b"3", b"\xff", b"[" * 100_000, b'[{"size": 0, "path": [[]]}]')
    for wrong, message in [
        (b"", "is not a stored structure: it begins with b''"),
        (b"x" * 100, "is not a stored structure"),
        (content[:20], "is cut off"),
        (content[:-1], r"must have \d+ bytes by its header, found"),
        (content + b"x", r"must have \d+ bytes by its header, found"),
        *((content[:8] + struct.pack("<Q", len(header)) + header, "has a header that is none") for header in headers),
    ]:
        with pytest.raises(ValueError, match=message):
            from_bytes(wrong, like=[np.zeros(100)])
    with pytest.raises(TypeError, match="content must be bytes, found None"):
        from_bytes(None, like=[])  # type: ignore[arg-type]


def test_arrays_are_views_aligned_and_read_only() -> None:
    content = to_bytes([np.int8(1), np.arange(1000.0), b"abc", np.arange(10.0)])
    _, first, _, second = from_bytes(content, like=[np.int8(0), np.zeros(1000), b"", np.zeros(10)])
    for array in (first, second):
        assert np.shares_memory(array, np.frombuffer(content, np.uint8))
        assert array.flags.aligned and not array.flags.writeable


@pytest.mark.parametrize("algorithm", ["fed_dyn", "scaffold"])
def test_a_stateful_run_goes_on_from_bytes_as_from_the_states_themselves(algorithm: str) -> None:
    builder: Any = {"fed_dyn": tff_fen.build_fed_dyn, "scaffold": tff_fen.build_scaffold}[algorithm]
    elastic_net = tff_fen.ElasticNet(l1=0.01, l2=0.1, threshold=1e-4)
    training = tff_fen.LocalTraining(0.1, batch_size=4)
    robust = tff.learning.robust_aggregator(weighted=True)
    process = builder(models.two_layer_mlp(), elastic_net, training, num_clients=3, aggregator=robust)
    data = [models.dataset(*models.examples(8, seed=k)) for k in range(3)]
    # A new process, as after a restart, and its initial states give the containers.
    server_like, client_like = process.initialize(), process.initialize_client(0)

    def play(through_bytes: bool) -> bytes:
        state, clients = process.initialize(), {k: process.initialize_client(k) for k in range(3)}
        for participants in ((0, 1), (1, 2), (0, 2)):
            inputs = [tff_fen.ClientInput(clients[k], data[k]) for k in participants]
            state, new, _ = process.next(state, inputs)
            clients.update((int(client.client_id), client) for client in new)
            if through_bytes:
                state = from_bytes(to_bytes(state), like=server_like)
                clients = {k: from_bytes(to_bytes(client), like=client_like) for k, client in clients.items()}
        return to_bytes([state, clients])

    assert play(True) == play(False)


@pytest.mark.parametrize(
    "aggregator",
    [
        tff.learning.robust_aggregator(weighted=True),
        tff.learning.compression_aggregator(weighted=True),
        tff.learning.dp_aggregator(0.1, 10),
        tff.learning.ddp_secure_aggregator(0.1, 10),
    ],
    ids=["robust", "compression", "dp", "ddp"],
)
def test_states_of_the_aggregators_of_tff_come_back(aggregator: Any) -> None:
    value_type = tff.to_type([(np.float32, [30_000]), (np.float32, [2])])
    if isinstance(aggregator, tff.aggregators.WeightedAggregationFactory):
        process = aggregator.create(value_type, tff.TensorType(np.float32))
    else:
        process = aggregator.create(value_type)
    state = process.initialize()
    back = from_bytes(to_bytes(state), like=process.initialize())
    assert to_bytes(back) == to_bytes(state)
    assert repr(back) == repr(state)
