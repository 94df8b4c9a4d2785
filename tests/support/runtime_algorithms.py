"""Rounds of algorithms that every runtime must compute alike: TFF's own and this package's, with all aggregators."""

from __future__ import annotations

import atexit
import functools
import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from tests.support import models
from tests.support.population import BUILDERS, Clients
from tests.support.runtime_suite import Run, add_case
from tff_fen import ElasticNet, LocalTraining
from tff_fen.aggregators import noise

# The last client has no data.
DATA = [models.examples(n, seed=k) for k, n in enumerate((8, 12, 6, 0))]
TRAINING = LocalTraining(0.1, epochs=2, batch_size=4, clip_norm=5.0, lr_decay=0.9)
PENALTIES = ElasticNet(l1=1e-3, l2=0.1, threshold=1e-3)
ROUNDING = 1e-6


def _batched() -> list[tf.data.Dataset]:
    return [models.dataset(*client, 4) for client in DATA]


def _whole() -> list[tf.data.Dataset]:
    return [models.dataset(*client) for client in DATA]


def _two_rounds(process: Any, data_sets: Callable[[], list[Any]]) -> Run:
    def run() -> Any:
        first = process.next(process.initialize(), data_sets())
        return first, process.next(first.state if hasattr(first, "state") else first[0], data_sets())

    return run


def _keras_model() -> tff.learning.models.VariableModel:
    layers = [
        tf.keras.layers.InputLayer((6,)),
        tf.keras.layers.Dense(5, "relu", kernel_initializer=tf.keras.initializers.GlorotUniform(seed=1)),
        tf.keras.layers.Dense(4, kernel_initializer=tf.keras.initializers.GlorotUniform(seed=2)),
    ]
    return tff.learning.models.from_keras_model(
        tf.keras.Sequential(layers),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        input_spec=models.spec(6),
        metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
    )


_algorithms = tff.learning.algorithms
_sgd = tff.learning.optimizers.build_sgdm(0.1, momentum=0.5)
STOCK: dict[str, Callable[[], Any]] = {
    "tff_fed_avg": lambda: _algorithms.build_weighted_fed_avg(
        _keras_model, client_optimizer_fn=_sgd, server_optimizer_fn=tff.learning.optimizers.build_adam(0.1)
    ),
    "tff_fed_avg_iterator_loop": lambda: _algorithms.build_weighted_fed_avg(
        _keras_model,
        client_optimizer_fn=_sgd,
        loop_implementation=tff.learning.LoopImplementation.DATASET_ITERATOR,
    ),
    "tff_fed_avg_functional": lambda: _algorithms.build_weighted_fed_avg(
        models.two_layer_mlp(), client_optimizer_fn=_sgd
    ),
    "tff_unweighted_fed_avg": lambda: _algorithms.build_unweighted_fed_avg(_keras_model, client_optimizer_fn=_sgd),
    "tff_fed_prox": lambda: _algorithms.build_weighted_fed_prox(
        _keras_model, proximal_strength=0.1, client_optimizer_fn=_sgd
    ),
    "tff_fed_sgd": lambda: _algorithms.build_fed_sgd(_keras_model, tff.learning.optimizers.build_sgdm(0.1)),
    "tff_mime_lite": lambda: _algorithms.build_weighted_mime_lite(_keras_model, base_optimizer=_sgd),
}


def _stock(build: Callable[[], Any]) -> Run:
    return _two_rounds(build(), _batched)


for _name, _build in STOCK.items():
    add_case(_name, functools.partial(_stock, _build), ROUNDING)


def _fed_eval() -> Run:
    process = tff.learning.algorithms.build_fed_eval(_keras_model)
    return lambda: process.next(process.initialize(), _batched())


def _k_means() -> Run:
    process = tff.learning.algorithms.build_fed_kmeans(2, (3,), random_seed=(1, 2))
    rng = np.random.default_rng(0)
    points = [rng.normal(size=(5, 3)).astype(np.float32) for _ in range(3)]
    return _two_rounds(process, lambda: [tf.data.Dataset.from_tensor_slices(p) for p in points])


add_case("tff_fed_eval", _fed_eval, ROUNDING)
add_case("tff_k_means", _k_means, ROUNDING)

FACTORIES: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "unweighted_mean": tff.aggregators.UnweightedMeanFactory,
    "robust": tff.learning.robust_aggregator,
    # Without noise, which is drawn anew on each runtime; the clipping is left to compare.
    "dp": lambda: tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(0.0, len(DATA), clip=0.3),
    "secure": tff.learning.secure_aggregator,
    "secure_sum": lambda: tff.aggregators.UnweightedMeanFactory(
        tff.aggregators.SecureSumFactory(upper_bound_threshold=1.0, lower_bound_threshold=-1.0)
    ),
}


def _fed_avg(factory: Callable[[], Any]) -> Run:
    return _two_rounds(tff_fen.build_fed_avg(models.two_layer_mlp(), PENALTIES, TRAINING, aggregator=factory()), _whole)


for _name, _build in FACTORIES.items():
    # Secure sums round to a grid: a value next to the edge of two cells may fall to either.
    add_case(f"fed_avg_{_name}", functools.partial(_fed_avg, _build), 1e-4 if "secure" in _name else ROUNDING)


def _fed_avg_weights(factory: Callable[[], Any]) -> Run:
    """The model after a round, where the aggregator draws random numbers: only near to each other."""
    model = models.two_layer_mlp(features=160, hidden=130)  # above the 20 000 weights from which TFF quantises
    process = tff_fen.build_fed_avg(model, PENALTIES, TRAINING, aggregator=factory())
    clients = [models.dataset(*models.examples(n, features=160, seed=n)) for n in (8, 5)]
    return lambda: process.get_model_weights(process.next(process.initialize(), clients).state)


def _encoded() -> Any:
    sums = tff.aggregators.EncodedSumFactory.quantize_above_threshold(quantization_bits=8, threshold=1)
    return tff.aggregators.MeanFactory(sums)


add_case("fed_avg_compression", lambda: _fed_avg_weights(tff.learning.compression_aggregator), 0.02)
add_case("fed_avg_encoded", lambda: _fed_avg_weights(_encoded), 0.02)
add_case(
    "fed_avg_dp_with_noise",
    lambda: _fed_avg_weights(lambda: tff.learning.dp_aggregator(noise_multiplier=0.01, clients_per_round=2)),
    0.02,
)


def _keyed_noise() -> Run:
    """This package's own noise, of a source that always gives the same key."""
    with tempfile.NamedTemporaryFile(delete=False) as source:
        source.write(bytes(range(100, 132)))
    atexit.register(os.unlink, source.name)
    usual, noise.SOURCE = noise.SOURCE, source.name
    try:
        process = tff_fen.build_dp_factory(1.0, 2, 1.0).create(tff.TensorType(np.float32, [100]))
    finally:
        noise.SOURCE = usual
    return _two_rounds(process, lambda: [np.full(100, 0.5, np.float32)] * 2)


add_case("keyed_noise", _keyed_noise, ROUNDING)


def _stateful(algorithm: str) -> Run:
    process = BUILDERS[algorithm](models.two_layer_mlp(), PENALTIES, TRAINING, num_clients=len(DATA))

    def run() -> Any:
        clients = Clients(algorithm, process, DATA)
        metrics = [clients.round(participants) for participants in ((0, 1, 2, 3), (2, 0), (3,))]
        averages = process.get_average_weights(clients.server)
        return clients.server, clients.states, metrics, process.set_model_weights(clients.server, averages)

    return run


for _name in BUILDERS:
    add_case(_name, functools.partial(_stateful, _name), ROUNDING)
