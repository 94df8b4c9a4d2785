"""What TensorFlow has to compute with in this process."""

from __future__ import annotations

import functools

import tensorflow as tf
from tensorflow.python.util import _pywrap_util_port  # what no public name tells: whether TensorFlow uses oneDNN

# What TensorFlow's own pass marks operations with that it has given kernels of oneDNN.
ONEDNN_LABEL = b"MklNameChangeOp"


@functools.cache
def has_gpu() -> bool:
    """Whether there is a GPU, which has kernels of its own."""
    return bool(tf.config.list_logical_devices("GPU"))


def uses_onednn() -> bool:
    """Whether TensorFlow gives operations kernels of oneDNN: by its build, the processor, and TF_ENABLE_ONEDNN_OPTS."""
    return not has_gpu() and _pywrap_util_port.IsMklEnabled()
