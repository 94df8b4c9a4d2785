"""The cipher against its standard, the numbers against SciPy, and keys that are never used twice."""

from __future__ import annotations

import pathlib
import struct

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from scipy import stats

import tff_fen
from tests.support import models
from tff_fen.aggregators import noise

VALUE = tff.to_type([(np.float32, [3]), (np.float32, [2, 2])])
ZEROS = [np.zeros(3, np.float32), np.zeros((2, 2), np.float32)]


def test_the_cipher_is_that_of_rfc_8439() -> None:
    """Section 2.3.2: the block of counter 1; beside another one, so that blocks in one call are what they are alone."""
    key = tf.constant(np.frombuffer(bytes(range(32)), "<u4"))
    blocks = noise.chacha20(key, tf.constant([7, 1], tf.uint32), (0x09000000, 0x4A000000, 0)).numpy()
    assert blocks[:, 1].astype("<u4").tobytes().hex() == (
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )


def block(key: bytes, counter: int) -> list[int]:
    """One block of the cipher, word by word as the RFC writes it."""

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for x, y, z, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            state[x] = (state[x] + state[y]) % 2**32
            mixed = state[z] ^ state[x]
            state[z] = (mixed << bits | mixed >> 32 - bits) % 2**32

    start = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), counter, 0, 0, 0]
    state = list(start)
    for _ in range(10):
        for i in range(4):
            quarter(i, 4 + i, 8 + i, 12 + i)
        for i in range(4):
            quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return [(x + y) % 2**32 for x, y in zip(state, start, strict=True)]


@pytest.mark.parametrize("size", [1, 8, 21])
def test_normal_numbers_are_those_of_the_key_stream(size: int) -> None:
    key = bytes(range(100, 132))
    blocks = np.array([block(key, counter) for counter in range(-(-size // 8))], np.uint64)
    high, low = blocks.T.reshape(2, -1)[:, :size]
    expected = stats.norm.ppf(((high << 20 | low >> 12).astype(float) + 0.5) / 2**52)
    found = noise.normal(tf.constant(np.frombuffer(key, "<u4")), tf.constant(size))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_normal_numbers_are_normal() -> None:
    key = tf.constant(np.frombuffer(bytes(32), "<u4"))
    numbers = noise.normal(key, tf.constant(200_000)).numpy()
    assert stats.kstest(numbers, "norm").pvalue > 1e-3
    assert len(np.unique(numbers)) == len(numbers), "no block comes twice"
    neighbours = np.corrcoef([numbers[:-1], numbers[1:]])[0, 1]
    halves = np.corrcoef([numbers[:100_000], numbers[100_000:]])[0, 1]
    assert abs(neighbours) < 0.01 and abs(halves) < 0.015


def test_keys_are_bytes_of_the_source_each_of_them_new(tmp_path, monkeypatch) -> None:
    keys = tf.function(lambda: (noise.read_key(), noise.read_key()))
    drawn = np.concatenate([keys() for _ in range(50)])
    assert len(np.unique(drawn)) == drawn.size, "a word of a key came twice"
    bits = np.unpackbits(np.ascontiguousarray(drawn).view(np.uint8))
    assert abs(bits.mean() - 0.5) < 0.03 and not set(drawn.view(np.uint8).flat) & set(b"\r\n")
    known = np.random.default_rng(0).bytes(5000)
    (tmp_path / "source").write_bytes(known)
    monkeypatch.setattr(noise, "SOURCE", str(tmp_path / "source"))
    assert noise.read_key().numpy().tobytes() == known.translate(None, b"\r\n")[:32]


def test_too_few_random_bytes_stop_the_round(tmp_path, monkeypatch) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"0123456789\n" * 2)
    monkeypatch.setattr(noise, "SOURCE", str(source))
    with pytest.raises(tf.errors.InvalidArgumentError):
        noise.add_normal_noise(ZEROS, tf.constant(1.0))
    source.unlink()
    with pytest.raises(RuntimeError, match=f"found no {source}"):
        tff_fen.build_dp_factory(1.0, 2, 1.0)
    with pytest.raises(tf.errors.NotFoundError, match=str(source)):
        noise.read_key()


def test_aggregates_of_one_round_and_of_the_next_have_keys_of_their_own() -> None:
    """Equal factories on equal values, which a compiler may take for one computation."""
    first, second = (factory.create(VALUE) for factory in tff_fen.build_dp_pair(1.0, 2, 1.0, 1.0))

    @tff.federated_computation(first.initialize.type_signature.result, tff.FederatedType(VALUE, tff.CLIENTS))
    def release(state, values):
        outputs = [process.next(state, values) for process in (first, second, first)]
        return tuple(output.result for output in outputs)

    rounds = [release(first.initialize(), [ZEROS] * 2) for _ in range(2)]
    numbers = np.concatenate([np.ravel(leaf) for leaf in tf.nest.flatten(rounds)])
    assert len(np.unique(numbers)) == numbers.size == 2 * 3 * 7


def two_releases() -> np.ndarray:
    """Noise alone of two rounds from one state, in the context that is installed; [2, 7]."""
    process = tff_fen.build_dp_factory(1.0, 2, 1.0).create(VALUE)
    state = process.initialize()
    outputs = [process.next(state, [ZEROS] * 2).result for _ in range(2)]
    return np.array([np.concatenate([np.ravel(leaf) for leaf in result]) for result in outputs])


def test_releases_on_native_differ() -> None:
    """With the operating system's own source, in the processes of TFF's workers."""
    context = tff.backends.test.create_sync_test_cpp_execution_context()
    with tff.framework.get_context_stack().install(context):
        released = np.array([two_releases(), two_releases()])
    assert noise.SOURCE == "/dev/urandom" and np.all(released != 0)
    assert len(np.unique(released)) == released.size


@pytest.mark.long
@pytest.mark.xdist_group("ray")
@pytest.mark.filterwarnings("ignore:threads_per_client:RuntimeWarning")
def test_releases_on_ray_differ() -> None:
    context = tff_fen.runtime.create_ray_context(num_workers=2)
    try:
        with tff.framework.get_context_stack().install(context):
            released = np.array([two_releases(), two_releases()])
    finally:
        tff_fen.runtime.end_ray_cluster()
    assert noise.SOURCE == "/dev/urandom" and np.all(released != 0)
    assert len(np.unique(released)) == released.size


def test_states_are_those_of_tffs_own_gaussian() -> None:
    """So that checkpoints of it go on."""
    ours = tff_fen.build_dp_factory(1.5, 2, 3.0).create(VALUE).initialize()
    theirs = tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(1.5, 2, 3.0).create(VALUE).initialize()
    assert repr(ours) == repr(theirs)


def test_fed_avg_takes_the_factory() -> None:
    net, training = tff_fen.ElasticNet(), tff_fen.LocalTraining(0.1, batch_size=4)
    data = [models.dataset(*models.examples(8, features=4, seed=k)) for k in range(2)]
    model = models.softmax_regression(4)
    steps = []
    for multiplier in (0.0, 100.0):
        factory = tff_fen.build_dp_factory(multiplier, 2, 0.01)
        process = tff_fen.build_fed_avg(model, net, training, aggregator=factory)
        state = process.initialize()
        before, after = (process.get_model_weights(s).trainable for s in (state, process.next(state, data).state))
        steps.append(np.linalg.norm(np.concatenate([np.ravel(b - a) for a, b in zip(before, after, strict=True)])))
    assert 0 < steps[0] <= 0.0101 < 0.1 < steps[1], "clipped to 0.01, and noise of 0.5 per element"


def test_known_keys_give_known_noise(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way through TFF: noise of the key in the source, times the deviation, over the denominator."""
    known = bytes(range(100, 132))
    (tmp_path / "source").write_bytes(known)
    monkeypatch.setattr(noise, "SOURCE", str(tmp_path / "source"))
    process = tff_fen.build_dp_factory(2.0, 4, 3.0).create(VALUE)
    result = process.next(process.initialize(), [ZEROS] * 4).result
    expected = noise.normal(tf.constant(np.frombuffer(known, "<u4")), tf.constant(7)).numpy() * 2.0 * 3.0 / 4
    np.testing.assert_allclose(np.concatenate([np.ravel(leaf) for leaf in result]), expected, rtol=1e-6)
