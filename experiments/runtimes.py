"""The runtimes of `--runtime`, by name."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow_federated as tff

import tff_fen
from tff_fen.checks import check_name

_RUNTIMES: dict[str, Callable[[str | None], None]] = {
    "inprocess": lambda address: tff_fen.runtime.set_inprocess_context(),
    "native": lambda address: tff_fen.runtime.set_native_context(ignore_interrupts=True),
    "ray": lambda address: tff_fen.runtime.set_ray_context(address),
}


def check_runtime(name: str, ray_address: str | None = None) -> None:
    """Raises a `ValueError` unless there is such a runtime, and the address is for it."""
    check_name("runtime", name, _RUNTIMES)
    if ray_address is not None and name != "ray":
        raise ValueError(f"ray_address={ray_address} has no effect: it is for --runtime=ray.")


def set_runtime(name: str, ray_address: str | None = None, secure: bool = False) -> None:
    """Sets a runtime.

    Args:
      name: `inprocess`, `native` or `ray`.
      ray_address: of a cluster's head node; `None` for a new cluster on this machine.
      secure: whether there is secure aggregation, for which TFF's worker needs another context.
    """
    check_runtime(name, ray_address)
    if secure and name == "native":
        tff.backends.test.set_sync_test_cpp_execution_context()
    else:
        _RUNTIMES[name](ray_address)
