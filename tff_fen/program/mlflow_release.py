"""Metrics to MLflow, as TFF's release managers bring them to TensorBoard and to CSV files."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import tensorflow_federated as tff

from tff_fen.checks import check_type


class MlflowReleaseManager(tff.program.ReleaseManager):
    """Releases each round's numbers to a run of MLflow, with the round as step.

        with tff_fen.MlflowReleaseManager("my experiment", "FedDyn, seed 0", tracking_uri="out/mlruns") as manager:
            tff_fen.run_rounds(..., release_managers=[manager])

    It needs no account and no server: by default MLflow writes to a folder. The package is imported here alone. A run
    of the same name goes on, as `run_rounds` does with a folder. At the end of the `with` block it is marked as
    finished, or as failed where there was an error.
    """

    def __init__(self, experiment: str, run: str, *, tracking_uri: str | None = None) -> None:
        """Finds the run, or creates it.

        Args:
          experiment: the experiment's name.
          run: the run's name.
          tracking_uri: a folder or a server; by default what MLflow is set up with.

        Raises:
          ImportError: if MLflow is not installed.
        """
        check_type("experiment", experiment, str, "Pass the experiment's name.")
        check_type("run", run, str, "Pass the run's name.")
        try:
            self._mlflow = importlib.import_module("mlflow")
        except ImportError as error:
            raise ImportError(
                "MlflowReleaseManager needs MLflow, which this project does not install: pip install mlflow-skinny. "
                "tff.program.CSVFileReleaseManager and TensorBoardReleaseManager need nothing more."
            ) from error
        self._client = self._mlflow.MlflowClient(tracking_uri)
        found = self._client.get_experiment_by_name(experiment)
        experiment_id = self._client.create_experiment(experiment) if found is None else found.experiment_id
        quoted = run.replace("\\", "\\\\").replace("'", "\\'")
        runs = self._client.search_runs([experiment_id], f"attributes.run_name = '{quoted}'", max_results=1)
        self.run_id = (runs[0] if runs else self._client.create_run(experiment_id, run_name=run)).info.run_id

    async def release(self, value: Mapping[str, Any], key: int) -> None:
        """Releases the numbers among a round's columns."""
        now = int(1000 * time.time())
        flat = {name: np.asarray(number) for name, number in value.items()}
        self._client.log_batch(
            self.run_id,
            metrics=[
                self._mlflow.entities.Metric(name, float(number), now, int(key))
                for name, number in flat.items()
                if number.ndim == 0 and number.dtype.kind in "biuf"
            ],
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self._client.set_terminated(self.run_id, "FINISHED" if kind is None else "FAILED")
