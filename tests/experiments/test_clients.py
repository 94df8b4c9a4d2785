"""Single clients: the rows of `clients.csv`, and what a report says of them."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

from experiments import clients
from experiments.columns import CLIENT_BYTES
from experiments.experiment_config import ExperimentConfig
from experiments.report.groups import group_runs
from experiments.report.read import ReportError, find_runs
from experiments.report.tables import clients_table
from tasks.evaluation import Evaluation
from tests.support.fake_results import write_run
from tff_fen.program.records import Record

COHORTS = ([0, 2], [2], [2, 3])
BYTES = ([10, 20], [30], [40, 50])


def measured(num_clients: int = 4, seed: int = 0) -> list[dict[str, Any]]:
    def evaluate(weights: Any, chosen: Any) -> Any:
        assert weights == "model"
        return ((0, Evaluation(0.0, 0.0)) if k == 3 else (5, Evaluation(k / 10, 1.0)) for k in chosen)

    records = [Record({}, {CLIENT_BYTES: sent}) for sent in BYTES]
    return clients.measure_clients(records, COHORTS.__getitem__, num_clients, evaluate, "model", seed=seed, quiet=True)


def test_a_row_per_client() -> None:
    rows = measured()
    assert [row["client"] for row in rows] == [0, 1, 2, 3]
    assert [row["rounds"] for row in rows] == [1, 0, 3, 1]
    assert [row["uplink_bytes"] for row in rows] == [10, 0, 90, 50]
    assert [row["share_of_rounds"] for row in rows] == [1 / 3, 0, 1, 1 / 3]
    assert [row["accuracy"] for row in rows] == [0.0, 0.1, 0.2, None], "client 3 has no examples"
    assert rows[0].keys() == {*clients.COLUMNS}


def test_bytes_that_are_not_known_stay_empty() -> None:
    def evaluate(weights: Any, chosen: Any) -> Any:
        return ((5, Evaluation(0.5, 1.0)) for _ in chosen)

    rows = clients.measure_clients([Record({}, {})], lambda t: [0], 2, evaluate, "model", quiet=True)
    assert [row["uplink_bytes"] for row in rows] == [None, None] and rows[0]["rounds"] == 1


def test_of_many_clients_a_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "MOST", 3)
    rows = measured(num_clients=50)
    assert len(rows) == 3 and rows == measured(num_clients=50) != measured(num_clients=50, seed=1)


def write_clients(folder: pathlib.Path, accuracies: list[float]) -> None:
    rows = [
        dict(client=k, examples=9, rounds=2, share_of_rounds=0.5, uplink_bytes=1000 * k, loss=1.0, accuracy=accuracy)
        for k, accuracy in enumerate(accuracies)
    ]
    (folder / clients.FILE).write_text(clients.format_clients(rows))


def test_a_report_has_the_worst_and_the_quantiles(tmp_path: pathlib.Path) -> None:
    write_run(tmp_path / "run", "mnist/iid/fed_dyn")
    write_clients(tmp_path / "run", [k / 100 for k in range(20)])
    (run,) = find_runs([tmp_path])
    assert run.clients is not None and np.array_equal(run.clients["uplink_bytes"], 1000 * np.arange(20))
    table = clients_table(group_runs([run])).content
    # The worst tenth: 0 and 1 per cent; the median of 0 to 19.
    assert ">0.50<" in table and ">9.50<" in table and "9.5 (most 19.0)" in table


def test_a_damaged_file_is_named(tmp_path: pathlib.Path) -> None:
    write_run(tmp_path / "run", "mnist/iid/fed_dyn")
    write_clients(tmp_path / "run", [0.5, 1.5])
    with pytest.raises(ReportError, match=r"clients.csv .*accuracy"):
        find_runs([tmp_path])


def test_what_an_aggregator_hides_is_not_written() -> None:
    with pytest.raises(ValueError, match="per_client_metrics=True writes what aggregator='dp' hides of single clients"):
        ExperimentConfig(l2=0.1, aggregator="dp", per_client_metrics=True)
    assert ExperimentConfig(l2=0.1, aggregator="dp", per_client_metrics=True, client_measurements="on")
