"""Where TFF computations run."""

from tff_fen.runtime.native import end_worker_processes, set_native_context

__all__ = ["end_worker_processes", "set_native_context"]
