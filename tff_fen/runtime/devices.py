"""What TensorFlow has to compute with in this process."""

from __future__ import annotations

import functools
import os

import tensorflow as tf

# What TensorFlow's own pass marks operations with that it has given kernels of oneDNN.
ONEDNN_LABEL = b"MklNameChangeOp"


@functools.cache
def has_gpu() -> bool:
    """Whether there is a GPU, which has kernels of its own."""
    return bool(tf.config.list_logical_devices("GPU"))


def uses_onednn() -> bool:
    """Whether kernels of oneDNN are to be used, if TensorFlow was built with them."""
    return not has_gpu() and os.environ.get("TF_ENABLE_ONEDNN_OPTS") != "0"
