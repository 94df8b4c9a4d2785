"""A client's data as a fold over batches: `fold(step, carry)` runs `carry = step(carry, batch)` over a round's batches.

Two kinds, chosen by `LocalTraining.batch_size`: the data set's own batches, or
shuffled minibatches taken from tensors, which keeps tf.data out of the inner loop;
these XLA can compile. All trace once for clients of any size.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Protocol

import tensorflow as tf

from tff_fen.dataset_loop import Step, fold_dataset
from tff_fen.graph_marks import for_xla, mark_loop

RNG_ALGORITHM = "philox"
"""One generator on every device and runtime: the bits of a shuffle are part of a result."""

Augment = Callable[[Any, tf.Tensor], Any]


class Batches(Protocol):
    """What local training needs of a client's data."""

    def fold(self, step: Step, carry: Any) -> Any:
        """Returns `carry` after `carry = step(carry, batch)` for each batch of each epoch."""


class DatasetBatches:
    """The batches of a `tf.data.Dataset` as they come, one pass per epoch; those without rows are left out.

    A mean over no rows is no loss, and some of TensorFlow's kernels for convolutions end the process at such a batch.
    """

    def __init__(self, dataset: tf.data.Dataset, epochs: int) -> None:
        filled = dataset.filter(lambda *batch: tf.shape(tf.nest.flatten(batch)[0])[0] > 0)
        self._dataset = filled if epochs == 1 else filled.repeat(epochs)

    def fold(self, step: Step, carry: Any) -> Any:
        return fold_dataset(self._dataset, step, carry)


class ShuffledMinibatches:
    """Minibatches of `batch_size` from all examples of a client, shuffled anew each epoch.

    The last minibatch of an epoch holds what is left. The order is a pure function
    of `seed` and the epoch.
    """

    def __init__(
        self, examples: Any, epochs: int, batch_size: int, seed: tf.Tensor, augment: Augment | None = None
    ) -> None:
        """Initializes the minibatches.

        Args:
          examples: a structure of tensors `[n, ...]`, as `load_examples` returns.
          epochs: number of passes.
          batch_size: examples in a minibatch.
          seed: int32[2], as `shuffle_seed` returns.
          augment: `(batch, key) -> batch`, applied to each minibatch; see `LocalTraining`.
        """
        self._examples = examples
        self._epochs = epochs
        self._batch_size = batch_size
        self._seed = seed
        self._augment = augment

    def fold(self, step: Step, carry: Any) -> Any:
        n = tf.shape(tf.nest.flatten(self._examples)[0])[0]
        steps_per_epoch = -(-n // self._batch_size)

        def take_epoch(epoch: tf.Tensor, carry: Any) -> tuple[tf.Tensor, Any]:
            order = epoch_order(self._seed, epoch, n)

            def take_batch(i: tf.Tensor, carry: Any) -> tuple[tf.Tensor, Any]:
                # Slicing clamps at the end, so the last batch is the partial one.
                rows = order[i * self._batch_size : (i + 1) * self._batch_size]
                return i + 1, step(carry, self._batch(self._examples, rows, epoch, i))

            _, carry = tf.while_loop(lambda i, _: i < steps_per_epoch, take_batch, (0, carry), parallel_iterations=1)
            return epoch + 1, carry

        @mark_loop
        def take_epochs(carry: Any) -> Any:
            _, carry = tf.while_loop(lambda e, _: e < self._epochs, take_epoch, (0, carry), parallel_iterations=1)
            return carry

        return take_epochs(carry)

    def _batch(self, examples: Any, rows: tf.Tensor, epoch: tf.Tensor, i: tf.Tensor) -> Any:
        batch = tf.nest.map_structure(lambda x: tf.gather(x, rows), examples)
        return batch if self._augment is None else self._augment(batch, augmentation_key(self._seed, epoch, i))


class CompiledMinibatches(ShuffledMinibatches):
    """The same minibatches; XLA compiles the loop over the full ones of an epoch.

    XLA compiles for known sizes, once for each. So rows are padded until there are a power of two of minibatches, which
    bounds how often it compiles, and the last minibatch of an epoch, where it is not full, has TensorFlow's operations.
    There is no augmentation: from one key XLA draws other random numbers than TensorFlow.
    """

    def fold(self, step: Step, carry: Any) -> Any:
        n = tf.shape(tf.nest.flatten(self._examples)[0])[0]
        full, rest = n // self._batch_size, n % self._batch_size
        missing = self._batch_size * _power_of_two(-(-n // self._batch_size)) - n
        padded = tf.nest.map_structure(lambda x: _pad(x, missing), self._examples)

        @functools.partial(tf.function, jit_compile=True, autograph=False)
        def take_full(examples: Any, order: tf.Tensor, full: tf.Tensor, epoch: tf.Tensor, carry: Any) -> Any:
            places = tf.range(self._batch_size)

            def take_batch(i: tf.Tensor, carry: Any) -> tuple[tf.Tensor, Any]:
                rows = tf.gather(order, i * self._batch_size + places)
                return i + 1, step(carry, self._batch(examples, rows, epoch, i))

            with for_xla():
                _, carry = tf.while_loop(lambda i, _: i < full, take_batch, (0, carry), parallel_iterations=1)
            return carry

        def take_epoch(epoch: tf.Tensor, carry: Any) -> tuple[tf.Tensor, Any]:
            order = epoch_order(self._seed, epoch, n)
            carry = take_full(padded, _pad(order, missing), full, epoch, carry)

            def take_rest() -> Any:
                return step(carry, self._batch(self._examples, order[full * self._batch_size :], epoch, full))

            return epoch + 1, tf.cond(rest > 0, take_rest, lambda: carry)

        _, carry = tf.while_loop(lambda e, _: e < self._epochs, take_epoch, (0, carry), parallel_iterations=1)
        return carry


def _pad(x: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Appends rows of zeros, which nothing reads."""
    padded = tf.concat([x, tf.zeros(tf.concat([[rows], tf.shape(x)[1:]], 0), x.dtype)], 0)
    return tf.ensure_shape(padded, [None, *x.shape[1:]])


def _power_of_two(number: tf.Tensor) -> tf.Tensor:
    """The least power of two that is at least `number`, int32 and >= 0; 1 for 0."""
    exponent = tf.math.ceil(tf.math.log(tf.cast(tf.maximum(number, 1), tf.float64)) / math.log(2.0) - 1e-9)
    return tf.bitwise.left_shift(1, tf.cast(exponent, tf.int32))


def shuffle_seed(seed: int, round_number: tf.Tensor, client_key: tf.Tensor) -> tf.Tensor:
    """Returns the int32[2] seed of client `client_key` in round `round_number`."""
    key = tf.constant([seed, 0], tf.int32)
    for part in (tf.cast(round_number, tf.int64), tf.cast(client_key, tf.int64)):
        low, high = tf.unstack(tf.bitcast(part, tf.int32))
        key = tf.random.experimental.stateless_fold_in(key, low, alg=RNG_ALGORITHM)
        key = tf.random.experimental.stateless_fold_in(key, high, alg=RNG_ALGORITHM)
    return key


def epoch_order(seed: tf.Tensor, epoch: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    """Returns the permutation int32[n] in which an epoch visits the examples."""
    key = tf.random.experimental.stateless_fold_in(seed, epoch, alg=RNG_ALGORITHM)
    return tf.random.experimental.stateless_shuffle(tf.range(n), key, alg=RNG_ALGORITHM)


def augmentation_key(seed: tf.Tensor, epoch: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    """Returns the key int32[2] of minibatch `i` (from 0) of an epoch."""
    key = tf.random.experimental.stateless_fold_in(seed, epoch, alg=RNG_ALGORITHM)
    return tf.random.experimental.stateless_fold_in(key, i, alg=RNG_ALGORITHM)


def load_examples(dataset: tf.data.Dataset) -> Any:
    """Returns all examples of a data set of batches as one structure of tensors `[n, ...]`.

    The batches may have any sizes; the one-batch data set is the quickest to read.
    """
    # Read once, at once: it takes tf.data longer to optimise the graph of the data set than to run it.
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    dataset = dataset.with_options(options)
    spec = dataset.element_spec
    arrays = tuple(
        tf.TensorArray(s.dtype, size=0, dynamic_size=True, infer_shape=False, element_shape=s.shape)
        for s in tf.nest.flatten(spec)
    )

    def append(carry: Any, batch: Any) -> Any:
        count, arrays = carry
        return count + 1, tuple(a.write(count, x) for a, x in zip(arrays, tf.nest.flatten(batch), strict=True))

    _, arrays = fold_dataset(dataset, append, (0, arrays))
    return tf.nest.pack_sequence_as(spec, [a.concat() for a in arrays])


def digest(examples: Any) -> tf.Tensor:
    """Returns an int64 fingerprint of a structure of tensors: who a client is when it has no id."""
    parts = [
        tf.raw_ops.Fingerprint(data=tf.reshape(x, [1, -1]), method="farmhash64") for x in tf.nest.flatten(examples)
    ]
    joined = parts[0] if len(parts) == 1 else tf.raw_ops.Fingerprint(data=tf.concat(parts, 1), method="farmhash64")
    return tf.bitcast(joined, tf.int64)[0]
