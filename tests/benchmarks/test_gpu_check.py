"""The check of GPUs, with the CPU in a GPU's place."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

import tff_fen
from benchmarks import gpu_check, runtimes
from tests.support import new_process


def tiny() -> runtimes.Workload:
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(8, 5)).astype(np.float32), rng.integers(0, 3, 8).astype(np.int32)) for _ in range(3)]
    return runtimes.Workload(_three_classes, clients, tff_fen.LocalTraining(0.1, batch_size=4))


def _three_classes() -> tf.keras.Model:
    return tf.keras.Sequential([tf.keras.layers.InputLayer((5,)), tf.keras.layers.Dense(3)])


def test_without_a_gpu_it_says_so_and_ends_well() -> None:
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("there is a GPU")
    output = new_process.run_python("import runpy, sys\nrunpy.run_module('benchmarks.gpu_check', run_name='__main__')")
    assert output.startswith("No GPU: TensorFlow") and "make venv GPU=1" in output


@pytest.mark.long
def test_the_same_device_twice_agrees() -> None:
    """As on a GPU, the graphs of the second have none of what is made for CPUs, which may round otherwise."""
    found = gpu_check.compare(tiny(), ["/device:CPU:0"], rounds=1)
    assert 0.0 <= found.difference < 1e-6 and found.is_sound
    assert found.cpu > 0.0 and found.gpu > 0.0


def test_a_difference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = iter([[np.ones(2)], [np.array([1.0, 1.01])], [np.zeros(2)]])  # CPU, GPU, before both
    monkeypatch.setattr(gpu_check, "_weights_after", lambda *_, **__: next(weights))
    monkeypatch.setattr(runtimes, "seconds", lambda runs, rounds: {name: runtimes.Times([1.0], [1.0]) for name in runs})
    found = gpu_check.compare(tiny(), ["/device:CPU:0"], rounds=1)
    assert found.difference == pytest.approx(0.01) and not found.is_sound


@pytest.mark.parametrize(
    ("difference", "tests", "sound"),
    [
        (1e-6, "12 passed in 3.0s", True),
        (1e-6, None, True),
        (1e-3, "12 passed in 3.0s", False),
        (math.nan, "12 passed in 3.0s", False),
        (1e-6, "1 failed, 11 passed in 3.0s", False),
        (1e-6, "ended with code 4: no", False),
    ],
)
def test_the_verdict(difference: float, tests: str | None, sound: bool) -> None:
    text, found = gpu_check.report("1 GPU", {"MLP": gpu_check.Finding(difference, 10.0, 5.0)}, tests)
    assert found == sound and ("SOMETHING DIFFERS" in text) != sound
    assert "2.00" in text
