"""A federated task: clients' data, a central test set, and a Keras model; usable as TFF's `BaselineTask`."""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import attrs
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from tasks.augmentations import Augmentation

Examples = tuple[np.ndarray, np.ndarray]
"""Inputs [n, ...] and labels int32 [n]."""


class Clients(Sequence[Examples]):
    """The clients' training data, read when asked for: `clients[k]` for k from 0."""

    def __init__(self, num_clients: int, read: Callable[[int], Examples]) -> None:
        self._num_clients = num_clients
        self._read = read

    def __len__(self) -> int:
        return self._num_clients

    @overload
    def __getitem__(self, k: int) -> Examples: ...

    @overload
    def __getitem__(self, k: slice) -> list[Examples]: ...

    def __getitem__(self, k: Any) -> Any:
        if isinstance(k, slice):
            return [self._read(i) for i in range(*k.indices(self._num_clients))]
        if not 0 <= k < self._num_clients:
            raise IndexError(f"client must be an integer from 0 to {self._num_clients - 1}, found {k!r}.")
        return self._read(int(k))

    def __iter__(self) -> Iterator[Examples]:
        return (self._read(k) for k in range(self._num_clients))


@attrs.define(frozen=True)
class Task(tff.simulation.baselines.BaselineTask):
    """A `tff.simulation.baselines.BaselineTask` that also gives what `tff_fen` works with.

    As a `BaselineTask` it has `datasets` (training clients by their number as a string, the
    central test set, batching) and `model_fn`. Beside that:

    Attributes:
      name: of the task.
      clients: the training data, `clients[k] == (x, y)`.
      test: the central test set, `(x, y)`.
      build_keras_model: returns a new model with the task's initial weights, giving logits.
      batch_size: the paper's.
      training_set: which one it is, where a data set has several; else `None`.
      augment: what is done to training batches before each step, for `tff_fen.LocalTraining(augment=...)`;
        `None` for nothing. `clients` and `datasets` are what it is applied to.
    """

    name: str
    clients: Clients
    test: Examples
    build_keras_model: Callable[[], tf.keras.Model]
    batch_size: int
    training_set: str | None = None
    augment: Augmentation | None = None

    def __attrs_post_init__(self) -> None:
        """Makes no model, as TFF would, to compare its input's type with the data's: `build_task` gives both one type.

        TFF makes it in a graph, after which Keras refuses all models that the user has made before.
        """

    @property
    def input_spec(self) -> tuple[tf.TensorSpec, tf.TensorSpec]:
        """The type of a batch."""
        return _batch_spec(self.test)

    def fingerprint(self) -> str:
        """Returns a digest of the test set and of some clients: to notice that a task's data are others than before."""
        sha = hashlib.sha256(str(len(self.clients)).encode())
        for examples in (self.test, self.clients[0], self.clients[len(self.clients) - 1]):
            for array in examples:
                sha.update(np.ascontiguousarray(array).data)
        return sha.hexdigest()

    def client_dataset(self, k: int) -> tf.data.Dataset:
        """Returns client k's data as one batch: the quickest for `LocalTraining(batch_size=...)` to read."""
        return tf.data.Dataset.from_tensors(self.clients[k])

    def build_model(self) -> tff.learning.models.FunctionalModel:
        """Returns the model for `tff_fen`'s builders, with cross-entropy loss and accuracy as its metric."""
        return tff.learning.models.functional_model_from_keras(
            tff_fen.fuse_lstm(self.build_keras_model()), _build_loss(), self.input_spec, _METRICS
        )


def build_task(
    name: str,
    clients: Clients,
    test: Examples,
    build_keras_model: Callable[[], tf.keras.Model],
    batch_size: int,
    *,
    training_set: str | None = None,
    augment: Augmentation | None = None,
) -> Task:
    """Returns a `Task`; see there for the arguments."""
    spec = _batch_spec(test)

    def batch(dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.batch(batch_size)

    def model_fn() -> tff.learning.models.VariableModel:
        metrics = [build() for build in _METRICS.values()]
        return tff.learning.models.from_keras_model(build_keras_model(), _build_loss(), spec, metrics=metrics)

    datasets = tff.simulation.baselines.BaselineTaskDatasets(
        ArrayClientData(clients, spec),
        # From a generator: slices of a tensor would put a second copy of the test set into TensorFlow.
        _slices(lambda: test, spec),
        train_preprocess_fn=batch,
        eval_preprocess_fn=batch,
    )
    return Task(  # type: ignore[call-arg]  # TFF has no types, so the fields of the base class are not known
        datasets=datasets,
        model_fn=model_fn,
        name=name,
        clients=clients,
        test=test,
        build_keras_model=build_keras_model,
        batch_size=batch_size,
        training_set=training_set,
        augment=augment,
    )


class ArrayClientData(tff.simulation.datasets.ClientData):
    """`Clients` as TFF's `ClientData`: examples one by one, clients by their number as a string."""

    def __init__(self, clients: Clients, batch_spec: Any) -> None:
        self._clients = clients
        self._batch_spec = batch_spec
        self._client_ids: list[str] | None = None

    @property
    def client_ids(self) -> list[str]:
        """'0', '1', ...; made when first asked for."""
        if self._client_ids is None:
            self._client_ids = [str(k) for k in range(len(self._clients))]
        return self._client_ids

    @property
    def element_type_structure(self) -> Any:
        """The type of one example."""
        return tf.nest.map_structure(lambda s: tf.TensorSpec(s.shape[1:], s.dtype), self._batch_spec)

    def create_tf_dataset_for_client(self, client_id: str) -> tf.data.Dataset:
        """Returns the examples of a client."""
        if not str(client_id).isdecimal() or int(client_id) >= len(self._clients):
            raise ValueError(f"client_id must be '0' to '{len(self._clients) - 1}', found {client_id!r}.")
        return tf.data.Dataset.from_tensor_slices(self._clients[int(client_id)])

    @property
    def serializable_dataset_fn(self) -> Callable[[Any], tf.data.Dataset]:
        """Traceable, as TFF asks; the graph calls back into this process, so it cannot be run in another."""

        def read(client_id: bytes) -> Examples:
            return self._clients[int(client_id)]

        def dataset(client_id: Any) -> tf.data.Dataset:
            x, y = tf.numpy_function(read, [client_id], [spec.dtype for spec in self._batch_spec])
            arrays = tuple(tf.ensure_shape(a, s.shape) for a, s in zip((x, y), self._batch_spec, strict=True))
            return tf.data.Dataset.from_tensor_slices(arrays)

        return dataset


_METRICS = collections.OrderedDict(accuracy=tf.keras.metrics.SparseCategoricalAccuracy)


def _build_loss() -> tf.keras.losses.Loss:
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _batch_spec(examples: Examples) -> tuple[tf.TensorSpec, tf.TensorSpec]:
    x, y = examples
    return tf.TensorSpec([None, *x.shape[1:]], x.dtype), tf.TensorSpec([None], y.dtype)


def _slices(read: Callable[[], Examples], batch_spec: Any) -> tf.data.Dataset:
    """Returns the examples of NumPy arrays one by one, without a copy of the arrays in TensorFlow."""
    signature = tuple(tf.TensorSpec(s.shape[1:], s.dtype) for s in batch_spec)
    return tf.data.Dataset.from_generator(lambda: zip(*read(), strict=True), output_signature=signature)
