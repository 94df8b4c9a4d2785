"""The functional model of a Keras model, with the loss and the metrics that its user gave it."""

from __future__ import annotations

import collections
import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fen.checks import check_type

_ADVICE = "Pass a tf.keras.Model, or a function without arguments that returns a new one."
_METRICS = "Pass metrics=[tf.keras.metrics.SparseCategoricalAccuracy()], say."
# As Keras reads 'accuracy': by the loss that it stands beside.
_ACCURACIES = {
    "sparsecategoricalcrossentropy": tf.keras.metrics.SparseCategoricalAccuracy,
    "categoricalcrossentropy": tf.keras.metrics.CategoricalAccuracy,
    "binarycrossentropy": tf.keras.metrics.BinaryAccuracy,
}


def from_keras_model(
    keras_model: tf.keras.Model | Callable[[], tf.keras.Model],
    loss: Any = None,
    input_spec: Any = None,
    metrics: Any = None,
) -> tff.learning.models.FunctionalModel:
    """Makes the model that `build_fed_dyn` and its like take, of a Keras model.

        model = tff_fen.from_keras_model(keras_model, loss, input_spec=(x[:1], y[:1]), metrics=["accuracy"])

    It has the arguments of `tff.learning.models.from_keras_model`, and keeps what TFF's
    `functional_model_from_keras` drops: metrics come as for `compile`, under their own names, and a model that was
    compiled brings its loss and its metrics along.

    Args:
      keras_model: the model, whose weights become the initial ones; or a function that returns a new one, as a
        subclassed model may need.
      loss: a `tf.keras.losses.Loss`, its name, or a function `(y_true, y_pred)`; by default what `compile` was given.
      input_spec: the type of a batch `(x, y)`: `tf.TensorSpec`s `[None, ...]`, `element_spec` of a data set of batches,
        or a few examples as arrays, of which dtypes and shapes are taken.
      metrics: as for `compile`: a list of `tf.keras.metrics.Metric`s, of their classes, names or functions
        `(y_true, y_pred)`, or a dictionary of such by name; by default what `compile` was given. A round reports each
        as `client_work/train/NAME`. A metric is summed over clients, and so counts each example once.

    Raises:
      TypeError, ValueError: naming the argument, what was found, and what to pass.
    """
    if not isinstance(keras_model, tf.keras.Model) and not callable(keras_model):
        raise TypeError(
            f"keras_model must be a Keras model, found {keras_model!r} of type {type(keras_model).__name__}. {_ADVICE}"
        )
    built = keras_model if isinstance(keras_model, tf.keras.Model) else keras_model()
    check_type("What keras_model returns", built, tf.keras.Model, _ADVICE)
    compiled = (built.get_compile_config() or {}) if loss is None or metrics is None else {}
    loss = _loss(_compiled(compiled, "loss") if loss is None else loss)
    constructors = _metrics(_compiled(compiled, "metrics") if metrics is None else metrics, loss)
    spec = _spec(input_spec)
    if any(isinstance(part, tf.keras.layers.BatchNormalization) for part in built.submodules):
        raise ValueError(
            "keras_model has BatchNormalization, which updates its statistics while it trains; clients have no place "
            "for them. Use tf.keras.layers.GroupNormalization or LayerNormalization."
        )
    kinds = {type(part) for part in (built, *built.submodules)}

    def copy() -> _Copy:
        if tf.executing_eagerly():
            return _Copy(built, kinds)
        again = tf.keras.models.clone_model(built) if built is keras_model else keras_model()
        if not built.variables or len(again.variables) != len(built.variables):
            raise ValueError(
                f"keras_model has {len(built.variables)} variables and a copy of it {len(again.variables)}. Pass a "
                "function without arguments that returns a new model, built: with an Input layer, or by build()."
            )
        return _Copy(again, kinds)

    model = tff.learning.models.functional_model_from_keras(copy, loss, spec, constructors or None)
    _restore(kinds)
    return model


class _Copy:
    """A Keras model as TFF calls it in a graph, after which the user's own can still be called, evaluated and saved.

    In a graph of TFF's kind Keras gives the classes of all layers other bases, and from then on refuses models that
    were made outside of graphs: "Your Layer or Model is in an invalid state".
    """

    def __init__(self, model: tf.keras.Model, kinds: Iterable[Any]) -> None:
        self._model, self._kinds = model, kinds
        self.variables = model.variables
        self.trainable_variables = model.trainable_variables
        self.non_trainable_variables = model.non_trainable_variables

    def __call__(self, x: Any, training: bool) -> Any:
        output = self._model(x, training=training)
        _restore(self._kinds)
        return output


@tf.autograph.experimental.do_not_convert
def _restore(kinds: Iterable[Any]) -> None:
    """Gives classes their bases back: the next instance that is made outside of graphs does it."""
    # A new thread is outside of all graphs.
    thread = threading.Thread(target=lambda: [kind.__new__(kind) for kind in kinds])
    thread.start()
    thread.join()


def _compiled(config: Mapping[str, Any], name: str) -> Any:
    """What `compile` was given for a loss or for metrics; `None` if nothing."""
    if config.get(name) is None:
        return None
    try:
        return tf.keras.saving.deserialize_keras_object(config[name])
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"The model was compiled with a {name} of its user's own, which Keras does not give back: {error} "
            f"Pass {name}=... as well."
        ) from error


class _FunctionLoss(tf.keras.losses.Loss):
    """The mean over the examples of a function `(y_true, y_pred)`."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        super().__init__(name=getattr(function, "__name__", None))
        self._function = function

    def call(self, y_true: Any, y_pred: Any) -> tf.Tensor:
        return self._function(y_true, y_pred)


def _loss(loss: Any) -> tf.keras.losses.Loss:
    if isinstance(loss, str):
        try:
            loss = tf.keras.losses.get(loss)
        except ValueError as error:
            raise ValueError(f"loss must be the name of a loss of Keras, found {loss!r}. {error}") from error
    if isinstance(loss, tf.keras.losses.Loss):
        return loss
    if isinstance(loss, type) and issubclass(loss, tf.keras.losses.Loss):
        return loss()
    if callable(loss):
        return _FunctionLoss(loss)
    raise TypeError(
        f"loss must be a tf.keras.losses.Loss, its name or a function, found {loss!r} of type {type(loss).__name__}. "
        "Pass loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), say, or compile the model with one."
    )


def _metrics(metrics: Any, loss: tf.keras.losses.Loss) -> collections.OrderedDict[str, Callable[[], Any]]:
    """Constructors by name: a round makes its metrics anew, in graphs of its own."""
    named: list[tuple[str | None, Any]]
    if isinstance(metrics, Mapping):
        named = list(metrics.items())
    elif isinstance(metrics, list | tuple):
        named = [(None, metric) for metric in metrics]
    else:
        named = [] if metrics is None else [(None, metrics)]
    constructors: collections.OrderedDict[str, Callable[[], Any]] = collections.OrderedDict()
    for name, metric in named:
        own_name, constructor = _constructor(metric, loss)
        name = name or own_name
        if name in constructors:
            raise ValueError(f"metrics has {name!r} twice. Give each a name of its own: Metric(name=...).")
        constructors[name] = constructor
    return constructors


def _constructor(metric: Any, loss: tf.keras.losses.Loss) -> tuple[str, Callable[[], Any]]:
    """A metric's name, and what makes it anew."""
    name = metric if isinstance(metric, str) else None
    if isinstance(metric, str):
        metric = _by_name(metric, loss)
    if isinstance(metric, tf.keras.metrics.Metric):
        return name or metric.name, functools.partial(type(metric).from_config, metric.get_config())
    if callable(metric) and _needs_nothing(metric):  # a class, or what TFF calls a constructor
        with tf.Graph().as_default():
            made = metric()
        check_type("What a constructor of a metric returns", made, tf.keras.metrics.Metric, _METRICS)
        return name or made.name, metric
    if callable(metric):
        own_name = name or str(getattr(metric, "__name__", "metric"))
        return own_name, functools.partial(tf.keras.metrics.MeanMetricWrapper, metric, name=own_name)
    raise TypeError(
        f"A metric must be a tf.keras.metrics.Metric, its class, its name or a function, found {metric!r} of type "
        f"{type(metric).__name__}. {_METRICS}"
    )


def _needs_nothing(function: Callable[..., Any]) -> bool:
    """Whether it can be called without arguments."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # of something builtin
        return False
    return all(p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)


def _by_name(name: str, loss: tf.keras.losses.Loss) -> Any:
    if name in ("accuracy", "acc"):
        beside = {str(kind).lower().replace("_", "") for kind in (type(loss).__name__, loss.name)}
        found = [metric for kind, metric in _ACCURACIES.items() if kind in beside]
        if not found:
            raise ValueError(f"The metric {name!r} has no meaning beside the loss {loss.name!r}. {_METRICS}")
        return found[0]
    try:
        metric = tf.keras.metrics.get(name)
    except ValueError:
        metric = name
    if metric == name:  # what Keras gives back for some names that it does not know
        raise ValueError(f"A metric must be the name of one of Keras's, found {name!r}. {_METRICS}")
    return metric


def _spec(input_spec: Any) -> Any:
    if input_spec is None:
        raise TypeError(
            "input_spec must say what a batch is, found None. Pass a few examples, input_spec=(x[:1], y[:1]), or the "
            "element_spec of a data set of batches."
        )
    if isinstance(input_spec, tf.data.Dataset):
        input_spec = input_spec.element_spec
    return tf.nest.map_structure(_leaf_spec, input_spec)


def _leaf_spec(leaf: Any) -> tf.TypeSpec:
    if isinstance(leaf, tf.TypeSpec):
        return leaf
    array = np.asarray(leaf)
    if array.ndim == 0 or array.dtype.kind not in "biuf":
        raise TypeError(
            "input_spec must be made of tf.TensorSpecs or of arrays whose first axis is that of the examples, found "
            f"{leaf!r} of type {type(leaf).__name__}."
        )
    if array.dtype == np.float64:
        raise TypeError(
            "input_spec has an array of dtype float64; models compute in float32. Cast the data: x.astype(np.float32)."
        )
    return tf.TensorSpec([None, *array.shape[1:]], array.dtype)
