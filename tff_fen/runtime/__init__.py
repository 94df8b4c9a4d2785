"""Where TFF computations run: TFF's native worker, this process, or a Ray cluster; one context each."""

from tff_fen.runtime.errors import ClientWorkError, UnsupportedConstructError
from tff_fen.runtime.inprocess.context import InProcessContext, create_inprocess_context, set_inprocess_context
from tff_fen.runtime.native import create_native_context, end_worker_processes, set_native_context

# Ray itself is imported when it is first used.
from tff_fen.runtime.ray.clients import RayWorkersError
from tff_fen.runtime.ray.cluster import end_ray_cluster
from tff_fen.runtime.ray.context import RayContext, create_ray_context, set_ray_context

__all__ = [
    "ClientWorkError",
    "InProcessContext",
    "RayContext",
    "RayWorkersError",
    "UnsupportedConstructError",
    "create_inprocess_context",
    "create_native_context",
    "create_ray_context",
    "end_ray_cluster",
    "end_worker_processes",
    "set_inprocess_context",
    "set_native_context",
    "set_ray_context",
]
