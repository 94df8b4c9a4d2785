"""The runtimes that the tests of this folder compare, made once per file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow_federated as tff

from tests.support.runtime_suite import create_context
from tff_fen.runtime.inprocess.context import InProcessContext


@pytest.fixture(scope="module")
def native() -> Any:
    return tff.backends.test.create_sync_test_cpp_execution_context()


@pytest.fixture(scope="module")
def in_process() -> InProcessContext:
    return create_context(max_concurrent_clients=3)


@pytest.fixture
def installed(in_process: InProcessContext) -> Iterator[InProcessContext]:
    with tff.framework.get_context_stack().install(in_process):
        yield in_process
