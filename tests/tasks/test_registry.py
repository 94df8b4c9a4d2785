"""Tasks by name, as TFF's `BaselineTask`, and the commands that show them."""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from PIL import Image

import tff_fen
from experiments import dense_counts
from tasks import models, splits
from tasks.augmentations import flip_crop
from tasks.data_sets import sources
from tasks.evaluation import Evaluator
from tasks.registry import load_task, task_names
from tests.support import real_data

ROOT = pathlib.Path(__file__).parents[2]


def test_names() -> None:
    assert task_names() == ["mnist", "emnist_letters", "cifar10", "cifar100", "shakespeare", "digits", "synthetic"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> pathlib.Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize(
    ("name", "split", "clients", "shape", "tests", "parameters", "batch_size"),
    [
        ("digits", "iid", 20, (70, 64), 397, 6310, 10),
        ("mnist", "dirichlet:0.3", 100, (600, 784), 10_000, 199_210, 10),
        ("cifar100", "iid", 100, (500, 32, 32, 3), 10_000, 815_332, 50),
        ("shakespeare", "iid", 11, (2000, 80), 4400, 132_720, 20),
        ("shakespeare", "natural", 100, (2000, 80), 40_000, 132_720, 20),
        ("synthetic", "natural", 100, None, 2000, 610, 10),
    ],
)
def test_a_task_as_a_baseline_task(
    name: str, split: str, clients: int, shape: Any, tests: int, parameters: int, batch_size: int, cache: pathlib.Path
) -> None:
    needs_data = name not in ("digits", "synthetic")
    places = sources.Places(real_data.folder(name) if needs_data else None, cache)
    task = load_task(name, split=split, places=places)
    assert isinstance(task, tff.simulation.baselines.BaselineTask)
    assert len(task.clients) == len(task.datasets.train_data.client_ids) == clients
    x, y = task.clients[3]
    assert shape is None or x.shape == shape
    assert y.dtype == np.int32 and len(task.test[1]) == tests
    assert task.build_keras_model().count_params() == parameters and task.batch_size == batch_size
    # TFF's view of the same client: the same examples, in batches.
    dataset = task.datasets.train_preprocess_fn(task.datasets.train_data.create_tf_dataset_for_client("3"))
    assert dataset.element_spec == task.model_fn().input_spec
    batch_x, batch_y = next(iter(dataset))
    np.testing.assert_array_equal(batch_x, x[:batch_size])
    np.testing.assert_array_equal(batch_y, y[:batch_size])
    sampled = task.datasets.sample_train_clients(2, random_seed=1)
    assert len(sampled) == 2 and next(iter(sampled[0]))[0].shape == batch_x.shape
    test_batch = next(iter(task.datasets.get_centralized_test_data()))
    np.testing.assert_array_equal(test_batch[0], task.test[0][: len(test_batch[0])])
    # And the function that TFF traces.
    traced = task.datasets.train_data.serializable_dataset_fn(tf.constant("3"))
    np.testing.assert_array_equal(next(iter(traced))[0], x[0])
    with pytest.raises(ValueError, match="client_id must be '0' to"):
        task.datasets.train_data.create_tf_dataset_for_client("none")


def test_pixels_are_normalised_as_in_feddyns_code(cache: pathlib.Path) -> None:
    task = load_task("mnist", places=sources.Places(real_data.folder("mnist"), cache))
    pixels = np.concatenate([x for x, _ in task.clients])
    assert np.unique(pixels).size == 256
    assert pixels.min() == pytest.approx((0 - 0.1307) / 0.3081) and pixels.max() == pytest.approx((1 - 0.1307) / 0.3081)
    task = load_task("cifar100", places=sources.Places(real_data.folder("cifar100"), cache))
    x, _ = task.clients[0]
    low, high = x.min((0, 1, 2)), x.max((0, 1, 2))
    np.testing.assert_allclose(low, -np.array([0.5071, 0.4867, 0.4408]) / [0.2675, 0.2565, 0.2761], rtol=1e-5)
    np.testing.assert_allclose(high - low, 1 / np.array([0.2675, 0.2565, 0.2761]), rtol=1e-5)


def test_only_training_steps_see_an_augmentation(cache: pathlib.Path) -> None:
    places = sources.Places(real_data.folder("cifar100"), cache)
    plain, augmented = (load_task("cifar100", augment=name, places=places) for name in ("none", "flip_crop"))
    assert plain.augment is None and augmented.augment is flip_crop
    assert plain.fingerprint() == augmented.fingerprint(), "neither the test set nor what clients hold"
    (whole,) = augmented.client_dataset(7)
    np.testing.assert_array_equal(whole[0], plain.clients[7][0])


def test_clients_are_a_function_of_the_seed() -> None:
    first, again, other = (load_task("digits", split="dirichlet:0.3", seed=s) for s in (1, 1, 2))
    assert all(np.array_equal(a[0], b[0]) for a, b in zip(first.clients, again.clients, strict=True))
    assert any(not np.array_equal(a[1], b[1]) for a, b in zip(first.clients, other.clients, strict=True))
    np.testing.assert_array_equal(first.test[0], other.test[0])
    for a, b in zip(first.build_keras_model().get_weights(), again.build_keras_model().get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(name="cifar"), "task must be one of .*Did you mean 'cifar10'"),
        (dict(name="digits", split="natural"), "split of task 'digits' must be one of 'iid', 'dirichlet', 'shards'"),
        (dict(name="shakespeare", split="dirichlet:1"), "split of task 'shakespeare' must be one of 'iid', 'natural'"),
        (dict(name="digits", split="dirichlet:x"), "needs a number after the colon, found 'dirichlet:x'"),
        (dict(name="digits", split="dirichlet:0"), "number of split 'dirichlet' must be a finite number > 0"),
        (dict(name="digits", split="shards:0"), "number of split 'shards' must be an integer >= 1"),
        (dict(name="digits", split="iid:3"), "split 'iid' takes no number"),
        (dict(name="digits", split="shards:2", size_sigma=0.5), "size_sigma must be 0 with shards"),
        (dict(name="synthetic", size_sigma=0.5), "size_sigma must be 0 for task 'synthetic'"),
        (dict(name="digits", num_clients=0), "num_clients must be an integer from 1 to 10000000, found 0"),
        (dict(name="synthetic", num_clients=10**9), "num_clients must be an integer from 1 to 10000000, found 1000"),
        (dict(name="synthetic", num_clients=10**20), "num_clients must be an integer from 1 to 10000000, found 1000"),
        (dict(name="synthetic", alpha=1e300), r"alpha must be at most 1e\+06, found 1e\+300"),
        (dict(name="synthetic", beta=1e300), r"beta must be at most 1e\+06, found 1e\+300"),
        (dict(name="digits", seed=-1), "seed must be an integer >= 0"),
        (dict(name="digits", initializer="pytorch"), "Did you mean 'torch'"),
        (dict(name="synthetic", alpha=-1.0), "alpha must be a finite number >= 0"),
    ],
)
def test_rejections(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_task(**arguments)


def test_split_names() -> None:
    assert splits.parse_split("shards") == ("shards", 2)
    assert str(splits.parse_split("dirichlet:0.30")) == "dirichlet:0.3" and str(splits.parse_split("iid")) == "iid"


def test_evaluation_counts_every_example() -> None:
    task = load_task("synthetic", num_clients=60)  # 1200 test examples: a full batch and a part
    model = task.build_keras_model()
    weights = tff.learning.models.ModelWeights.from_model(model)
    found = Evaluator(task).evaluate(weights)
    logits = task.test[0] @ model.get_weights()[0] + model.get_weights()[1]
    assert len(task.test[1]) == 1200
    assert found.accuracy == np.mean(logits.argmax(1) == task.test[1])
    log_probability = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    assert found.loss == pytest.approx(-np.mean(log_probability[np.arange(1200), task.test[1]]), rel=1e-5)


def test_an_evaluator_outlives_models_made_after_it() -> None:
    """TFF makes a model's Keras twin inside a graph, after which Keras refuses to call models made before."""
    task = load_task("digits")
    before = Evaluator(task)
    weights = tff.learning.models.ModelWeights(*task.build_model().initial_weights)
    assert before.evaluate(weights) == Evaluator(task).evaluate(weights)


@contextlib.contextmanager
def counted_memory() -> Iterator[Callable[[], tuple[int, int]]]:
    """Yields what tells the bytes that Python and NumPy hold since, and held at most.

    Not the process's resident memory: in a process that has run a thousand tests it says what the allocator
    had to give back, not what these lines asked for.
    """
    tracemalloc.start()
    try:
        yield tracemalloc.get_traced_memory
    finally:
        tracemalloc.stop()


def test_a_large_population_is_lazy() -> None:
    load_task("synthetic", num_clients=100)
    with counted_memory() as count:
        task = load_task("synthetic", num_clients=100_000)
        for k in range(0, 100_000, 5000):
            assert len(task.clients[k][1]) >= 50
        held, most = count()
    # All clients at once would be 25 GB, those with test examples 45 MB; the 100 000 identifiers are 6 MB.
    assert held < 15e6 and most < 25e6


def test_clients_share_the_data_set(cache: pathlib.Path) -> None:
    places = sources.Places(real_data.folder("mnist"), cache)
    load_task("mnist", places=places)
    with counted_memory() as count:
        task = load_task("mnist", places=places)
        for k in range(100):
            assert len(task.clients[k][0]) == 600
        held, _ = count()
    # The pixels as bytes (55 MB) and the test set as floats (31 MB), not 60 000 images as floats (188 MB).
    assert held < 100e6


def test_dense_counts_of_the_paper() -> None:
    """FedProx and FedDyn agree everywhere. SCAFFOLD's rows: twice that, in the paper with fewer in ten of them."""
    rows = dense_counts.dense_counts()
    assert len(rows) == 42 and all(row.agrees() for row in rows if row.method != "SCAFFOLD")
    found = {(row.dataset, row.split): (row.participants, row.published) for row in rows if row.method == "FedDyn"}
    assert found["MNIST", "iid"] == (1019, "20.3") and found["EMNIST-L", "iid"] == (2053, "18.4")
    assert found["CIFAR-10", "iid"] == (2053, "163.82") and found["CIFAR-100", "iid"] == (5070, "413.37")
    assert found["Shakespeare", "iid"] == (149, "1.99") and found["Shakespeare", "natural"] == (1019, "13.61")
    assert sum(not row.agrees() for row in rows) == 10
    assert all(float(row.published) < row.sent for row in rows if not row.agrees())


@pytest.mark.long
def test_the_picture_of_a_split(tmp_path: pathlib.Path) -> None:
    picture = tmp_path / "deep" / "split.png"
    command = [sys.executable, "-m", "experiments.show_split", "--task=digits", "--split=shards:2", f"--out={picture}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "20 clients of 70 to 70 examples" in done.stdout
    image = np.asarray(Image.open(picture).convert("L"))
    assert image.shape[0] > 500 and np.unique(image).size > 20, "something is drawn"
    bad = subprocess.run([*command[:-1], "--out=split.gif2"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert bad.returncode != 0 and "--out must end with one of" in bad.stdout + bad.stderr


def test_a_task_trains() -> None:
    """The task's model, clients and batch size fit the algorithms."""
    task = load_task("digits", split="dirichlet:0.3", num_clients=5, initializer=models.INITIALIZERS[1])
    process = tff_fen.build_fed_dyn(
        task.build_model(),
        tff_fen.ElasticNet(l1=1e-4, l2=0.05, threshold=1e-3),
        tff_fen.LocalTraining(0.1, epochs=3, batch_size=task.batch_size),
        num_clients=5,
    )
    server, evaluator = process.initialize(), Evaluator(task)
    before = evaluator.evaluate(process.get_model_weights(server))
    clients = {k: process.initialize_client(k) for k in range(5)}
    for _ in range(5):
        inputs = [tff_fen.ClientInput(state, task.client_dataset(k)) for k, state in clients.items()]
        output = process.next(server, inputs)
        server = output.state
        clients = {int(state.client_id): state for state in output.client_states}
    after = evaluator.evaluate(process.get_average_weights(server))
    assert after.accuracy > 0.8 > 0.5 > before.accuracy


def test_a_users_model_is_usable_after_loading_a_task() -> None:
    """Keras refuses models that were made before one was made in a graph, as TFF does for its tasks."""
    model = tf.keras.Sequential([tf.keras.layers.InputLayer((64,)), tf.keras.layers.Dense(10)])
    model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, y = load_task("digits", num_clients=20).clients[0]
    model.fit(x, y, verbose=0)


def test_tffs_own_algorithm_trains_on_a_task() -> None:
    task = load_task("digits", num_clients=4)
    process = tff.learning.algorithms.build_weighted_fed_avg(
        task.model_fn, tff.learning.optimizers.build_sgdm(0.1), tff.learning.optimizers.build_sgdm(1.0)
    )
    state, evaluator = process.initialize(), Evaluator(task)
    for t in range(3):
        state = process.next(state, task.datasets.sample_train_clients(4, random_seed=t)).state
    assert evaluator.evaluate(process.get_model_weights(state)).accuracy > 0.5
