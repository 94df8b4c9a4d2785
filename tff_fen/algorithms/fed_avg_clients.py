"""Algorithm 1 with clients by id: for top-k with error feedback, and for counting what each client sends."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_fen.algorithms.fed_avg import build_algorithm
from tff_fen.checks import check_number
from tff_fen.client_work import model_checks
from tff_fen.client_work.trainer import Trainer
from tff_fen.codec import Codec
from tff_fen.config import ElasticNet, LocalTraining
from tff_fen.process import StatefulClientProcess, Uplink, compose_process


def build_fed_avg_clients(
    model: tff.learning.models.FunctionalModel,
    elastic_net: ElasticNet,
    local_training: LocalTraining,
    *,
    top_k: float | None = None,
    aggregator: tff.aggregators.AggregationFactory | None = None,
    client_weighting: tff.learning.ClientWeighting | None = None,
    measurements: bool = True,
    metrics_aggregator: Any | None = None,
    codec: Codec | None = None,
    release_messages: bool = False,
) -> StatefulClientProcess:
    """Builds Algorithm 1 (see `build_fed_avg`) as a process whose clients have an id and a state.

        client   delta_k as in Algorithm 1; with top-k:
                 delta_k = top_k(delta_k + e_k),  e_k' = e_k + (delta_k before) - delta_k
        server   theta' = theta + sum_k n_k delta_k / sum_k n_k

    The type is that of `build_fed_dyn` with `FedAvgClientState(client_id=int64, residual=W)`.
    Shuffling is seeded by the client's id, where `build_fed_avg` takes a digest of its data:
    the two agree but for the order of minibatches.

    Args:
      model: a `tff.learning.models.FunctionalModel` with float32 weights.
      elastic_net: l1, l2, threshold and the kind of l1 step.
      local_training: the client's SGD.
      top_k: the share of the elements that is sent, in (0, 1]; the rest is kept and joins the
        client's next update (error feedback). `None` sends all.
      aggregator: as for `build_fed_avg`.
      client_weighting: likewise.
      measurements: likewise.
      metrics_aggregator: as for TFF's builders.
      codec: what messages go through on their way to the server; the residual takes up what
        it rounds away. `None` sends float32 as it is.
      release_messages: whether a round also gives back what each client sent.

    Returns:
      A `StatefulClientProcess`.
    """
    model_checks.check_training(model, elastic_net, local_training)
    if top_k is not None:
        check_number("top_k", top_k, 0.0, open_low=True)
        if top_k > 1.0:
            raise ValueError(f"top_k must be a share of the elements, at most 1, found {top_k!r}.")
    nothing = tuple(np.zeros_like(w) for w in model.initial_weights[0])
    return compose_process(
        Trainer(model, elastic_net, local_training),
        build_algorithm(aggregator, client_weighting, () if top_k is None else nothing),
        uplink=Uplink({"delta": elastic_net.threshold}, top_k, codec),
        measurements=measurements,
        metrics_aggregator=metrics_aggregator,
        release_messages=release_messages,
    )
