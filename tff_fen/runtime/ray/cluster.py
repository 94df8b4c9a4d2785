"""Connects this process to a Ray cluster, or starts one on this machine that ends with the process."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import grpc

from tff_fen.checks import check_type
from tff_fen.runtime.ray import watchdog

# In the environment of all processes of a cluster that was started here, by which the watchdog knows them.
MARK = "TFF_FEN_RAY_CLUSTER"
_CONNECT_SECONDS = 5.0
_END_SECONDS = 30.0
# The names of Ray's sockets below its folder take 64 of the 107 characters that Linux allows.
_LONGEST_FOLDER = 36
# Whoever reaches a port of a Ray cluster can run code: by default Ray listens on all of the machine's addresses.
_LOOPBACK = "127.0.0.1"


def connect(address: str | None, num_cpus: int) -> None:
    """Connects to the cluster at an address, or to a new one of this machine; one that is connected already is kept.

    Args:
      address: "HOST:PORT" of a cluster's head node, "auto" for the cluster that this machine belongs to, `None` for a
        new one.
      num_cpus: of the new one: how many workers of one CPU it can hold.

    Raises:
      ValueError: if there is no cluster at the address.
    """
    import ray

    if address is not None:
        _check_address(address)
    if ray.is_initialized():
        found = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", found):
            raise ValueError(
                f"address is {address!r}, but this process is connected to the Ray cluster at {found!r} already, and "
                "Ray allows for one. Leave address out to use it, or call ray.shutdown() first."
            )
    elif address is None:
        start_local_cluster(num_cpus)
    else:
        _check_answers(address)
        try:
            _init(address=address)
        except (ConnectionError, RuntimeError, ValueError, AssertionError) as error:
            raise _no_cluster(address, error) from error


class _LocalCluster:
    """A cluster of this machine that no other can reach, in a temporary folder that no other user can enter.

    A watchdog ends it if this process cannot.
    """

    def __init__(self, num_cpus: int) -> None:
        self._owner = os.getpid()
        base = tempfile.gettempdir()
        # Of mode 0700. Ray opens its own folder to everybody, so that it gets one inside.
        self._folder = tempfile.mkdtemp(prefix="ray_", dir=base if len(base) + 15 <= _LONGEST_FOLDER else "/tmp")
        ray_folder = os.path.join(self._folder, "r")
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", watchdog.__file__, MARK, self._folder, self._folder],
            stdin=subprocess.PIPE,
            # It must not hold a pipe open that somebody waits for.
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Ctrl-C in a terminal is not for it.
            start_new_session=True,
        )
        try:
            # Ray's workers would give way to all else on the machine, unlike clients in this process. And Ray would
            # complain on this process's own stderr that, without a dashboard, nobody takes its metrics.
            settings = {MARK: self._folder, "RAY_worker_niceness": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
            with _environment(**settings):
                _init(
                    address="local",
                    num_cpus=num_cpus,
                    include_dashboard=False,
                    _temp_dir=ray_folder,
                    _node_ip_address=_LOOPBACK,
                )
            os.chmod(ray_folder, 0o700)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Ends the cluster; returns when its last process is gone and its folder removed."""
        import ray

        if os.getpid() != self._owner:  # a fork
            return
        ray.shutdown()
        assert self._watchdog.stdin is not None
        self._watchdog.stdin.close()
        self._watchdog.wait(_END_SECONDS)


_local_cluster: list[_LocalCluster] = []


def start_local_cluster(num_cpus: int) -> None:
    """Starts a cluster on this machine and connects to it. It ends with the process, or by `end_ray_cluster`.

    The thread that calls it must live as long as the cluster: Ray's processes end with it.
    """
    end_ray_cluster()  # if somebody has called ray.shutdown()
    _local_cluster.append(_LocalCluster(num_cpus))


def end_ray_cluster() -> None:
    """Ends the cluster that `start_local_cluster` has started, if any; runs by itself when the interpreter exits."""
    while _local_cluster:
        _local_cluster.pop().end()


atexit.register(end_ray_cluster)


def _init(**settings: Any) -> None:
    import ray

    with _environment(RAY_USAGE_STATS_ENABLED="0"), warnings.catch_warnings():
        # On what Ray will do about GPUs in versions to come.
        warnings.simplefilter("ignore", FutureWarning)
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **settings)


@contextlib.contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Sets variables for the processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _check_address(address: str) -> None:
    """Raises unless it has the form of an address."""
    check_type("address", address, str, "Pass 'HOST:PORT', 'auto' or None.")
    if address != "auto" and not re.fullmatch(r"[^:/\s]+:\d{1,5}", address):
        raise ValueError(
            "address must be 'HOST:PORT' of the head node of a Ray cluster, 'auto' for the cluster that this machine "
            f"belongs to, or None for a new one on this machine, found {address!r}."
        )


def _check_answers(address: str) -> None:
    """Raises unless a server as Ray has answers there: Ray itself would try for minutes."""
    if address == "auto":
        return
    host, _, port = address.partition(":")
    try:
        with socket.create_connection((host, int(port)), _CONNECT_SECONDS):
            pass
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, error) from error
    with grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0)]) as channel:
        try:
            grpc.channel_ready_future(channel).result(_CONNECT_SECONDS)
        except grpc.FutureTimeoutError as error:
            raise _no_cluster(address, "what answers does not speak gRPC, as Ray does") from error


def _no_cluster(address: str, error: Exception | str) -> ValueError:
    return ValueError(
        f"address must be that of a running Ray cluster which this machine belongs to, found {address!r}, where there "
        f"is none: {error}. Start one with `ray start --head --port=6379` and join it on each other machine with `ray "
        "start --address=HOST:6379`, or leave address out for one on this machine alone."
    )
