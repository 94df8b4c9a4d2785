"""Who does the clients' work: in the order of clients, in threads or elsewhere, and no longer than it is wanted."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from typing import Any

import pytest

from tests.support import runtime_clients
from tests.support.runtime_suite import evaluate_on
from tff_fen.runtime.inprocess import executors
from tff_fen.runtime.inprocess.context import InProcessContext


def test_results_are_in_the_order_of_clients() -> None:
    executor = executors.ThreadedClientExecutor(4)

    class Slow:
        block = None
        scope: dict[str, Any] = {}  # noqa: RUF012

        def __call__(self, argument: Any = ()) -> Any:
            time.sleep(0.02 if argument % 2 == 0 else 0.0)
            return argument, threading.get_ident()

    results = executor.run(Slow(), list(range(12)))
    assert [argument for argument, _ in results] == list(range(12))
    assert len({thread for _, thread in results}) > 1


def test_clients_that_have_not_begun_do_not_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end = threading.Semaphore(0), threading.Event()
    arguments = list(range(100))
    done = []

    class Waiting:
        block = None
        scope: dict[str, Any] = {}  # noqa: RUF012

        def __call__(self, argument: Any = ()) -> Any:
            begun.release()
            may_end.wait()
            done.append(argument)

    def interrupt(self: Any) -> None:
        for _ in range(2):
            begun.acquire()
        raise KeyboardInterrupt

    executor = executors.ThreadedClientExecutor(2)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(concurrent.futures.Future, "result", interrupt)
        executor.run(Waiting(), arguments)
    may_end.set()
    executor._pool.shutdown()
    assert sorted(done) == [0, 1]


def test_client_work_goes_through_the_executor() -> None:
    """What a runtime on other machines implements: nothing but this method sees a client's work."""

    class Recording:
        def __init__(self) -> None:
            self.calls: list[tuple[str, int]] = []

        def run(self, function: executors.ClientFunction, arguments: Any) -> list[Any]:
            self.calls.append((function.block.proto.WhichOneof("computation"), len(arguments)))
            assert not function.scope
            return [function(argument) for argument in arguments]

    executor = Recording()
    computation = runtime_clients.centered()
    result = evaluate_on(InProcessContext(executor), lambda: computation(runtime_clients.NUMBERS))
    assert executor.calls[-1] == ("tensorflow", len(runtime_clients.NUMBERS))
    assert all(count == len(runtime_clients.NUMBERS) for _, count in executor.calls)
    assert len(result) == len(runtime_clients.NUMBERS)
