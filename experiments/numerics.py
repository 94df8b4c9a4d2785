"""What decides the bits of an experiment's results beside its values, its code and the versions of packages."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_fen.runtime import devices

_SIMD = ("sse", "ssse", "avx", "fma", "f16c", "amx")
# What libraries read at their start and choose kernels or precision by.
_VARIABLES = (
    "DNNL_DEFAULT_FPMATH_MODE", "DNNL_MAX_CPU_ISA", "NVIDIA_TF32_OVERRIDE", "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA", "TF_CUDNN_DETERMINISTIC", "TF_DETERMINISTIC_OPS", "TF_XLA_FLAGS", "XLA_FLAGS",
)  # fmt: skip


def describe_numerics() -> dict[str, Any]:
    """Returns what may change bits, each as text; call it when the runtime is set."""
    return {
        "runtime": type(tff.framework.get_context_stack().current).__name__,
        "instructions": _instructions(),
        "caches": _caches(),  # Eigen and oneDNN cut sums into blocks by them.
        "onednn": str(devices.uses_onednn()),
        "threads per operation": str(tf.config.threading.get_intra_op_parallelism_threads() or os.cpu_count()),
        "gpus": ", ".join(_gpus()) or "none",
        "environment": " ".join(f"{name}={os.environ[name]}" for name in _VARIABLES if name in os.environ) or "nothing",
    }


def _instructions() -> str:
    """The processor's vector instructions, by which kernels are chosen; empty where Linux does not tell."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return " ".join(sorted(flag for flag in flags if flag.startswith(_SIMD)))


def _caches() -> str:
    sizes = pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    try:
        return " ".join(size.read_text().strip() for size in sorted(sizes))
    except OSError:
        return ""


def _gpus() -> list[str]:
    gpus = tf.config.list_physical_devices("GPU")
    return [tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name) for gpu in gpus]
