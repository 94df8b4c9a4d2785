"""Your own arrays and your own Keras model: FedDyn with the elastic net, differential privacy and a codec.

source .venv/bin/activate; python examples/own_data.py
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import tff_fen

NUM_CLIENTS, PER_ROUND = 20, 5
ROUNDS = int(os.environ.get("EXAMPLE_ROUNDS", "20"))

# Your data: arrays by client, under any names. Here 1797 handwritten digits are dealt out.
x, y = load_digits(return_X_y=True)
x, y = (x / 16).astype(np.float32), y.astype(np.int32)
order = np.random.default_rng(0).permutation(len(x))
train, test = order[:1400], order[1400:]
clients = {f"hospital_{k}": (x[rows], y[rows]) for k, rows in enumerate(np.array_split(train, NUM_CLIENTS))}

# Your model, compiled as always.
layers = [tf.keras.layers.InputLayer((64,)), tf.keras.layers.Dense(64, "relu"), tf.keras.layers.Dense(10)]
keras_model = tf.keras.Sequential(layers)
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
keras_model.compile(optimizer="sgd", loss=loss, metrics=["accuracy"])

# Noise of one multiplier for the updates and their signs together, of five clients per round.
updates, signs = tff_fen.build_dp_pair(0.02, PER_ROUND, first_clip=1.0, second_clip=70.0)
process = tff_fen.build_fed_dyn(
    tff_fen.from_keras_model(keras_model, input_spec=(x, y)),
    tff_fen.ElasticNet(l1=1e-4, l2=0.1, threshold=2e-3),
    tff_fen.LocalTraining(learning_rate=0.1, epochs=3, batch_size=10),
    num_clients=NUM_CLIENTS,
    aggregator=updates,
    sign_aggregator=signs,
    codec=tff_fen.codec.QuantisedCodec(1e-3),
)


def evaluate(weights):
    weights.assign_weights_to(keras_model)
    return keras_model.evaluate(x[test], y[test], verbose=0, return_dict=True)


result = tff_fen.run_rounds(process, clients, PER_ROUND, ROUNDS, evaluate=evaluate, evaluate_every=5)
print(f"accuracy {result.metrics[-1]['accuracy']:.2%}, of the mean of the participants' models ", end="")
process.get_average_weights(result.state).assign_weights_to(keras_model)
print(f"{keras_model.evaluate(x[test], y[test], verbose=0)[1]:.2%}")
