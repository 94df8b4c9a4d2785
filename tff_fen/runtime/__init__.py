"""Where TFF computations run."""

from tff_fen.runtime.native import create_native_context, end_worker_processes, set_native_context

__all__ = ["create_native_context", "end_worker_processes", "set_native_context"]
