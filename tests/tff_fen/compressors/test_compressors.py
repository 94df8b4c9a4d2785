"""Compressors alone: exact values, unbiasedness, and bytes that give back what the server aggregates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.support import reference
from tff_fen.codec import QuantisedCodec, parse_compressor
from tff_fen.compressors.qsgd import Qsgd
from tff_fen.compressors.stc import Stc
from tff_fen.compressors.top_k import TopK

SEED = tf.constant([3, 5])
MESSAGE = (
    tf.constant([[0.5, -3.0, 0.0], [1.0, 0.25, -0.5]]),
    tf.constant([2.0, -1.5, 0.1, 0.0]),
)


def compress(compressor: Any, message: Any = MESSAGE, seed: tf.Tensor = SEED) -> tuple[np.ndarray, Any]:
    """What the server gets, as a vector, and the step."""
    compressed = tf.function(compressor.compress)(message, seed)
    tf.nest.assert_same_structure(compressed.message, message)
    assert [x.shape for x in compressed.message] == [x.shape for x in message]
    return np.concatenate([np.ravel(x) for x in compressed.message]), compressed.step


def test_top_k_keeps_the_largest_of_all_tensors() -> None:
    sent, step = compress(TopK(0.3))
    assert sent.tolist() == [0, -3, 0, 0, 0, 0, 2, -1.5, 0, 0] and step is None
    assert compress(TopK(1.0))[0].tolist() == np.concatenate([np.ravel(x) for x in MESSAGE]).tolist()


def test_stc_sends_one_magnitude() -> None:
    sent, step = compress(Stc(0.35))  # ceil(0.35 * 10) = 4 elements: 3, 2, 1.5, 1
    assert step == 1.875
    assert sent.tolist() == [0, -1.875, 0, 1.875, 0, 0, 1.875, -1.875, 0, 0]


def test_qsgd_rounds_to_the_levels_beside() -> None:
    vector = np.concatenate([np.ravel(x) for x in MESSAGE])
    sent, step = compress(Qsgd(4))
    np.testing.assert_allclose(step, np.linalg.norm(vector) / 4, rtol=1e-6)
    draw = tf.random.stateless_uniform(vector.shape, SEED, alg="philox").numpy()
    np.testing.assert_allclose(sent, reference.qsgd(vector.astype(float), 4, draw), rtol=1e-6)
    assert len({*np.rint(sent / step)}) > 2, "several levels must occur"


@pytest.mark.long
def test_qsgd_has_the_message_as_its_mean() -> None:
    x = tf.constant(np.random.default_rng(0).normal(size=40).astype(np.float32))
    draws = 4000
    sent = tf.map_fn(
        lambda i: Qsgd(2).compress((x,), tf.stack([i, 7])).message[0], tf.range(draws), fn_output_signature=tf.float32
    ).numpy()
    step = np.linalg.norm(x) / 2
    # A draw's standard deviation is at most step / 2: five standard errors.
    assert np.abs(sent.mean(0) - x).max() < 5 * step / 2 / np.sqrt(draws)
    assert np.abs(sent - x).max() < step * 1.0001
    assert not np.array_equal(sent[0], sent[1]), "another seed, another draw"


@pytest.mark.parametrize("compressor", [Qsgd(1), Qsgd(255), Stc(0.1), Stc(1.0)], ids=lambda c: c.name)
def test_the_bytes_of_steps_give_back_what_is_aggregated(compressor: Any) -> None:
    x = (np.random.default_rng(1).standard_t(2, 5000) * 0.02).astype(np.float32)
    sent, step = compress(compressor, (tf.constant(x),))
    codec = QuantisedCodec(float(step))
    np.testing.assert_array_equal(codec.decode(codec.encode(sent)), sent)
    assert len(codec.encode(sent)) < x.nbytes / 3


@pytest.mark.parametrize("compressor", [TopK(0.5), Qsgd(4), Stc(0.5)], ids=lambda c: c.name)
def test_nothing_to_send_is_zeros(compressor: Any) -> None:
    sent, step = compress(compressor, (tf.zeros([3]), tf.zeros([2, 2])))
    assert not sent.any() and (step is None or step == 1.0)


@pytest.mark.parametrize("compressor", [Qsgd(4), Stc(1.0)], ids=lambda c: c.name)
def test_what_is_not_finite_stays_so(compressor: Any) -> None:
    assert not np.isfinite(compress(compressor, (tf.constant([1.0, np.inf]),))[0]).all()


@pytest.mark.parametrize("name", ["top_k:0.1", "qsgd:16", "stc:0.05"])
def test_names_are_read_back(name: str) -> None:
    assert parse_compressor(name).name == name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("topk:0.1", r"kind of compressor must be one of 'top_k', 'qsgd', 'stc', found 'topk'. Did you mean 'top_k'"),
        ("top_k", r"compressor must be 'top_k:SHARE', found 'top_k'"),
        ("top_k:0", r"TopK.share must be a finite number > 0, found 0.0"),
        ("stc:1.5", r"Stc.share must be a share of the elements, at most 1, found 1.5"),
        ("qsgd:2.5", r"compressor must be 'qsgd:LEVELS', found 'qsgd:2.5'"),
        ("qsgd:0", r"Qsgd.levels must be an integer from 1"),
    ],
)
def test_bad_names(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_compressor(name)
