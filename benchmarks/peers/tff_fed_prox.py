"""TFF's own FedProx of a Keras model, on a worker as TFF sets it up, or with this project's settings of it.

python -m benchmarks.peers.tff_fed_prox --workload=mlp [--tuned]
"""

from __future__ import annotations

import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from benchmarks.peers import keras_models, protocol, workloads


def main() -> None:
    parser = protocol.parser()
    parser.add_argument("--tuned", action="store_true", help="tff_fen.runtime.set_native_context")
    arguments = parser.parse_args()
    workload = workloads.WORKLOADS[arguments.workload]()
    if arguments.tuned:
        tff_fen.runtime.set_native_context()
    else:
        tff.backends.native.set_sync_local_cpp_execution_context()

    def model_fn() -> tff.learning.models.VariableModel:
        return tff.learning.models.from_keras_model(
            keras_models.keras_model(workload),
            loss=keras_models.loss(),
            input_spec=keras_models.input_spec(workload),
            metrics=[metric() for metric in keras_models.metrics().values()],
        )

    process = tff.learning.algorithms.build_weighted_fed_prox(
        model_fn,
        proximal_strength=workloads.L2,
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(workloads.LEARNING_RATE),
    )
    data = [
        tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(y)).repeat(workload.epochs).batch(workload.batch_size)
        for x, y in workload.clients
    ]
    with tf.Graph().as_default():
        first = tff.learning.models.ModelWeights(tuple(workload.weights), ())
    state = process.set_model_weights(process.initialize(), first)

    def run_round() -> float:
        nonlocal state
        output = process.next(state, data)
        state = output.state
        return output.metrics["client_work"]["train"]["loss"]

    protocol.serve(workload, ["tensorflow", "tensorflow-federated"], run_round)


if __name__ == "__main__":
    main()
