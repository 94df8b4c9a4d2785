"""What the tests of the Ray runtime share: clients that wait in mid-round, and processes found by a mark."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

import tff_fen
from tests.support import models
from tff_fen.runtime.ray import watchdog

ROOT = pathlib.Path(__file__).parents[2]
CLIENTS = 4


def fed_dyn(folder: pathlib.Path | None = None) -> Callable[[], Any]:
    """Three rounds of FedDyn with four clients; returns what they end with.

    With a folder each client says there that it has started, and waits until `go(folder)` is called.
    """
    process = tff_fen.build_fed_dyn(
        models.two_layer_mlp(),
        tff_fen.ElasticNet(l1=1e-4, l2=0.05, threshold=1e-3),
        tff_fen.LocalTraining(0.1, epochs=3, batch_size=4),
        num_clients=CLIENTS,
    )
    data = [waiting(models.dataset(*models.examples(10 + k, seed=k)), k, folder) for k in range(CLIENTS)]

    def run() -> Any:
        state = process.initialize()
        clients = [process.initialize_client(k) for k in range(CLIENTS)]
        for _ in range(3):
            inputs = [tff_fen.ClientInput(s, d) for s, d in zip(clients, data, strict=True)]
            output = process.next(state, inputs)
            state, clients = output.state, output.client_states
        return list(tf.nest.flatten(process.get_model_weights(state))), output.metrics, clients

    return run


def waiting(dataset: tf.data.Dataset, client: int, folder: pathlib.Path | None) -> tf.data.Dataset:
    """The data set, which says in the folder that it is being read and then waits for `go`."""
    if folder is None:
        return dataset

    def wait(*element: Any) -> Any:
        with tf.control_dependencies([tf.io.write_file(f"{folder}/started_{client}", "")]):
            step = tf.constant(0)

        def absent(step: tf.Tensor) -> tf.Tensor:
            # Of the step, or TensorFlow would look once, before the loop.
            pattern = tf.strings.regex_replace(tf.strings.as_string(step), ".*", f"{folder}/go", replace_global=False)
            return tf.equal(tf.size(tf.io.matching_files(pattern)), 0)

        with tf.control_dependencies([tf.while_loop(absent, lambda step: step + 1, [step])]):
            return tf.nest.map_structure(tf.identity, element)

    return dataset.map(tf.autograph.experimental.do_not_convert(wait))


def await_started(folder: pathlib.Path, number: int, seconds: float = 120.0) -> None:
    """Waits until so many clients are in mid-work."""
    await_true(lambda: len(list(folder.glob("started_*"))) >= number, seconds)


def in_background(function: Callable[..., Any], *arguments: Any) -> concurrent.futures.Future[Any]:
    """Calls a function in a thread that nobody waits for: a test that fails must not hang."""
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def call() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return future


def go(folder: pathlib.Path) -> None:
    """Lets the clients go on."""
    (folder / "go").touch()


def await_true(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def start(script: str, mark: str, *arguments: str) -> subprocess.Popen[str]:
    """Starts Python code with a mark in its environment, by which `left` finds all that comes of it."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # As in a terminal: Ctrl-C goes to the whole group.
        start_new_session=True,
        env={**os.environ, "TFF_FEN_TEST_RAY": mark, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )


def left(mark: str) -> list[int]:
    """The processes that a marked one has left; not those that wait for their parent to hear of their end."""
    return watchdog.marked_processes(f"TFF_FEN_TEST_RAY={mark}".encode())
