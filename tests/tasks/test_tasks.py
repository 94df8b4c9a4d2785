"""The paper's models and its sampling of clients: parameter counts and dense message counts to the digit."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from tasks import models
from tff_fen.program import sampling

BUILDERS: dict[str, Any] = {
    "MNIST": lambda **kw: models.build_mlp(784, 200, 10, **kw),
    "EMNIST-L": lambda **kw: models.build_mlp(784, 100, 10, **kw),
    "CIFAR-10": lambda **kw: models.build_cnn(10, **kw),
    "CIFAR-100": lambda **kw: models.build_cnn(100, **kw),
    "Shakespeare": models.build_lstm,
}
# Fact 10. The LSTM counts 800 fewer than the paper's PyTorch model, which has two bias vectors a gate.
PARAMETERS = {
    "MNIST": 199_210,
    "EMNIST-L": 89_610,
    "CIFAR-10": 797_962,
    "CIFAR-100": 815_332,
    "Shakespeare": 133_520 - 2 * 4 * 100,
}


@pytest.mark.parametrize("initializer", models.INITIALIZERS)
@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_parameter_counts_and_seeds(name: str, initializer: str) -> None:
    model, again, other = (BUILDERS[name](initializer=initializer, seed=s) for s in (1, 1, 2))
    assert model.count_params() == PARAMETERS[name]
    first = model.get_weights()[0]
    np.testing.assert_array_equal(first, again.get_weights()[0])
    assert np.any(first != other.get_weights()[0])


@pytest.mark.parametrize(("name", "fan_ins"), [("MNIST", [784, 200, 200]), ("CIFAR-10", [75, 1600, 1600, 384, 192])])
def test_torch_initializer_fills_its_range(name: str, fan_ins: list[int]) -> None:
    weights = BUILDERS[name](initializer="torch").get_weights()
    for fan_in, kernel, bias in zip(fan_ins, weights[::2], weights[1::2], strict=True):
        bound = 1 / np.sqrt(fan_in)
        assert 0.99 * bound < np.abs(kernel).max() <= bound
        assert 0.5 * bound < np.abs(bias).max() <= bound


def test_unknown_initializer() -> None:
    with pytest.raises(ValueError, match="initializer must be one of 'keras', 'torch', found 'he'"):
        models.build_lstm(initializer="he")


@pytest.mark.long
@pytest.mark.parametrize("name", ["CIFAR-10", "Shakespeare"])
def test_the_larger_models_train(name: str) -> None:
    """Convolutions and recurrence work as a FunctionalModel: a round of Algorithm 3 moves all weights."""
    rng = np.random.default_rng(0)
    if name == "CIFAR-10":
        x, y = rng.normal(size=(4, 32, 32, 3)).astype(np.float32), rng.integers(0, 10, 4).astype(np.int32)
    else:
        x, y = rng.integers(0, 80, (4, 20)).astype(np.int32), rng.integers(0, 80, 4).astype(np.int32)
    spec = (tf.TensorSpec([None, *x.shape[1:]], x.dtype), tf.TensorSpec([None], tf.int32))
    model = tff.learning.models.functional_model_from_keras(
        BUILDERS[name](initializer="torch"),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        spec,
        collections.OrderedDict(accuracy=tf.keras.metrics.SparseCategoricalAccuracy),
    )
    training = tff_fen.LocalTraining(0.1, batch_size=3)
    process = tff_fen.build_fed_dyn(model, tff_fen.ElasticNet(l1=1e-6, l2=0.01), training, num_clients=1)
    client = tff_fen.ClientInput(process.initialize_client(0), tf.data.Dataset.from_tensors((x, y)))
    output = process.next(process.initialize(), [client])
    gradients = output.client_states[0].gradient
    assert all(np.any(g) and np.all(np.isfinite(g)) for g in gradients)


@pytest.mark.parametrize(
    ("num_clients", "num_rounds", "participants"),
    [(100, 100, 1019), (100, 200, 2053), (100, 500, 5070), (11, 100, 149)],
)
def test_bernoulli_sampling_has_the_papers_participants(num_clients: int, num_rounds: int, participants: int) -> None:
    assert sum(len(sampling.sample_bernoulli(t, num_clients)) for t in range(num_rounds)) == participants


@pytest.mark.parametrize(
    ("name", "num_rounds", "published"),
    [("MNIST", 100, 20.3), ("EMNIST-L", 200, 18.4), ("CIFAR-10", 200, 163.82), ("CIFAR-100", 500, 413.37)],
)
def test_dense_message_counts_are_the_papers(name: str, num_rounds: int, published: float) -> None:
    """Table 2's FedProx and FedDyn columns (x 10^7), from model and sampler alone."""
    participants = sum(len(sampling.sample_bernoulli(t, 100)) for t in range(num_rounds))
    digits = 2 if published > 100 else 1
    assert round(PARAMETERS[name] * participants / 1e7, digits) == published


def test_sampling_is_pure_and_never_empty() -> None:
    for t in range(50):
        few = sampling.sample_bernoulli(t, 3, 0.05, seed=4)
        assert len(few) and np.array_equal(few, sampling.sample_bernoulli(t, 3, 0.05, seed=4))
        fixed = sampling.sample_uniform(t, 20, 6, seed=4)
        assert len(set(fixed.tolist())) == 6 and np.array_equal(fixed, sampling.sample_uniform(t, 20, 6, seed=4))
    assert np.any(sampling.sample_uniform(0, 20, 6) != sampling.sample_uniform(1, 20, 6))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sampling.sample_bernoulli(0, 0), "num_clients must be an integer >= 1, found 0"),
        (lambda: sampling.sample_bernoulli(-1, 5), "round_number must be an integer >= 0, found -1"),
        (lambda: sampling.sample_bernoulli(0, 5, 0.0), "probability must be a finite number > 0, found 0.0"),
        (lambda: sampling.sample_bernoulli(0, 5, 1.5), "probability must be at most 1, found 1.5"),
        (lambda: sampling.sample_uniform(0, 5, 6), "clients_per_round must be an integer from 1 to 5, found 6"),
    ],
)
def test_sampling_rejects(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
