"""A cluster that is started here: nobody on another machine can reach it, no other user can enter its folder."""

from __future__ import annotations

import ipaddress
import pathlib
import stat
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple

import psutil
import pytest

from tff_fen.runtime.ray import cluster


class Socket(NamedTuple):
    """A socket that takes what others send, and the process that has it."""

    process: str
    address: str

    def is_local(self) -> bool:
        """Whether it takes from this machine alone."""
        address = ipaddress.ip_address(self.address)
        return (getattr(address, "ipv4_mapped", None) or address).is_loopback


@pytest.fixture(scope="module")
def local_cluster() -> Iterator[pathlib.Path]:
    """A running cluster with a worker; its folder."""
    before = set(pathlib.Path(tempfile.gettempdir()).glob("ray_*"))
    cluster.connect(None, 1)
    import ray

    ray.get(ray.remote(lambda: 1).remote())
    (folder,) = set(pathlib.Path(tempfile.gettempdir()).glob("ray_*")) - before
    yield folder
    cluster.end_ray_cluster()


def open_sockets() -> list[Socket]:
    """Those of this process, and of all that it has started, but for connections."""
    found = []
    # TFF's worker of other tests in this process is none of Ray's; docs/security.md tells of it.
    children = [p for p in psutil.Process().children(recursive=True) if p.name() != "worker_binary"]
    for process in (psutil.Process(), *children):
        for each in process.net_connections("inet"):
            if each.status == psutil.CONN_LISTEN or (each.status == psutil.CONN_NONE and not each.raddr):
                found.append(Socket(process.name(), each.laddr.ip))
    return found


def test_every_socket_is_bound_to_the_loopback_address(local_cluster: pathlib.Path) -> None:
    # The agents open theirs some seconds after ray.init has returned.
    deadline = time.monotonic() + 20
    while not {"gcs_server", "raylet"} < {s.process for s in open_sockets()} or len(open_sockets()) < 6:
        assert time.monotonic() < deadline, open_sockets()
        time.sleep(0.2)
    assert [socket for socket in open_sockets() if not socket.is_local()] == []


def test_no_other_user_can_enter_its_folder(local_cluster: pathlib.Path) -> None:
    """Ray itself opens what is inside to everybody: its sockets too, which run code."""
    for folder in (local_cluster, local_cluster / "r"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
    assert list((local_cluster / "r").glob("session_*/sockets/raylet")), "this is where Ray has its sockets"


def test_nothing_is_left_of_it(tmp_path: pathlib.Path, local_cluster: pathlib.Path) -> None:
    """Last in this file: it ends the cluster."""
    cluster.end_ray_cluster()
    assert not local_cluster.exists()
