"""Releases to MLflow, by a stub that keeps what MLflow's client would be told; the real one is not installed."""

from __future__ import annotations

import asyncio
import sys
import types
from typing import Any

import numpy as np
import pytest
import tensorflow_federated as tff

import tff_fen


class Client:
    """What is used of `mlflow.MlflowClient`; what it is told outlives it, as on a disk."""

    stored: dict[str, Any]

    def __init__(self, tracking_uri: str | None = None) -> None:
        self.stored["uri"] = tracking_uri

    def get_experiment_by_name(self, name: str) -> Any:
        return types.SimpleNamespace(experiment_id=f"id of {name}") if name in self.stored["experiments"] else None

    def create_experiment(self, name: str) -> str:
        self.stored["experiments"].append(name)
        return f"id of {name}"

    def search_runs(self, experiment_ids: list[str], filter_string: str, max_results: int) -> list[Any]:
        return [
            run for run in self.stored["runs"]
            if run.experiment in experiment_ids and filter_string == f"attributes.run_name = '{run.name}'"
        ][:max_results]  # fmt: skip

    def create_run(self, experiment_id: str, run_name: str) -> Any:
        info = types.SimpleNamespace(run_id=f"run {len(self.stored['runs'])}")
        self.stored["runs"].append(types.SimpleNamespace(info=info, experiment=experiment_id, name=run_name))
        return self.stored["runs"][-1]

    def log_batch(self, run_id: str, metrics: list[tuple[str, float, int, int]]) -> None:
        self.stored["metrics"] += [(run_id, name, value, step) for name, value, _, step in metrics]

    def set_terminated(self, run_id: str, status: str) -> None:
        self.stored["status"] = run_id, status


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    found: dict[str, Any] = {"experiments": [], "runs": [], "metrics": [], "status": None}
    entities = types.SimpleNamespace(Metric=lambda *fields: fields)
    client = type("MlflowClient", (Client,), {"stored": found})
    monkeypatch.setitem(sys.modules, "mlflow", types.SimpleNamespace(MlflowClient=client, entities=entities))
    return found


def release(manager: tff.program.ReleaseManager, value: dict[str, Any], key: int) -> None:
    asyncio.new_event_loop().run_until_complete(manager.release(value, key))


def test_numbers_go_to_one_run_by_its_name(stored: dict[str, Any]) -> None:
    with tff_fen.MlflowReleaseManager("digits", "seed 0", tracking_uri="out/mlruns") as manager:
        assert isinstance(manager, tff.program.ReleaseManager)
        release(manager, {"a/loss": np.float32(0.5), "n": np.int64(3), "text": "no", "vector": np.ones(2)}, 1)
    assert stored["status"] == ("run 0", "FINISHED") and stored["uri"] == "out/mlruns"
    again = tff_fen.MlflowReleaseManager("digits", "seed 0")
    release(again, {"n": 4}, 2)
    assert again.run_id == manager.run_id and stored["experiments"] == ["digits"]
    assert stored["metrics"] == [("run 0", "a/loss", 0.5, 1), ("run 0", "n", 3.0, 1), ("run 0", "n", 4.0, 2)]
    assert tff_fen.MlflowReleaseManager("digits", "seed 1").run_id != manager.run_id


def test_an_error_marks_the_run_as_failed(stored: dict[str, Any]) -> None:
    with pytest.raises(KeyboardInterrupt), tff_fen.MlflowReleaseManager("digits", "seed 0"):
        raise KeyboardInterrupt
    assert stored["status"] == ("run 0", "FAILED")


def test_without_mlflow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ImportError, match="pip install mlflow-skinny"):
        tff_fen.MlflowReleaseManager("digits", "seed 0")


def test_names_are_texts(stored: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="run must be a str, found 3"):
        tff_fen.MlflowReleaseManager("digits", 3)  # type: ignore[arg-type]
