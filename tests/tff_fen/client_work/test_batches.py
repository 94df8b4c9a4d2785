"""Batches: every example once an epoch, partial last batch, orders from seed, round, client and epoch alone."""

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import dataset_options_pb2

from tests.support import models, new_process
from tff_fen.client_work import batches


def batches_of(dataset: tf.data.Dataset, epochs: int, batch_size: int, seed: tf.Tensor) -> list[list[int]]:
    """The ids (first feature) of each minibatch, as the fold meets them."""
    seen: list[list[int]] = []

    def step(count: tf.Tensor, batch: Any) -> tf.Tensor:
        tf.numpy_function(lambda ids: seen.append([int(i) for i in ids]), [batch[0][:, 0]], [])
        return count + 1

    @tf.function
    def run() -> tf.Tensor:
        examples = batches.load_examples(dataset)
        return batches.ShuffledMinibatches(examples, epochs, batch_size, seed).fold(step, tf.constant(0))

    assert int(run()) == len(seen)
    return seen


def numbered(n: int, batch_size: int) -> tf.data.Dataset:
    x, y = models.examples(n)
    x[:, 0] = np.arange(n)
    return models.dataset(x, y, batch_size)


SEED = batches.shuffle_seed(0, tf.constant(3), tf.constant(7, tf.int64))


def test_every_example_once_an_epoch_with_a_partial_last_batch() -> None:
    seen = batches_of(numbered(11, batch_size=3), epochs=2, batch_size=4, seed=SEED)
    assert [len(batch) for batch in seen] == [4, 4, 3, 4, 4, 3]
    first, second = (list(itertools.chain(*epoch)) for epoch in (seen[:3], seen[3:]))
    assert sorted(first) == sorted(second) == list(range(11))
    assert first != second and first != list(range(11))


def test_a_batch_larger_than_the_client_is_one_step() -> None:
    for batch_size in (10, 2**31 - 1):
        assert [len(b) for b in batches_of(numbered(3, 1), epochs=2, batch_size=batch_size, seed=SEED)] == [3, 3]


def test_no_examples_no_steps() -> None:
    assert batches_of(numbered(5, 2).take(0), epochs=3, batch_size=2, seed=SEED) == []


def test_batching_of_the_data_set_does_not_matter() -> None:
    whole = batches_of(numbered(10, 10), 1, 4, SEED)
    assert whole == batches_of(numbered(10, 1), 1, 4, SEED) == batches_of(numbered(10, 3), 1, 4, SEED)


def test_the_order_depends_on_seed_round_client_and_epoch() -> None:
    def order(seed: int = 0, round_number: int = 0, client: int = 0, epoch: int = 0) -> tuple[int, ...]:
        key = batches.shuffle_seed(seed, tf.constant(round_number), tf.constant(client, tf.int64))
        return tuple(batches.epoch_order(key, tf.constant(epoch), tf.constant(50)).numpy())

    assert order() == order()
    orders = {order(), order(seed=1), order(round_number=1), order(client=1), order(epoch=1), order(client=2**32)}
    assert len(orders) == 6


def test_the_order_is_pinned() -> None:
    """Results in papers depend on these bits: a change of generator or key derivation must be deliberate."""
    assert batches.epoch_order(SEED, tf.constant(0), tf.constant(8)).numpy().tolist() == [1, 0, 2, 3, 6, 4, 7, 5]


def test_dataset_batches_pass_as_they_come_each_epoch() -> None:
    dataset = numbered(5, batch_size=2)

    @tf.function
    def run() -> tf.Tensor:
        empty = tf.zeros([0])
        carry = tf.TensorArray(tf.float32, size=0, dynamic_size=True, infer_shape=False, element_shape=[None])
        _, ids = batches.DatasetBatches(dataset, epochs=2).fold(
            lambda carry, batch: (carry[0] + 1, carry[1].write(carry[0], batch[0][:, 0])), (0, carry.write(0, empty))
        )
        return ids.concat()

    assert run().numpy().tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]


def test_digest_tells_clients_apart() -> None:
    x, y = models.examples(6)
    digests = {int(batches.digest((tf.constant(a), tf.constant(b)))) for a, b in [(x, y), (x, y[::-1]), (x + 1, y)]}
    assert len(digests) == 3
    assert int(batches.digest((tf.constant(x), tf.constant(y)))) in digests


@pytest.mark.parametrize("batch_size", [1, 4])
def test_one_trace_serves_clients_of_all_sizes(batch_size: int) -> None:
    traces = []

    @tf.function(input_signature=[tf.data.DatasetSpec(models.spec(6))])
    def steps(dataset: tf.data.Dataset) -> tf.Tensor:
        traces.append(1)
        examples = batches.load_examples(dataset)
        minibatches = batches.ShuffledMinibatches(examples, 1, batch_size, SEED)
        return minibatches.fold(lambda carry, batch: carry + tf.shape(batch[1])[0], tf.constant(0))

    for n in (0, 1, 7, 30):
        assert int(steps(numbered(max(n, 1), 3).take(n))) == n
    assert len(traces) == 1


EMPTY_BATCH = """
import numpy as np, tensorflow as tf, tensorflow_federated as tff
import tff_fen
tff_fen.runtime.set_inprocess_context()
layers = tf.keras.layers
model = tff.learning.models.functional_model_from_keras(
    tf.keras.Sequential([layers.InputLayer((8, 8, 1)), layers.Conv2D(4, 3), layers.MaxPool2D(), layers.Flatten(),
                         layers.Dense(3)]),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    (tf.TensorSpec([None, 8, 8, 1]), tf.TensorSpec([None], tf.int32)),
)
process = tff_fen.build_fed_avg(model, tff_fen.ElasticNet(l2=0.1), tff_fen.LocalTraining(0.1))
data = [tf.data.Dataset.from_tensors((np.ones([n, 8, 8, 1], np.float32), np.zeros(n, np.int32))) for n in (4, 0)]
print(process.next(process.initialize(), data).metrics["client_work"]["train"]["contributing_clients"])
"""


def test_a_convolution_never_sees_a_batch_without_rows() -> None:
    """TensorFlow's kernels would end the process: hence one of its own."""
    assert new_process.run_python(EMPTY_BATCH, timeout=240.0) == "1\n"


def options_of(read: Any) -> dataset_options_pb2.Options:
    """What a reading function tells tf.data, all of it."""
    graph = tf.function(read).get_concrete_function(tf.data.DatasetSpec(tf.TensorSpec([None]))).graph
    options = dataset_options_pb2.Options()
    for node in graph.as_graph_def().node:
        if node.op == "OptionsDataset":
            options.MergeFromString(node.attr["serialized_options"].s)
    return options


def test_a_clients_data_set_is_not_tuned_nor_rewritten_at_every_reading() -> None:
    """Either takes longer than a client's small data set."""
    options = options_of(batches.load_examples)
    assert options.autotune_options.HasField("enabled") and not options.autotune_options.enabled
    optimization = options.optimization_options
    assert optimization.HasField("apply_default_optimizations") and not optimization.apply_default_optimizations
    options = options_of(lambda dataset: batches.DatasetBatches(dataset, 1).fold(lambda n, _: n + 1, 0))
    assert options.autotune_options.HasField("enabled") and not options.autotune_options.enabled


def test_the_settings_of_a_users_data_set_are_kept() -> None:
    """Such as its own prefetching and parallel maps: numbers and order are the same."""
    dataset = numbered(10, 3).map(lambda x, y: (x + 1, y), num_parallel_calls=tf.data.AUTOTUNE)
    seen = batches_of(dataset.prefetch(tf.data.AUTOTUNE), 1, 4, SEED)
    assert seen == [[i + 1 for i in batch] for batch in batches_of(numbered(10, 3), 1, 4, SEED)]
