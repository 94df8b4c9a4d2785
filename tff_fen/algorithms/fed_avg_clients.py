"""Algorithm 1 with clients by id: for top-k with error feedback, and for counting what each client sends."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fen import process as stateful_process
from tff_fen.algorithms import fed_avg
from tff_fen.checks import check_number
from tff_fen.client_work import model_checks as validation
from tff_fen.client_work.trainer import Trainer
from tff_fen.codec import Codec
from tff_fen.compressors import uplink
from tff_fen.config import ElasticNet, LocalTraining
from tff_fen.process import ClientOutput, StatefulAggregation, StatefulClientProcess


class FedAvgClientState(NamedTuple):
    """A client's state: its id, and `residual`, what top-k has not sent yet (empty without top-k)."""

    client_id: Any
    residual: Any


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
    validation.check_training(model, elastic_net, local_training)
    validation.check_reporting(measurements, metrics_aggregator, codec, release_messages)
    if top_k is not None:
        check_number("top_k", top_k, 0.0, open_low=True)
        if top_k > 1.0:
            raise ValueError(f"top_k must be a share of the elements, at most 1, found {top_k!r}.")
    aggregator, client_weighting = fed_avg.resolve_aggregation(aggregator, client_weighting)
    by_examples = client_weighting is tff.learning.ClientWeighting.NUM_EXAMPLES
    # With top-k the codec comes after the choice of what to send, here; without, the trainer applies it.
    trainer = Trainer(model, elastic_net, local_training, measurements, codec if top_k is None else None)

    @tff.tensorflow.computation(np.int64)
    def initialize_client(client_id: tf.Tensor) -> FedAvgClientState:
        return FedAvgClientState(client_id, () if top_k is None else trainer.zeros())

    def client_work(
        weights: Any, shared: Any, client: FedAvgClientState, dataset: tf.data.Dataset, round_number: tf.Tensor
    ) -> ClientOutput:
        del shared
        result = trainer.train(weights, dataset, round_number, client_id=client.client_id)
        residual = client.residual
        if top_k is not None:
            wanted = tf.nest.map_structure(tf.add, result.delta, client.residual)
            sent = uplink.transmit(codec, uplink.top_k(wanted, top_k))
            result = result._replace(delta=sent).keep_if_finite(wanted, sent)
            sends = result.contributes > 0.0
            residual = tf.nest.map_structure(
                lambda new, sent, old: tf.where(sends, new - sent, old), wanted, result.delta, client.residual
            )
        weight = tf.cast(result.num_examples, tf.float32) if by_examples else result.contributes
        return ClientOutput(
            result.delta,
            weight,
            FedAvgClientState(client.client_id, residual),
            trainer.unfinalized_metrics(weights.trainable, result),
        )

    def finalize(theta: Any, mean: Any) -> Any:
        refuse, _ = tff.learning.templates.reject_non_finite_update(None, mean)
        return tf.nest.map_structure(lambda t, d: tf.where(refuse, t, t + d), theta, mean)

    process = aggregator.create(trainer.weights_type.trainable, tff.TensorType(np.float32))

    @tff.tensorflow.computation(process.initialize.type_signature.result.member)
    def get_shared(state: Any) -> Any:
        del state
        return ()

    return stateful_process.compose_stateful_process(
        trainer,
        initialize_client=initialize_client,
        client_work=client_work,
        aggregation=StatefulAggregation(process, get_shared),
        finalize=finalize,
        metrics_aggregator=metrics_aggregator,
        release_messages=release_messages,
    )
