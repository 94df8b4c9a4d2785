"""Two Ray nodes on this machine, one of which is killed in mid-round: `python -m tests.support.ray_nodes FOLDER`.

In a process of its own: Ray connects a process to one cluster.
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import logging
import pathlib
import sys
import tempfile
import traceback

import tff_fen
from tests.support import ray_processes
from tests.support.runtime_suite import assert_same, evaluate_on
from tff_fen.runtime.ray.cluster import connect


def main(folder: pathlib.Path) -> None:
    in_process = tff_fen.runtime.create_inprocess_context()
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory(prefix="ray_", dir="/tmp", ignore_cleanup_errors=True) as ray_folder:
        os.environ["RAY_TMPDIR"] = ray_folder
        settings = dict(num_cpus=1, include_dashboard=False)
        cluster = Cluster(initialize_head=True, head_node_args=settings)
        try:
            # Before there is a second node: Ray would connect this process to either, and the one it is on must stay.
            connect(cluster.address, num_cpus=1)
            second = cluster.add_node(num_cpus=1)
            context = tff_fen.runtime.create_ray_context(cluster.address, num_workers=2)
            workers = context.executor.describe_workers()
            assert len(workers) == 2, workers
            run = ray_processes.fed_dyn(folder)
            result = ray_processes.in_background(evaluate_on, context, run)
            ray_processes.await_started(folder, 2)
            cluster.remove_node(second, allow_graceful=False)
            ray_processes.go(folder)
            assert_same(result.result(180), evaluate_on(in_process, run), 0.0)
            remaining = context.executor.describe_workers()
            assert len(remaining) == 1 and remaining[0].process_id in {w.process_id for w in workers}
            print("the same bits")
        except BaseException:
            # Now, as a round still under way ends the process when Ray is shut down.
            traceback.print_exc()
            raise
        finally:
            import ray

            ray.shutdown()
            cluster.shutdown()


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    main(pathlib.Path(sys.argv[1]))
