"""What TensorFlow has to compute with in this process."""

from __future__ import annotations

import functools
import warnings

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


def split(kind: str, parts: int, megabytes: int | None = None) -> None:
    """Makes several logical devices of each device, which compute side by side; call it before TensorFlow starts.

    Args:
      kind: "GPU" or "CPU".
      parts: logical devices per device.
      megabytes: of each device, shared equally by its parts; `None` for CPUs, which have no limit.
    """
    physical = tf.config.list_physical_devices(kind)
    if not physical:
        warnings.warn(f"TensorFlow finds no {kind} to split into {parts}.", RuntimeWarning, stacklevel=4)
    limit = None if megabytes is None else megabytes // parts
    try:
        for device in physical:
            part = tf.config.LogicalDeviceConfiguration(memory_limit=limit)
            tf.config.set_logical_device_configuration(device, [part] * parts)
    except RuntimeError as error:
        raise RuntimeError(
            f"A {kind} can be split into {parts} only before TensorFlow starts. Call "
            "tff_fen.runtime.set_inprocess_context() before the first tensor or model is made."
        ) from error
