"""FedAvg with TFF alone, as its tutorials write it; `coming_from_tff.py` is the same script with FedDyn."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from sklearn.datasets import load_digits

ROUNDS = int(os.environ.get("EXAMPLE_ROUNDS", "20"))

# A ClientData as tff.simulation.datasets has them: here 1400 handwritten digits, dealt out to 20 clients.
x, y = load_digits(return_X_y=True)
x, y = (x / 16).astype(np.float32), y.astype(np.int32)
client_data = tff.simulation.datasets.TestClientData({f"client_{k}": (x[k:1400:20], y[k:1400:20]) for k in range(20)})
train = client_data.preprocess(lambda dataset: dataset.shuffle(70, seed=0).batch(10))
sampling_fn = tff.simulation.build_uniform_sampling_fn(train.client_ids, random_seed=1)


def keras_model():
    layers = [tf.keras.layers.InputLayer((64,)), tf.keras.layers.Dense(64, "relu"), tf.keras.layers.Dense(10)]
    return tf.keras.Sequential(layers)


def model_fn():
    return tff.learning.models.from_keras_model(
        keras_model(),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        input_spec=train.element_type_structure,
        metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
    )


process = tff.learning.algorithms.build_weighted_fed_avg(
    model_fn,
    client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
)
state = process.initialize()
for t in range(ROUNDS):
    output = process.next(state, [train.create_tf_dataset_for_client(client) for client in sampling_fn(t, 5)])
    state = output.state
print(output.metrics["client_work"]["train"]["sparse_categorical_accuracy"])
