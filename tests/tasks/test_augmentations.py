"""Flipped and shifted images: exact pixels, the keys of a round, and the same rounds on each runtime."""

from __future__ import annotations

import collections
import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from experiments.settings import AUGMENTATIONS
from tasks import augmentations
from tasks.registry import check_task
from tests.support.runtime_graphs import CompilingOnce, imported, loops_on_one_thread
from tff_fen.client_work import batches

SIZE, CLASSES = 6, 3
KEY = tf.constant([3, -5], tf.int32)


def images_of(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, SIZE, SIZE, 3)).astype(np.float32), rng.integers(0, CLASSES, n).astype(np.int32)


def flip_crop_reference(images: np.ndarray, key: tf.Tensor) -> np.ndarray:
    """FedDyn's code, image by image, with the draws of the key in place of NumPy's."""
    found = []
    draws = tf.random.stateless_uniform([4, len(images)], key, alg="philox").numpy()
    for image, (flip, crop, down, right) in zip(images, draws.T, strict=True):
        if flip < 0.5:
            image = image[:, ::-1]
        if crop < 0.5:
            padded = np.zeros((SIZE + 8, SIZE + 8, 3), np.float32)
            padded[4:-4, 4:-4] = image
            top, left = int(9 * down), int(9 * right)
            image = padded[top : top + SIZE, left : left + SIZE]
        found.append(image)
    return np.array(found)


def test_exact_pixels() -> None:
    images, labels = images_of(200)
    augment = tf.function(augmentations.flip_crop)
    for key in (KEY, KEY + 1):
        found, kept = augment((tf.constant(images), tf.constant(labels)), key)
        np.testing.assert_array_equal(found, flip_crop_reference(images, key))
        np.testing.assert_array_equal(kept, labels)
    assert augment((tf.constant(images[:0]), tf.constant(labels[:0])), KEY)[0].shape == (0, SIZE, SIZE, 3)


def test_what_is_drawn() -> None:
    """Half are flipped, half are cut out, and all 81 places are alike; each is independent of the others."""
    n = 40_000
    rows, columns = np.mgrid[1:33, 1:33]
    image = np.stack([rows, columns, rows], axis=-1).astype(np.float32)
    found, _ = augmentations.flip_crop((tf.repeat(image[tf.newaxis], n, 0), tf.zeros(n, tf.int32)), KEY)
    row, column, right = found[:, 16, 16, 0].numpy(), found[:, 16, 16, 1].numpy(), found[:, 16, 17, 1].numpy()
    flipped = right < column
    # The pixel at (17, 17) of an image that is not moved; 16 from the right once it is flipped.
    down, across = row - 17, np.where(flipped, 16 - column, column - 17)
    assert set(down) == set(across) == set(range(-4, 5))
    places = collections.Counter(zip(flipped, down, across, strict=True))
    unmoved = [places.pop((flip, 0.0, 0.0)) for flip in (False, True)]
    moved = np.array(list(places.values()))
    assert len(moved) == 2 * 80
    for count, share in [
        (unmoved[0], 0.25 + 0.25 / 81),
        (unmoved[1], 0.25 + 0.25 / 81),
        *((m, 0.25 / 81) for m in moved),
    ]:
        assert count == pytest.approx(n * share, abs=4.5 * np.sqrt(n * share))


def test_batches_are_changed_by_seed_round_client_epoch_and_place_alone() -> None:
    """Every pixel of a fold over two epochs with a partial last batch; the order is that of a fold without."""
    images, labels = images_of(7)
    seen: list[tuple[np.ndarray, np.ndarray]] = []

    def step(count: tf.Tensor, batch: Any) -> tf.Tensor:
        tf.numpy_function(lambda x, y: seen.append((x, y)), batch, [])
        return count + 1

    @tf.function
    def run(seed: tf.Tensor) -> tf.Tensor:
        return batches.ShuffledMinibatches(
            (tf.constant(images), tf.constant(labels)), 2, 3, seed, augmentations.flip_crop
        ).fold(step, tf.constant(0))

    seed = batches.shuffle_seed(1, tf.constant(2), tf.constant(3, tf.int64))
    assert run(seed) == 6
    expected = []
    for epoch in range(2):
        order = batches.epoch_order(seed, tf.constant(epoch), tf.constant(7)).numpy()
        for i in range(3):
            rows = order[3 * i : 3 * i + 3]
            key = batches.augmentation_key(seed, tf.constant(epoch), tf.constant(i))
            expected.append((flip_crop_reference(images[rows], key), labels[rows]))
    for (x, y), (x_expected, y_expected) in zip(seen, expected, strict=True):
        np.testing.assert_array_equal(x, x_expected)
        np.testing.assert_array_equal(y, y_expected)


def test_keys() -> None:
    """No two batches share one, none is that of an epoch's order, and one is the same whenever it is asked for."""

    def seed_of(seed: int, round_number: int, client: int) -> tf.Tensor:
        return batches.shuffle_seed(seed, tf.constant(round_number), tf.constant(client, tf.int64))

    def key(seed: int = 0, t: int = 0, client: int = 0, epoch: int = 0, i: int = 0) -> tuple[int, ...]:
        return tuple(batches.augmentation_key(seed_of(seed, t, client), tf.constant(epoch), tf.constant(i)).numpy())

    keys = [key(*(int(j == place) for j in range(5))) for place in range(6)]  # one of the five is 1, at last none
    assert len(set(keys)) == 6 and key() == keys[-1]
    orders = [
        tuple(tf.random.experimental.stateless_fold_in(seed_of(0, 0, 0), e, alg="philox").numpy()) for e in (0, 1)
    ]
    assert not set(keys) & set(orders)


@functools.cache
def fed_dyn(augment: Any) -> tff_fen.StatefulClientProcess:
    tf.keras.utils.set_random_seed(0)
    keras_model = tf.keras.Sequential(
        [tf.keras.layers.InputLayer((SIZE, SIZE, 3)), tf.keras.layers.Flatten(), tf.keras.layers.Dense(CLASSES)]
    )
    model = tff.learning.models.functional_model_from_keras(
        keras_model, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), spec()
    )
    training = tff_fen.LocalTraining(0.1, epochs=2, batch_size=4, augment=augment)
    return tff_fen.build_fed_dyn(model, tff_fen.ElasticNet(l1=1e-3, l2=0.1), training, num_clients=3)


def spec() -> tuple[tf.TensorSpec, tf.TensorSpec]:
    return tf.TensorSpec([None, SIZE, SIZE, 3], tf.float32), tf.TensorSpec([None], tf.int32)


def weights_after_rounds(process: tff_fen.StatefulClientProcess, context: Any) -> np.ndarray:
    with tff.framework.get_context_stack().install(context):
        state = process.initialize()
        clients = [process.initialize_client(k) for k in range(3)]
        for _ in range(2):
            data = [tf.data.Dataset.from_tensors(images_of(9 + k, seed=k)) for k in range(3)]
            inputs = [tff_fen.ClientInput(c, d) for c, d in zip(clients, data, strict=True)]
            state, clients, _ = process.next(state, inputs)
        return np.asarray(process.get_model_weights(state).trainable[0])


def test_runtimes_agree_and_the_loop_keeps_its_thread() -> None:
    """What is drawn is the same on each runtime, and a loop with it still runs on one thread in process."""
    process = fed_dyn(augmentations.flip_crop)
    here = weights_after_rounds(process, CompilingOnce())
    there = weights_after_rounds(process, tff_fen.runtime.create_native_context())
    np.testing.assert_allclose(here, there, rtol=1e-5, atol=1e-6)
    (operations,) = loops_on_one_thread(imported(CompilingOnce()._compile(process.next)))
    assert operations["StatelessRandomUniformV2"] and operations["GatherV2"] >= 3


def test_augmentations_that_cannot_be() -> None:
    with pytest.raises(
        TypeError, match=r"LocalTraining.augment must be a function \(batch, key\) -> batch, found 'flip'"
    ):
        tff_fen.LocalTraining(0.1, batch_size=4, augment="flip")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"LocalTraining\.augment needs a batch_size, found None: .* dataset\.map"):
        tff_fen.LocalTraining(0.1, augment=augmentations.flip_crop)
    refused = [
        (lambda batch, key: batch[0], "cannot be called on batches .* structure"),
        (lambda batch: batch, "cannot be called on batches .* takes 1 positional argument"),
        (lambda batch, key: (batch[0][:, 1:], batch[1]), "must return batches of the type that it gets"),
        (lambda batch, key: (tf.cast(batch[0], tf.float64), batch[1]), "must return batches of the type that it gets"),
    ]
    for augment, message in refused:
        with pytest.raises(TypeError, match=f"(?s)LocalTraining.augment {message}"):
            fed_dyn(augment)
    with pytest.raises(ValueError, match=r"flip_crop is for images of shape \[n, height, width, colours\], found"):
        augmentations.flip_crop((tf.zeros([2, 64]), tf.zeros(2, tf.int32)), KEY)
    assert set(AUGMENTATIONS) == set(augmentations.AUGMENTATIONS), "what the flag offers"
    common: dict[str, Any] = dict(split=None, num_clients=None, size_sigma=0.0, seed=0, initializer="keras")
    with pytest.raises(ValueError, match="augment must be one of 'none', 'flip_crop', found 'flip'"):
        check_task("cifar10", augment="flip", **common)
    with pytest.raises(ValueError, match="augment of task 'mnist' must be one of 'none', found 'flip_crop'"):
        check_task("mnist", augment="flip_crop", **common)
