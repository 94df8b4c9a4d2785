"""FedElasticNet for FedDyn: the paper's Algorithm 3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_fen.aggregators.dual_variable import DualVariableFactory
from tff_fen.client_work import model_checks
from tff_fen.client_work.trainer import Trainer
from tff_fen.codec import Codec, Compressor
from tff_fen.config import ElasticNet, LocalTraining
from tff_fen.process import Algorithm, StatefulClientProcess, Train, Update, Uplink, compose_process


class FedDynClientState(NamedTuple):
    """A client's state: its id, and `gradient` g_k, the algorithm's estimate of grad L_k at its last model."""

    client_id: Any
    gradient: Any


def build_fed_dyn(
    model: tff.learning.models.FunctionalModel,
    elastic_net: ElasticNet,
    local_training: LocalTraining,
    *,
    num_clients: int,
    aggregator: tff.aggregators.AggregationFactory | None = None,
    sign_aggregator: tff.aggregators.AggregationFactory | None = None,
    measurements: bool = True,
    metrics_aggregator: Any | None = None,
    codec: Codec | None = None,
    compressor: Compressor | None = None,
    error_feedback: bool = False,
    release_messages: bool = False,
) -> StatefulClientProcess:
    """Builds Algorithm 3, FedElasticNet for FedDyn (FedDyn itself with `l1 = threshold = 0`).

        client   w ~ argmin L_k(w) - <g_k, w> + l2/2 |w - theta|^2 + l1 |w - theta|_1
                 delta_k = w - theta, then the threshold;  g_k' = g_k - l2 delta_k - l1 sign(delta_k)
        server   h' = h - (l2/m) sum_k delta_k - (l1/m) sum_k sign(delta_k)
                 theta' = theta + mean_k delta_k - h'/l2

    All three uses of delta_k take what is sent, after the threshold, with sign(0) = 0;
    then `h` is the mean of g_k over all m clients after every round.

    The result is a `tff.templates.IterativeProcess` (see `StatefulClientProcess`):

        initialize: ( -> S@SERVER)
        initialize_client: (int64 -> FedDynClientState(client_id=int64, gradient=W))
        next: (<S@SERVER, {ClientInput(state=FedDynClientState, data=B*)}@CLIENTS> ->
               RoundOutput(state=S@SERVER, client_states={FedDynClientState}@CLIENTS, metrics=M@SERVER))

    `state.aggregator["h"]` is h. `get_model_weights(state)` gives theta and
    `get_average_weights(state)` gives gamma = theta + h/l2, the mean of the last
    participants' models, which FedDyn's own code tests.

    A client without data, or that is not finite, contributes nothing and keeps its state
    (an unweighted aggregator counts it as one that sent zeros). If nobody contributes,
    or an aggregate is not finite (`metrics["aggregator"]["usable"]` is 0), neither h nor
    the model moves. A round needs at least one client, and each client at most once.

    Privacy: with l1 > 0 two aggregates of each client's delta leave the aggregator, its
    mean and the mean of its signs. With delta clipped to norm C1 and its signs to norm C2,
    one client changes the pair (delta / C1, signs / C2) by at most sqrt(2) in norm;
    two Gaussian mechanisms of noise multipliers z1 and z2 cost as much as one of
    `(z1^-2 + z2^-2)^(-1/2)` (one client added or removed). `tff_fen.build_dp_pair` builds the
    two from one budget. Another private factory is refused unless it is wrapped in
    `tff_fen.FixedDenominatorFactory`, for h needs to know what it divides by.

    Args:
      model: a `tff.learning.models.FunctionalModel` with float32 weights.
      elastic_net: l2 must be > 0.
      local_training: the client's SGD.
      num_clients: m, the size of the population, not of a round.
      aggregator: a `tff.aggregators` factory of a mean for delta; the exact mean by default.
      sign_aggregator: another for the signs; by default a second process of `aggregator`,
        so that what protects delta protects the signs too. Not used when l1 = 0.
      measurements: whether to measure messages (see `build_fed_avg`), the downlink
        (`metrics["distributor"]`), `h_norm` and `drift` (`metrics["aggregator"]`).
      metrics_aggregator: as for TFF's builders.
      codec: what messages go through on their way to the server (`tff_fen.codec`); the states
        of client and server take up what arrives. `None` sends float32 as it is.
      compressor: what makes messages cheaper before that (`tff_fen.codec.parse_compressor`).
      error_feedback: whether what was not sent joins the client's next message; see `tff_fen.Uplink`.
      release_messages: whether a round also gives back what each client sent, as
        `output.messages`, for counting bytes.

    Returns:
      A `StatefulClientProcess`.
    """
    model_checks.check_training(model, elastic_net, local_training)
    if elastic_net.l2 == 0.0:
        raise ValueError("ElasticNet.l2 must be a finite number > 0 for FedDyn, which divides by it, found 0.0.")
    trainer = Trainer(model, elastic_net, local_training)
    l1, l2 = elastic_net.l1, elastic_net.l2

    def initialize_client(client_id: tf.Tensor) -> FedDynClientState:
        return FedDynClientState(client_id, trainer.zeros())

    def update(train: Train, client: FedDynClientState, broadcast: Mapping[str, Any]) -> Update:
        del broadcast
        trained = train(correction=tf.nest.map_structure(tf.negative, client.gradient))
        return Update(trained, {"delta": trained.delta}, client)

    def absorb(client: FedDynClientState, sent: Mapping[str, Any]) -> FedDynClientState:
        """g_k' = g_k - l2 delta_k - l1 sign(delta_k)."""
        return client._replace(
            gradient=tf.nest.map_structure(lambda g, d: g - l2 * d - l1 * tf.sign(d), client.gradient, sent["delta"])
        )

    def move(theta: Any, aggregate: Any) -> Any:
        """theta' = theta + mean_k delta_k - h'/l2."""
        moved = tf.nest.map_structure(lambda t, d, h: t + d - h / l2, theta, aggregate["mean"], aggregate["h"])
        return tf.nest.map_structure(lambda t, new: tf.where(aggregate["usable"] > 0.0, new, t), theta, moved)

    def average(theta: Any, aggregator_state: Any) -> Any:
        """gamma = theta + h/l2."""
        return tf.nest.map_structure(lambda t, h: t + h / l2, theta, aggregator_state["h"])

    algorithm = Algorithm(
        messages=("delta",),
        initialize_client=initialize_client,
        update=update,
        absorb=absorb,
        aggregator=DualVariableFactory(
            num_clients,
            l1=l1,
            l2=l2,
            aggregator=aggregator,
            sign_aggregator=sign_aggregator,
            measurements=measurements,
        ),
        move=move,
        average=average,
        releases=("delta", "sign") if l1 else ("delta",),
        num_clients=num_clients,
    )
    return compose_process(
        trainer,
        algorithm,
        uplink=Uplink({"delta": elastic_net.threshold}, compressor, codec, error_feedback),
        measurements=measurements,
        metrics_aggregator=metrics_aggregator,
        release_messages=release_messages,
    )
