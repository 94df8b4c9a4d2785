"""FedElasticNet for SCAFFOLD: the paper's Algorithm 2."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_fen.aggregators.control_variate import ControlVariateFactory
from tff_fen.checks import check_number
from tff_fen.client_work import model_checks
from tff_fen.client_work.trainer import Trainer
from tff_fen.codec import Codec, Compressor
from tff_fen.config import ElasticNet, LocalTraining
from tff_fen.process import Algorithm, StatefulClientProcess, Train, Update, Uplink, compose_process


class ScaffoldClientState(NamedTuple):
    """A client's state: its id, and `control` c_k, its control variate."""

    client_id: Any
    control: Any


def build_scaffold(
    model: tff.learning.models.FunctionalModel,
    elastic_net: ElasticNet,
    local_training: LocalTraining,
    *,
    num_clients: int,
    server_learning_rate: float = 1.0,
    aggregator: tff.aggregators.AggregationFactory | None = None,
    control_aggregator: tff.aggregators.AggregationFactory | None = None,
    control_threshold: float = 0.0,
    measurements: bool = True,
    metrics_aggregator: Any | None = None,
    codec: Codec | None = None,
    compressor: Compressor | None = None,
    error_feedback: bool = False,
    release_messages: bool = False,
) -> StatefulClientProcess:
    """Builds Algorithm 2, FedElasticNet for SCAFFOLD (SCAFFOLD itself with `l1 = l2 = threshold = 0`).

        client   B steps  w <- w - lr (grad L_k(w) - c_k + c + l2 (w - theta) + l1 sign(w - theta))
                 c_k' = c_k - c + (theta - w)/(B lr);  sends delta_k = w - theta after the threshold, and c_k' - c_k
        server   theta' = theta + eta_g mean_k delta_k;  c' = c + (1/m) sum_k (c_k' - c_k)

    The change of c_k takes the raw w - theta, before the threshold, and the learning rate
    of the round: c_k' is then the mean of the local gradients and penalties. `c` is the
    mean of c_k over all m clients after every round.

    The result is a `tff.templates.IterativeProcess` (see `StatefulClientProcess`):

        initialize: ( -> S@SERVER)
        initialize_client: (int64 -> ScaffoldClientState(client_id=int64, control=W))
        next: (<S@SERVER, {ClientInput(state=ScaffoldClientState, data=B*)}@CLIENTS> ->
               RoundOutput(state=S@SERVER, client_states={ScaffoldClientState}@CLIENTS, metrics=M@SERVER))

    `state.aggregator["control"]` is c, which goes to the clients with the model.

    A client without data, or that is not finite, contributes nothing and keeps its state
    (an unweighted aggregator counts it as one that sent zeros). If nobody contributes,
    or an aggregate is not finite (`metrics["aggregator"]["usable"]` is 0), neither c nor
    the model moves. A round needs at least one client, and each client at most once.

    Privacy: two aggregates of each client leave the aggregator, of delta_k and of
    c_k' - c_k. With the two clipped to norms C1 and C2 one client changes the pair
    (delta / C1, change / C2) by at most sqrt(2) in norm; see `tff_fen.build_dp_pair`. Another
    private factory is refused unless it is wrapped in `tff_fen.FixedDenominatorFactory`,
    for c needs to know what it divides by.

    Args:
      model: a `tff.learning.models.FunctionalModel` with float32 weights.
      elastic_net: l1, l2, threshold and the kind of l1 step.
      local_training: the client's SGD.
      num_clients: m, the size of the population, not of a round.
      server_learning_rate: eta_g > 0.
      aggregator: a `tff.aggregators` factory of a mean for delta; the exact mean by default.
      control_aggregator: another for the change of c_k; by default a second process of
        `aggregator`.
      control_threshold: changes of c_k up to this are not sent; c_k then keeps what was
        sent, so that c stays the mean of c_k.
      measurements: whether to measure messages (see `build_fed_avg`; `control` beside
        `delta`), the downlink (`metrics["distributor"]`), `control_norm` and `drift`
        (`metrics["aggregator"]`).
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
    check_number("server_learning_rate", server_learning_rate, 0.0, open_low=True)
    check_number("control_threshold", control_threshold, 0.0)
    trainer = Trainer(model, elastic_net, local_training)

    def initialize_client(client_id: tf.Tensor) -> ScaffoldClientState:
        return ScaffoldClientState(client_id, trainer.zeros())

    def update(train: Train, client: ScaffoldClientState, broadcast: Mapping[str, Any]) -> Update:
        control = broadcast["control"]
        trained = train(correction=tf.nest.map_structure(tf.subtract, control, client.control))
        steps = tf.cast(trained.num_steps, tf.float32)
        # c_k' - c_k = -c + (theta - w)/(B lr)
        change = tf.nest.map_structure(lambda c, d: -c - d / (steps * trained.lr), control, trained.delta)
        return Update(trained, collections.OrderedDict(delta=trained.delta, control=change), client)

    def absorb(client: ScaffoldClientState, sent: Mapping[str, Any]) -> ScaffoldClientState:
        """c_k' = c_k + (c_k' - c_k), as far as the change was sent."""
        return client._replace(control=tf.nest.map_structure(tf.add, client.control, sent["control"]))

    def move(theta: Any, mean_delta: Any) -> Any:
        """theta' = theta + eta_g mean_k delta_k; a mean that is not to be used is zero."""
        return tf.nest.map_structure(lambda t, d: t + server_learning_rate * d, theta, mean_delta)

    algorithm = Algorithm(
        messages=("delta", "control"),
        initialize_client=initialize_client,
        update=update,
        absorb=absorb,
        aggregator=ControlVariateFactory(
            num_clients, aggregator=aggregator, control_aggregator=control_aggregator, measurements=measurements
        ),
        move=move,
        num_clients=num_clients,
    )
    return compose_process(
        trainer,
        algorithm,
        uplink=Uplink(
            {"delta": elastic_net.threshold, "control": control_threshold}, compressor, codec, error_feedback
        ),
        measurements=measurements,
        metrics_aggregator=metrics_aggregator,
        release_messages=release_messages,
    )
