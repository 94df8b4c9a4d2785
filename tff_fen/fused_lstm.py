"""Keras's LSTM computed by TensorFlow's one operation for it, `BlockLSTMV2`, in place of a loop of small ones.

    model = tff.learning.models.functional_model_from_keras(tff_fen.fuse_lstm(keras_model), loss, spec)

A step of the paper's LSTM takes less than half the time, on every runtime (`python -m benchmarks.runtimes
--workloads=lstm`). Weights keep their names, shapes and order, and results are those of Keras's loop to rounding.

Layers are replaced in the model rather than found in its graph. There, an LSTM is a forward and a backward loop that
share a dozen lists of activations; TensorFlow's optimiser has changed both, and nothing in them tells an LSTM from a
loop that computes almost the same.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tff_fen import graph_marks
from tff_fen.checks import check_type


class FusedLSTM(tf.keras.layers.RNN):
    """`tf.keras.layers.RNN` of an `LSTMCell`, in one operation where TensorFlow has it, else in Keras's loop.

    The operation knows tanh and sigmoid, float32, and sequences of one length. So Keras's loop computes a mask, an
    initial state, dropout, other activations or types, `stateful`, `unroll`, ragged tensors and cells of other classes,
    and whatever XLA compiles, which does not know the operation.
    """

    def call(
        self,
        inputs: Any,
        mask: Any | None = None,
        training: Any | None = None,
        initial_state: Any | None = None,
        constants: Any | None = None,
    ) -> Any:
        """Returns what `tf.keras.layers.RNN` does."""
        given = (mask, initial_state, constants)
        if any(value is not None for value in given) or not (_is_fusable(inputs) and self._has_plain_cell()):
            return super().call(inputs, mask, training, initial_state, constants)
        x = inputs if self.time_major else tf.transpose(inputs, [1, 0, 2])
        if self.go_backwards:
            x = tf.reverse(x, [0])
        cell = self.cell
        start = tf.zeros([tf.shape(x)[1], cell.units])
        bias = tf.convert_to_tensor(cell.bias) if cell.use_bias else tf.zeros([4 * cell.units])
        h, c = _lstm(x, start, start, tf.concat([cell.kernel, cell.recurrent_kernel], 0), bias)
        output = h[-1]
        if self.return_sequences:
            output = h if self.time_major else tf.transpose(h, [1, 0, 2])
        return [output, h[-1], c[-1]] if self.return_state else output

    def _has_plain_cell(self) -> bool:
        cell = self.cell
        return (
            type(cell) is tf.keras.layers.LSTMCell
            and cell.activation is tf.keras.activations.tanh
            and cell.recurrent_activation is tf.keras.activations.sigmoid
            and not (cell.dropout or cell.recurrent_dropout or self.stateful or self.unroll)
            and cell.compute_dtype == cell.variable_dtype == "float32"
        )


def fuse_lstm(keras_model: tf.keras.Model) -> tf.keras.Model:
    """Returns the model with each `LSTM`, and each `RNN` of an `LSTMCell`, as a `FusedLSTM` of the same weights.

    Layers inside of other layers (`Bidirectional`, models in models) stay as they are. So does a model without such
    layers, which is returned itself.

    Args:
      keras_model: a Sequential or functional Keras model.
    """
    check_type("keras_model", keras_model, tf.keras.Model, "Pass a Keras model.")
    if not any(map(_is_lstm, keras_model.layers)):
        return keras_model
    fused = tf.keras.models.clone_model(keras_model, clone_function=_clone)
    fused.set_weights(keras_model.get_weights())
    return fused


def _is_fusable(inputs: Any) -> bool:
    return isinstance(inputs, tf.Tensor) and inputs.dtype == tf.float32 and not graph_marks.is_for_xla()


def _is_lstm(layer: tf.keras.layers.Layer) -> bool:
    is_recurrent = type(layer) in (tf.keras.layers.LSTM, tf.keras.layers.RNN)
    return is_recurrent and type(layer.cell) is tf.keras.layers.LSTMCell


def _clone(layer: tf.keras.layers.Layer) -> tf.keras.layers.Layer:
    config = layer.get_config()
    if not _is_lstm(layer):
        return type(layer).from_config(config)
    cell = tf.keras.layers.LSTMCell.from_config(layer.cell.get_config())
    # The names that `RNN` has beside its cell; a cell's own are in the configuration of an `LSTM`, too.
    of_layer = ("name", "trainable", "dtype", "return_sequences", "return_state", "go_backwards", "stateful", "unroll")
    settings = {name: config[name] for name in (*of_layer, "time_major")}
    return FusedLSTM(cell, activity_regularizer=layer.activity_regularizer, **settings)


@tf.custom_gradient
def _lstm(x: tf.Tensor, h: tf.Tensor, c: tf.Tensor, weights: tf.Tensor, bias: tf.Tensor) -> Any:
    """Returns h and c of all times, `[time, batch, units]`; Keras and the operation have the gates in one order."""
    no_peephole = tf.zeros([h.shape[1]])
    arguments = dict(
        seq_len_max=tf.shape(x, tf.int64)[0],
        x=x,
        cs_prev=c,
        h_prev=h,
        w=weights,
        wci=no_peephole,
        wcf=no_peephole,
        wco=no_peephole,
        b=bias,
    )
    outputs = tf.raw_ops.BlockLSTMV2(**arguments)

    # TensorFlow's own gradient of BlockLSTMV2 is that of BlockLSTM, which has the gates in another order.
    def gradient(h_grad: tf.Tensor, c_grad: tf.Tensor) -> tuple[tf.Tensor, ...]:
        gradients = tf.raw_ops.BlockLSTMGradV2(
            **arguments, **outputs._asdict(), h_grad=h_grad, cs_grad=c_grad, use_peephole=False
        )
        return gradients.x_grad, gradients.h_prev_grad, gradients.cs_prev_grad, gradients.w_grad, gradients.b_grad

    return (outputs.h, outputs.cs), gradient
