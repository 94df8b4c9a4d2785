"""The file of final weights: names that say which variable it is, values to the bit, and old files."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_fen
from tff_fen.program.weights import weights_to_bytes


def build() -> tf.keras.Model:
    model = tf.keras.Sequential(
        [tf.keras.layers.InputLayer((3,)), tf.keras.layers.Dense(2), tf.keras.layers.Dense(2), tf.keras.layers.Dense(4)]
    )
    model.layers[1].trainable = False
    return model


@pytest.fixture(scope="module")
def models() -> dict[str, tff.learning.models.ModelWeights]:
    """As of a server and of the participants' mean; every element is another number."""
    built, rng = build(), np.random.default_rng(0)
    parts = built.trainable_weights, built.non_trainable_weights
    return {
        name: tff.learning.models.ModelWeights(
            *([rng.normal(size=w.shape).astype(np.float32) for w in part] for part in parts)
        )
        for name in ("server", "average")
    }


@pytest.fixture
def path(models: dict[str, tff.learning.models.ModelWeights], tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "weights.npz").write_bytes(weights_to_bytes(models, build))
    return tmp_path / "weights.npz"


def test_names_do_not_depend_on_what_was_built_before(models: dict, path: pathlib.Path) -> None:
    build()
    assert weights_to_bytes(models, build) == path.read_bytes(), "the same bytes, however many layers there were"
    with np.load(path) as file:
        names = [name for name in file.files if name.startswith("server")]
        assert file["server/dense_2/kernel"].shape == (2, 4)
    assert names == [
        "server/dense/kernel", "server/dense/bias", "server/dense_2/kernel", "server/dense_2/bias",
        "server_non_trainable/dense_1/kernel", "server_non_trainable/dense_1/bias",
    ]  # fmt: skip


@pytest.mark.parametrize(("model", "expected"), [(None, "average"), ("average", "average"), ("server", "server")])
def test_loading_gives_the_weights_back_in_keras_order(
    models: dict, path: pathlib.Path, model: str | None, expected: str
) -> None:
    loaded = tff_fen.load_weights(path, model) if model else tff_fen.load_weights(str(path))
    built = build()
    loaded.assign_weights_to(built)
    for part in ("trainable", "non_trainable"):
        for variable, array in zip(getattr(built, f"{part}_weights"), getattr(models[expected], part), strict=True):
            assert variable.numpy().tobytes() == array.tobytes()


def test_without_an_average_model_the_servers_is_loaded(models: dict, tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.npz").write_bytes(weights_to_bytes({"server": models["server"]}, build))
    np.testing.assert_array_equal(tff_fen.load_weights(tmp_path / "a.npz").trainable[0], models["server"].trainable[0])
    with pytest.raises(ValueError, match="model must be one of 'server', found 'average'"):
        tff_fen.load_weights(tmp_path / "a.npz", "average")


def test_what_is_no_file_of_weights(tmp_path: pathlib.Path) -> None:
    np.savez(tmp_path / "old.npz", np.zeros(2))
    with pytest.raises(ValueError, match=r"old\.npz was made before .* had names\. Run the experiment's command again"):
        tff_fen.load_weights(tmp_path / "old.npz")
    for content in (b"", b"no weights", (tmp_path / "old.npz").read_bytes()[:60]):
        (tmp_path / "bad.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"bad\.npz is no file of weights"):
            tff_fen.load_weights(tmp_path / "bad.npz")
    with pytest.raises(FileNotFoundError, match=r"none\.npz"):
        tff_fen.load_weights(tmp_path / "none.npz")
    with pytest.raises(TypeError, match="path must be a str or Path, found 3"):
        tff_fen.load_weights(3)  # type: ignore[arg-type]
