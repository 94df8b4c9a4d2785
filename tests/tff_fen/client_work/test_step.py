"""The local loop against the NumPy listing, and the facts of the mathematics it must obey."""

import collections
import contextlib
import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from tests.support import models, reference, rounds
from tff_fen import ElasticNet, LocalTraining
from tff_fen.client_work import step

ALL_ON = LocalTraining(0.3, epochs=3, batch_size=4, lr_decay=0.9, weight_decay=0.02, clip_norm=0.8, seed=5)
PENALTIES = [
    ElasticNet(),
    ElasticNet(l2=0.5),
    ElasticNet(l1=0.02, l2=0.3, threshold=0.04),
    ElasticNet(l1=0.02, l2=0.3, threshold=0.04, l1_step="proximal"),
]
TWINS: dict[str, Any] = {
    "softmax_regression": (models.softmax_regression, reference.softmax_regression),
    "two_layer_mlp": (models.two_layer_mlp, reference.two_layer_mlp),
}


def correction_like(model: Any) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(11)
    return tuple((0.1 * rng.normal(size=np.shape(w))).astype(np.float32) for w in model.initial_weights[0])


@pytest.mark.parametrize("runtime", ["native", "inprocess"])
@pytest.mark.parametrize("settings", [ALL_ON, dataclasses.replace(ALL_ON, clip_norm=None)], ids=["clip", "no_clip"])
@pytest.mark.parametrize("elastic_net", PENALTIES)
@pytest.mark.parametrize("twin", sorted(TWINS))
def test_agrees_with_the_listing(twin: str, elastic_net: ElasticNet, settings: LocalTraining, runtime: str) -> None:
    """Everything at once: decayed lr, weight decay, clipping that binds, a correction, partial batches."""
    build, loss_and_gradient = TWINS[twin]
    model, data = build(), models.examples(10)
    correction = correction_like(model)
    with contextlib.ExitStack() as stack:
        if runtime == "inprocess":  # whose steps are loops of its own
            context = tff_fen.runtime.create_inprocess_context()
            stack.enter_context(tff.framework.get_context_stack().install(context))
        result = rounds.run_local(model, data, elastic_net, settings, round_number=2, correction=correction)
    expected = reference.local_steps(
        loss_and_gradient,
        list(model.initial_weights[0]),
        rounds.batches_of_client(data, settings, 2),
        rounds.local_settings(elastic_net, settings, 2),
        list(correction),
    )
    rounds.assert_weights_close(result.raw_delta, expected.raw_delta)
    rounds.assert_weights_close(result.delta, expected.delta)
    assert result.num_steps == 9 and result.num_examples == 10 and result.is_finite
    sizes = [len(y) for _, y in rounds.batches_of_client(data, settings, 2)]
    assert result.loss_sum == pytest.approx(np.dot(expected.losses, sizes), rel=1e-5)
    assert result.loss_count == 30.0
    if elastic_net.threshold:
        zeros = sum(int((d == 0).sum()) for d in expected.delta)
        assert 0 < zeros < sum(d.size for d in expected.delta), "the threshold must bite, but not everywhere"


@pytest.mark.parametrize("settings", [ALL_ON, dataclasses.replace(ALL_ON, clip_norm=None)], ids=["clip", "no_clip"])
def test_an_embedding_moves_where_it_is_looked_up(settings: LocalTraining) -> None:
    """With weight decay off, what was not looked up stays exactly where it was, penalties or not."""
    rng = np.random.default_rng(3)
    weights = tuple(rng.normal(size=shape).astype(np.float32) for shape in ((11, 3), (15, 4)))

    @tf.function
    def predict(weights: Any, x: tf.Tensor, training: bool = True) -> tf.Tensor:
        (embedding, kernel), _ = weights
        return tf.matmul(tf.reshape(tf.gather(embedding, x), [-1, 15]), kernel)

    @tf.function
    def loss(output: tf.Tensor, label: tf.Tensor, sample_weight: Any = None) -> tf.Tensor:
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(label, output))

    spec = (tf.TensorSpec([None, 5], tf.int32), tf.TensorSpec([None], tf.int32))
    model = tff.learning.models.FunctionalModel(
        initial_weights=(weights, ()), predict_on_batch_fn=predict, loss_fn=loss, input_spec=spec
    )
    x = np.arange(50, dtype=np.int32).reshape(10, 5) % 6
    data = x, np.arange(10, dtype=np.int32) % 4
    elastic_net = ElasticNet(l1=1e-3, l2=0.1)
    result = rounds.run_local(model, data, elastic_net, dataclasses.replace(settings, weight_decay=0.0))
    embedding = np.asarray(result.delta[0])
    assert np.all(embedding[:6]) and not np.any(embedding[6:])


def test_data_sets_own_batches() -> None:
    """batch_size=None takes the batches as they come, one pass an epoch."""
    settings = LocalTraining(0.2, epochs=2)
    model, (x, y) = models.softmax_regression(), models.examples(7)
    result = rounds.run_local(model, (x, y), ElasticNet(l2=0.1), settings, batch_size=3)
    in_order = [(x[i : i + 3], y[i : i + 3]) for i in (0, 3, 6)] * 2
    expected = reference.local_steps(
        reference.softmax_regression, list(model.initial_weights[0]), in_order, reference.Local(lr=0.2, l2=0.1)
    )
    rounds.assert_weights_close(result.delta, expected.delta)
    assert result.num_steps == 6 and result.num_examples == 7


def test_raw_delta_is_the_sum_of_the_penalised_gradients() -> None:
    """Fact 6, local part: -raw_delta / (B lr) is the mean of gradient + penalties, without clip and decay."""
    settings = LocalTraining(0.1, epochs=2, batch_size=4, lr_decay=0.5)
    elastic_net = ElasticNet(l1=0.05, l2=0.4, threshold=0.01)
    model, data = models.two_layer_mlp(), models.examples(9)
    result = rounds.run_local(model, data, elastic_net, settings, round_number=3)
    expected = reference.local_steps(
        reference.two_layer_mlp,
        list(model.initial_weights[0]),
        rounds.batches_of_client(data, settings, 3),
        rounds.local_settings(elastic_net, settings, 3),
    )
    mean_gradient = [np.mean(g, axis=0) for g in zip(*expected.gradients, strict=True)]
    lr = 0.1 * 0.5**3
    rounds.assert_weights_close([-d / (int(result.num_steps) * lr) for d in result.raw_delta], mean_gradient, 1e-5)


@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.0), (0.3, 0.0), (0.3, 0.5), (5.0, 0.5)])
def test_one_quadratic_client_reaches_the_exact_minimiser(l1: float, l2: float) -> None:
    """Fact 4: delta = soft(b + g - a theta, l1) / (a + l2), here with the proximal step and a correction -g."""
    a, theta, b, g = 2.0, [1.0, -0.5, 0.25, 0.0], [3.0, -1.2, 0.4, -2.0], [0.1, 0.1, -0.2, 0.3]
    model = models.quadratic(a, theta)
    result = rounds.run_local(
        model,
        models.rows(b),
        ElasticNet(l1=l1, l2=l2, l1_step="proximal"),
        LocalTraining(0.2, epochs=200),
        correction=(-np.asarray(g, np.float32),),
    )
    minimiser = reference.soft(np.add(b, g) - a * np.asarray(theta), l1) / (a + l2)
    np.testing.assert_allclose(result.delta[0], minimiser, atol=1e-6)


def test_a_large_l1_with_the_proximal_step_sends_nothing() -> None:
    """Fact 8: l1 >= max |grad L_k(theta)| gives delta = 0 to the bit (float32 rounds, hence a hair more)."""
    theta, b = [1.0, -0.5, 0.25], [3.0, -1.2, 0.4]
    largest = max(abs(2.0 * t - bi) for t, bi in zip(theta, b, strict=True))
    settings = LocalTraining(0.1, epochs=7)
    for l1, sends in (((1 + 1e-6) * largest, False), ((1 - 1e-5) * largest, True)):
        result = rounds.run_local(
            models.quadratic(2.0, theta), models.rows(b), ElasticNet(l1=l1, l1_step="proximal"), settings
        )
        assert bool(np.any(result.delta[0])) is sends


def test_larger_l2_ends_nearer_to_theta() -> None:
    """Fact 9, which TFF's FedProx fails: its proximal gradient has the wrong sign."""
    distances = []
    for l2 in (0.0, 0.5, 1.0, 2.0):
        result = rounds.run_local(
            models.softmax_regression(), models.examples(20), ElasticNet(l2=l2), LocalTraining(0.1, epochs=20)
        )
        distances.append(np.sqrt(sum(float((d**2).sum()) for d in result.delta)))
    assert all(nearer < 0.95 * farther for farther, nearer in itertools.pairwise(distances)), distances


def test_a_coordinate_that_nothing_moves_stays_exactly_zero() -> None:
    x, y = models.examples(12)
    x[:, 2] = 0.0
    result = rounds.run_local(
        models.softmax_regression(), (x, y), ElasticNet(l1=0.01, l2=0.3), LocalTraining(0.1, epochs=5, batch_size=5)
    )
    assert not np.any(result.raw_delta[0][2]) and np.all(result.raw_delta[0][[0, 1, 3, 4, 5]])


def test_an_empty_client_takes_no_step() -> None:
    for settings in (LocalTraining(0.1, epochs=2), LocalTraining(0.1, epochs=2, batch_size=3)):
        empty = (np.zeros((0, 6), np.float32), np.zeros(0, np.int32))
        # batch_size: the data set then has no element at all.
        result = rounds.run_local(models.softmax_regression(), empty, ElasticNet(l2=0.1), settings, batch_size=3)
        assert (result.num_steps, result.num_examples, result.loss_count, result.is_finite) == (0, 0, 0.0, True)
        assert not any(np.any(d) for d in result.delta)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e38])
def test_a_client_that_is_not_finite_sends_zeros_and_counts_for_nothing(bad: float) -> None:
    x, y = models.examples(8)
    x[3, 1] = bad
    result = rounds.run_local(
        models.two_layer_mlp(), (x, y), ElasticNet(l2=0.1), LocalTraining(1.0, epochs=2, batch_size=4)
    )
    assert not result.is_finite
    assert not any(np.any(d) for d in (*result.delta, *result.raw_delta))
    assert (result.num_examples, result.loss_sum, result.loss_count) == (0, 0.0, 0.0)
    assert all(float(np.sum(m)) == 0.0 for m in tf.nest.flatten(result.metrics_state))


def test_a_learning_rate_that_has_decayed_to_nothing_moves_nothing() -> None:
    """-lr times the gradient and the bound it is clipped to are both 0 then: their ratio is no number."""
    settings = LocalTraining(0.1, lr_decay=0.5, batch_size=4, clip_norm=10.0)
    result = rounds.run_local(models.two_layer_mlp(), models.examples(8), ElasticNet(), settings, round_number=150)
    assert result.is_finite and result.num_examples == 8
    assert not any(np.any(d) for d in result.raw_delta)


def test_a_norm_within_the_bound_leaves_no_trace() -> None:
    """The norm's own rounding, which differs between runtimes, reaches the weights of clipped steps alone."""

    def factor(norm: float, bound: float) -> float:
        return float(step._clip_factor((tf.constant(norm**2 / 2, tf.float32),), tf.constant(bound)))

    for bound in (0.3, 1.0, 7.0, 1e-3):
        within = {factor(share * bound, bound) for share in (0.0, 1e-6, 0.5, 0.5 + 1e-6, 0.99999)}
        assert len(within) == 1 and within.pop() == pytest.approx(1.0, rel=1e-6)
        assert factor(2 * bound, bound) == pytest.approx(0.5, rel=1e-6)
    assert np.isnan(factor(np.inf, 1.0))


def test_learning_rate_schedule() -> None:
    settings = LocalTraining(0.1, lr_decay=0.998)
    for t in (0, 1, 500):
        assert float(step.learning_rate(settings, tf.constant(t))) == np.float32(0.1 * 0.998**t)


def test_a_mapping_of_x_and_y_is_a_batch_too() -> None:
    model, (x, y) = models.softmax_regression(), models.examples(5)
    pair = rounds.run_local(model, (x, y), ElasticNet(), LocalTraining(0.1))
    model._input_spec = collections.OrderedDict(zip("xy", model.input_spec, strict=True))
    mapping = rounds.run_local(model, (x, y), ElasticNet(), LocalTraining(0.1), as_mapping=True)
    rounds.assert_weights_close(mapping.delta, list(pair.delta), 0.0)
