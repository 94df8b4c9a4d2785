"""The local loop compiled by XLA: the same numbers as without, for any size of client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from tests.support import models
from tests.support.runtime_suite import create_context, evaluate_on
from tests.tff_fen.runtime import test_gpu_kernels
from tff_fen.client_work import batches

# Of minibatches of 4: fewer than one, one, some and a rest, some.
SIZES = (3, 4, 9, 16)
PENALTIES = tff_fen.ElasticNet(l1=1e-3, l2=0.1)
SETTINGS: dict[str, Any] = dict(epochs=2, batch_size=4, weight_decay=1e-3, clip_norm=0.5, lr_decay=0.9)
MODELS: dict[str, tuple[Callable[[], Any], Callable[[int], Any]]] = {
    "MLP": (models.two_layer_mlp, lambda k: models.examples(SIZES[k], seed=k)),
    "CNN": (test_gpu_kernels.cnn, lambda k: _images(SIZES[k], k)),
    "LSTM": (test_gpu_kernels.lstm, lambda k: _texts(SIZES[k], k)),
}


def _images(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 16)).astype(np.float32), rng.integers(0, 4, n).astype(np.int32)


def _texts(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 20, (n, 5)).astype(np.int32), rng.integers(0, 4, n).astype(np.int32)


def after_two_rounds(build_model: Callable[[], Any], data: dict[int, Any], *, xla: bool, **settings: Any) -> Any:
    """Theta, a client's state and the metrics, in process."""
    training = tff_fen.LocalTraining(0.1, xla=xla, **(SETTINGS | settings))
    process = tff_fen.build_fed_dyn(build_model(), PENALTIES, training, num_clients=len(data))

    def run() -> Any:
        result = tff_fen.run_rounds(process, data, lambda t: data, 2, progress=False)
        return process.get_model_weights(result.state).trainable, result.client_state(2).gradient, result.metrics[-1]

    return evaluate_on(create_context(), run)


@pytest.mark.parametrize("name", ["MLP", *(pytest.param(name, marks=pytest.mark.long) for name in ("CNN", "LSTM"))])
def test_the_same_numbers(name: str) -> None:
    build_model, examples = MODELS[name]
    data = {k: examples(k) for k in range(len(SIZES))}
    plain, compiled = (after_two_rounds(lambda: _seeded(build_model), data, xla=xla) for xla in (False, True))
    for weights in (0, 1):
        for a, b in zip(plain[weights], compiled[weights], strict=True):
            np.testing.assert_allclose(b, a, atol=1e-5)
    for column in ("loss", "num_examples", "contributing_clients"):
        name = f"client_work/train/{column}"
        assert compiled[2][name] == pytest.approx(plain[2][name], rel=1e-5)
    assert any(np.abs(g).max() > 1e-3 for g in plain[1])


def _seeded(build_model: Callable[[], Any]) -> Any:
    tf.keras.utils.set_random_seed(1)
    return build_model()


def test_xla_really_compiles() -> None:
    """An operation that XLA does not know is refused in the loop, which shows that XLA has it."""
    data = {k: models.examples(n, seed=k) for k, n in enumerate(SIZES)}
    after_two_rounds(_with_fingerprint, data, xla=False)
    with pytest.raises(tff_fen.runtime.ClientWorkError) as caught:
        after_two_rounds(_with_fingerprint, data, xla=True)
    assert "Fingerprint" in str(caught.value.__cause__)


def _with_fingerprint() -> Any:
    def add_digest(x: tf.Tensor) -> tf.Tensor:
        digest = tf.raw_ops.Fingerprint(data=tf.reshape(tf.cast(x > 0, tf.uint8), [1, -1]), method="farmhash64")
        return x + 1e-30 * tf.cast(tf.reduce_sum(digest), tf.float32)

    return models.from_layers([tf.keras.layers.Lambda(add_digest), tf.keras.layers.Dense(4)], 6)


@pytest.mark.parametrize(
    ("number", "expected"), [(0, 1), (1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (1024, 1024), (1025, 2048)]
)
def test_power_of_two(number: int, expected: int) -> None:
    assert int(batches._power_of_two(tf.constant(number))) == expected


@pytest.mark.parametrize("power", [20, 29])
def test_large_powers_of_two_are_themselves(power: int) -> None:
    assert int(batches._power_of_two(tf.constant(2**power))) == 2**power
    assert int(batches._power_of_two(tf.constant(2**power - 1))) == 2**power
    assert int(batches._power_of_two(tf.constant(2 ** (power - 1) + 1))) == 2**power


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        (dict(xla=True), ValueError, "LocalTraining.xla needs a batch_size, found None"),
        (dict(xla=1, batch_size=4), TypeError, "LocalTraining.xla must be a bool, found 1"),
        (
            dict(xla=True, batch_size=4, augment=lambda b, k: b),
            ValueError,
            "draws other random numbers than TensorFlow",
        ),
    ],
)
def test_rejections(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        tff_fen.LocalTraining(0.1, **settings)


def test_native_gives_the_same_numbers() -> None:
    data = {k: models.examples(n, seed=k) for k, n in enumerate(SIZES[:2])}
    training = tff_fen.LocalTraining(0.1, xla=True, **SETTINGS)
    process = tff_fen.build_fed_dyn(models.two_layer_mlp(), PENALTIES, training, num_clients=2)

    def run() -> Any:
        result = tff_fen.run_rounds(process, data, lambda t: data, 1, progress=False)
        return process.get_model_weights(result.state).trainable

    native = evaluate_on(tff.framework.get_context_stack().current, run)
    for a, b in zip(native, evaluate_on(create_context(), run), strict=True):
        np.testing.assert_allclose(b, a, atol=1e-6)
