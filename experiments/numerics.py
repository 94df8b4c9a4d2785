"""What decides the bits of an experiment's results beside its values and its code."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_fen.runtime import devices

# Those that compute columns of `metrics.csv`, weights or client states.
_PACKAGES = (
    "tensorflow", "tensorflow-federated", "numpy", "keras", "constriction", "llvmlite", "tensorflow-privacy",
    "dp-accounting",
)  # fmt: skip
_SIMD = ("sse", "ssse", "avx", "fma", "f16c", "amx")
# What libraries read at their start and choose kernels or precision by.
_VARIABLES = (
    "DNNL_DEFAULT_FPMATH_MODE", "DNNL_MAX_CPU_ISA", "NVIDIA_TF32_OVERRIDE", "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA", "TF_CUDNN_DETERMINISTIC", "TF_DETERMINISTIC_OPS", "TF_XLA_FLAGS", "XLA_FLAGS",
)  # fmt: skip


def describe_versions() -> dict[str, str]:
    """Returns the versions of the packages that compute, by name."""
    return {name: importlib.metadata.version(name) for name in _PACKAGES}


def describe_numerics() -> dict[str, str]:
    """Returns what else may change bits, each as text; call it when the runtime is set."""
    return {
        "runtime": type(tff.framework.get_context_stack().current).__name__,
        "instructions": _instructions(),
        # Eigen's matrix products cut their sums into blocks by them (computeProductBlockingSizes).
        "caches": _caches(),
        "onednn": str(devices.uses_onednn()),
        "threads per operation": str(tf.config.threading.get_intra_op_parallelism_threads() or os.cpu_count()),
        "gpus": ", ".join(_gpus()) or "none",
        "environment": " ".join(f"{name}={os.environ[name]}" for name in _VARIABLES if name in os.environ) or "nothing",
    }


def find_differences(there: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """Compares what an experiment began with to what there is now.

    Args:
      there: the header of a store, with `versions` and, unless it is older than they are, `numerics`.
      now: the same of this process.

    Returns:
      What differs, by name, as it was and as it is; and the names of what the header does not say, since an earlier
      version wrote it.
    """
    was, is_now = ({**(header.get("versions") or {}), **(header.get("numerics") or {})} for header in (there, now))
    different = {name: (was[name], value) for name, value in is_now.items() if was.get(name, value) != value}
    return different, [name for name in is_now if name not in was]


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
