"""This project: Algorithm 3 on the in-process runtime, complete with client states and measurements."""

from __future__ import annotations

import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from benchmarks.peers import keras_models, protocol, workloads


def main() -> None:
    name = protocol.parser().parse_args().workload
    workload = workloads.WORKLOADS[name]()
    tff_fen.runtime.set_inprocess_context()
    model = tff.learning.models.functional_model_from_keras(
        tff_fen.fuse_lstm(keras_models.keras_model(workload)),
        keras_models.loss(),
        keras_models.input_spec(workload),
        keras_models.metrics(),
    )
    process = tff_fen.build_fed_dyn(
        model,
        tff_fen.ElasticNet(l1=1e-6, l2=workloads.L2, threshold=1e-3),
        tff_fen.LocalTraining(
            workloads.LEARNING_RATE,
            epochs=workload.epochs,
            batch_size=workload.batch_size,
            weight_decay=workloads.WEIGHT_DECAY,
            clip_norm=workloads.CLIP_NORM,
        ),
        num_clients=len(workload.clients),
    )
    state = process.initialize()
    data = [tf.data.Dataset.from_tensors(examples) for examples in workload.clients]
    clients = [process.initialize_client(k) for k in range(len(data))]

    def run_round() -> float:
        nonlocal state, clients
        output = process.next(state, list(map(tff_fen.ClientInput, clients, data)))
        state, clients = output.state, output.client_states
        return output.metrics["client_work"]["train"]["loss"]

    protocol.serve(workload, ["tff-fen", "tensorflow", "tensorflow-federated"], run_round)


if __name__ == "__main__":
    main()
