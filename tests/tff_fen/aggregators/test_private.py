"""Private factories inside FedDyn and SCAFFOLD: refused unless their user says what they divide by."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from tasks.data_sets import least_squares
from tests.support.population import BUILDERS
from tff_fen.aggregators import DeclaredMeanFactory, DualVariableFactory, MeanAndCountFactory

PER_ROUND = 5
PROBLEM = least_squares.generate(num_clients=8)
NET, TRAINING = tff_fen.ElasticNet(l1=0.01, l2=0.3), tff_fen.LocalTraining(0.05)
W, FLOAT = tff.to_type((np.float32, [10])), tff.TensorType(np.float32)


def without_noise() -> tff.aggregators.UnweightedAggregationFactory:
    """Neither noise nor clipping that could be felt: all that is left of privacy is the division."""
    return tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(0.0, PER_ROUND, clip=1e3)


def measured(factory: Any) -> Any:
    """Wrapped by a factory that keeps what it wraps in a closure."""
    return tff.aggregators.add_measurements(
        factory, server_measurement_fn=lambda mean: collections.OrderedDict(result=mean)
    )


PRIVATE: dict[str, Callable[[], Any]] = {
    "fixed": without_noise,
    "adaptive": lambda: tff.aggregators.DifferentiallyPrivateFactory.gaussian_adaptive(0.1, PER_ROUND),
    "tree": lambda: tff.aggregators.DifferentiallyPrivateFactory.tree_aggregation(
        0.1, PER_ROUND, 1.0, tf.TensorSpec([10], tf.float32)
    ),
    "dp_aggregator": lambda: tff.learning.dp_aggregator(0.1, PER_ROUND),
    "without zeroing": lambda: tff.learning.dp_aggregator(0.1, PER_ROUND, zeroing=False),
    "ddp_secure_aggregator": lambda: tff.learning.ddp_secure_aggregator(0.1, PER_ROUND),
    "mean of a private sum": lambda: tff.aggregators.MeanFactory(without_noise()),
    "in a closure": lambda: measured(without_noise()),
    "concatenated": lambda: tff.aggregators.concat_factory(without_noise()),
    # What the inner one says does not reach the algorithm.
    "declared inside": lambda: measured(tff_fen.FixedDenominatorFactory(without_noise(), PER_ROUND)),
}


@pytest.mark.parametrize("name", PRIVATE)
def test_private_factories_are_refused_however_nested(name: str) -> None:
    with pytest.raises(TypeError, match=r"^aggregator is differentially private .*build_dp_pair.*FixedDenominatorFac"):
        MeanAndCountFactory(PRIVATE[name](), name="aggregator").create(W, FLOAT)


@pytest.mark.parametrize("name", ["fixed", "dp_aggregator", "in a closure"])
def test_private_factories_are_taken_with_a_declaration(name: str) -> None:
    for declared in (tff_fen.FixedDenominatorFactory(PRIVATE[name](), 5.0), DeclaredMeanFactory(PRIVATE[name]())):
        MeanAndCountFactory(declared).create(W, FLOAT)


@pytest.mark.parametrize(
    "factory", [tff.learning.robust_aggregator, tff.learning.secure_aggregator, tff.learning.compression_aggregator]
)
def test_other_factories_of_tff_are_taken(factory: Any) -> None:
    MeanAndCountFactory(factory()).create(W, FLOAT)


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [
        ("fed_dyn", "aggregator"),
        ("fed_dyn", "sign_aggregator"),
        ("scaffold", "aggregator"),
        ("scaffold", "control_aggregator"),
    ],
)
def test_builders_name_the_argument(algorithm: str, name: str) -> None:
    with pytest.raises(TypeError, match=f"^{name} is differentially private"):
        build(algorithm, **{name: tff.learning.dp_aggregator(0.1, PER_ROUND)})


@pytest.mark.parametrize(("algorithm", "name"), [("fed_dyn", "sign_aggregator"), ("scaffold", "control_aggregator")])
def test_two_messages_share_one_budget(algorithm: str, name: str) -> None:
    """A factory that accounts for one release, for two messages or beside one that is not its other half."""
    first, second = tff_fen.build_dp_pair(0.1, PER_ROUND, 1.0, 1.0)
    alone = tff_fen.build_dp_factory(0.1, PER_ROUND, 1.0)
    mine = tff_fen.FixedDenominatorFactory(alone, PER_ROUND)
    build(algorithm, aggregator=first, **{name: second})
    build(algorithm, aggregator=mine)  # whoever wraps it accounts for both
    bad: list[tuple[Any, Any, str]] = [
        (alone, None, "one factory for both"),
        (first, None, "one factory for both"),
        (first, alone, "factories that do not belong together"),
        (first, tff.aggregators.MeanFactory(), "factories that do not belong together"),
        (None, second, "factories that do not belong together"),
    ]
    for aggregator, other, found in bad:
        with pytest.raises(ValueError, match=rf"^aggregator and {name} must share .*{found}.*build_dp_pair"):
            build(algorithm, aggregator=aggregator, **{name: other})


def test_fed_dyn_without_l1_releases_one_message() -> None:
    DualVariableFactory(8, l1=0.0, l2=0.3, aggregator=tff_fen.build_dp_factory(0.1, PER_ROUND, 1.0))


def test_fed_avg_takes_private_factories_as_they_are() -> None:
    """A mean is all that Algorithm 1 asks for, by whatever it is divided."""
    model = least_squares.build_model()
    raw, declared = (
        tff_fen.build_fed_avg(model, NET, TRAINING, aggregator=factory)
        for factory in (without_noise(), tff_fen.FixedDenominatorFactory(without_noise(), PER_ROUND))
    )
    data = [tf.data.Dataset.from_tensors(examples) for examples in PROBLEM.clients[:3]]
    models = [p.get_model_weights(p.next(p.initialize(), data).state).trainable[0] for p in (raw, declared)]
    np.testing.assert_array_equal(*models)
    assert np.any(models[0])


@pytest.mark.long
def test_what_is_refused_would_drift_silently() -> None:
    """|h - mean g_k| / |mean g_k| with 2 to 8 participants where 5 are divided by, without any noise.

    A declaration is what says 'I know': a wrong one is taken at its word and drifts as the raw factory did.
    """
    assert _gap(tff_fen.FixedDenominatorFactory(without_noise(), PER_ROUND)) < 1e-5
    assert _gap(DeclaredMeanFactory(without_noise())) > 0.1
    assert _gap(DeclaredMeanFactory(tff.aggregators.UnweightedMeanFactory())) < 1e-5


def _gap(factory: Any) -> float:
    process = build("fed_dyn", aggregator=factory)
    server, states = process.initialize(), [process.initialize_client(k) for k in range(8)]
    data = [tf.data.Dataset.from_tensors(examples) for examples in PROBLEM.clients]
    for t in range(20):
        ids = np.random.default_rng(t).permutation(8)[: 2 + 3 * t % 7]
        output = process.next(server, [tff_fen.ClientInput(states[k], data[k]) for k in ids])
        server = output.state
        for state in output.client_states:
            states[int(state.client_id)] = state
    (h,) = server.aggregator["h"]
    mean = np.mean([state.gradient[0] for state in states], axis=0)
    return float(np.linalg.norm(h - mean) / np.linalg.norm(mean))


def build(algorithm: str, **aggregators: Any) -> tff_fen.StatefulClientProcess:
    return BUILDERS[algorithm](least_squares.build_model(), NET, TRAINING, num_clients=8, **aggregators)
