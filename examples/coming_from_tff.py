"""FedDyn with the elastic net in the place of TFF's FedAvg: compare `stock_tff.py`, line by line."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from sklearn.datasets import load_digits

import tff_fen

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
    return tff_fen.from_keras_model(
        keras_model(),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        input_spec=train.element_type_structure,
        metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
    )


process = tff_fen.build_fed_dyn(
    model_fn(),
    tff_fen.ElasticNet(l1=1e-4, l2=0.1, threshold=2e-3),
    tff_fen.LocalTraining(learning_rate=0.1),
    num_clients=20,
)
result = tff_fen.run_rounds(process, train, lambda t: sampling_fn(t, 5), ROUNDS)
print(result.metrics[-1]["client_work/train/sparse_categorical_accuracy"])
