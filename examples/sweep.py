"""A sweep over l1 and seeds, each run in a folder of its own: stop it any way you like, and the same command goes on.

source .venv/bin/activate; python examples/sweep.py out/sweep
"""

import itertools
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import tff_fen
from tff_fen.program.sampling import sample_uniform

FOLDER = sys.argv[1] if len(sys.argv) > 1 else "out/sweep"
ROUNDS = int(os.environ.get("EXAMPLE_ROUNDS", "20"))
L1, SEEDS = (0.0, 1e-4, 1e-3), (0, 1, 2)

x, y = load_digits(return_X_y=True)
x, y = (x / 16).astype(np.float32), y.astype(np.int32)
clients = {k: (x[k:1400:20], y[k:1400:20]) for k in range(20)}
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def run(l1, seed):
    keras_model = tf.keras.Sequential(
        [tf.keras.layers.InputLayer((64,)), tf.keras.layers.Dense(10, kernel_initializer=tf.keras.initializers.Zeros())]
    )
    keras_model.compile(optimizer="sgd", loss=loss, metrics=["accuracy"])
    process = tff_fen.build_fed_dyn(
        tff_fen.from_keras_model(keras_model, input_spec=(x, y)),
        tff_fen.ElasticNet(l1=l1, l2=0.1, threshold=2e-3),
        tff_fen.LocalTraining(learning_rate=0.1, epochs=2, batch_size=10, seed=seed),
        num_clients=20,
    )

    def evaluate(weights):
        weights.assign_weights_to(keras_model)
        return keras_model.evaluate(x[1400:], y[1400:], verbose=0, return_dict=True)

    result = tff_fen.run_rounds(
        process,
        clients,
        lambda t: sample_uniform(t, num_clients=20, clients_per_round=5, seed=seed),
        ROUNDS,
        folder=f"{FOLDER}/l1={l1:g},seed={seed}",
        evaluate=evaluate,
        evaluate_every=ROUNDS,
    )
    return result.metrics[-1]["accuracy"], sum(row["client_work/train/delta/non_zeros"] for row in result.metrics)


found = {(l1, seed): run(l1, seed) for l1, seed in itertools.product(L1, SEEDS)}
print(f"{'l1':>8} {'accuracy':>17} {'non-zeros sent':>15}")
for l1 in L1:
    accuracies, sent = zip(*(found[l1, seed] for seed in SEEDS), strict=True)
    print(f"{l1:>8g} {np.mean(accuracies):>8.2%} +- {np.std(accuracies):.2%} {np.mean(sent):>15,.0f}")
