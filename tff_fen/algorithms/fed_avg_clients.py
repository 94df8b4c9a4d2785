"""Algorithm 1 with clients by id: for top-k with error feedback, and for counting what each client sends."""

from __future__ import annotations

from typing import Any

import tensorflow_federated as tff

from tff_fen.algorithms.fed_avg import build_algorithm
from tff_fen.client_work import model_checks
from tff_fen.client_work.trainer import Trainer
from tff_fen.codec import Codec, Compressor
from tff_fen.compressors.top_k import TopK
from tff_fen.compressors.vectors import check_share
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
    compressor: Compressor | None = None,
    error_feedback: bool = False,
    release_messages: bool = False,
) -> StatefulClientProcess:
    """Builds Algorithm 1 (see `build_fed_avg`) as a process whose clients have an id and a state.

        client   delta_k as in Algorithm 1; with error feedback, C the compressor:
                 v = delta_k + e_k,  sends C(v),  e_k' = v - C(v)
        server   theta' = theta + sum_k n_k C(v_k) / sum_k n_k

    The type is that of `build_fed_dyn` with `FedAvgClientState(client_id=int64, residual=W)`.
    Shuffling is seeded by the client's id, where `build_fed_avg` takes a digest of its data:
    the two agree but for the order of minibatches.

    Args:
      model: a `tff.learning.models.FunctionalModel` with float32 weights.
      elastic_net: l1, l2, threshold and the kind of l1 step.
      local_training: the client's SGD.
      top_k: another spelling of `compressor=TopK(top_k), error_feedback=True`.
      aggregator: as for `build_fed_avg`.
      client_weighting: likewise.
      measurements: likewise.
      metrics_aggregator: as for TFF's builders.
      codec: what messages go through on their way to the server. `None` sends float32 as it is.
      compressor: what makes messages cheaper before that (`tff_fen.codec.parse_compressor`).
      error_feedback: whether what was not sent joins the client's next message.
      release_messages: whether a round also gives back what each client sent.

    Returns:
      A `StatefulClientProcess`.
    """
    model_checks.check_training(model, elastic_net, local_training)
    if top_k is not None:
        if compressor is not None:
            raise ValueError(f"top_k={top_k!r} and compressor={compressor!r} are two compressors. Take one of them.")
        check_share("top_k", top_k)
        compressor, error_feedback = TopK(top_k), True
    return compose_process(
        Trainer(model, elastic_net, local_training),
        build_algorithm(aggregator, client_weighting),
        uplink=Uplink({"delta": elastic_net.threshold}, compressor, codec, error_feedback),
        measurements=measurements,
        metrics_aggregator=metrics_aggregator,
        release_messages=release_messages,
    )
