"""The weights of models in a file of NumPy's, by the names of models and of their variables.

    server/dense/kernel, server/dense/bias, ...       the server's model
    average/dense/kernel, ...                         the mean of the participants' models, where a method has one

Weights that are not trained are below `server_non_trainable`.
"""

from __future__ import annotations

import io
import pathlib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fen.checks import check_name, check_type

SERVER, AVERAGE = "server", "average"
_NON_TRAINABLE = "_non_trainable"


def load_weights(path: pathlib.Path | str, model: str | None = None) -> tff.learning.models.ModelWeights:
    """Loads a model from the `weights.npz` of an experiment.

        tff_fen.load_weights("out/my_run/weights.npz").assign_weights_to(keras_model)

    Args:
      path: the file.
      model: `"server"` for the server's model, or `"average"` for the mean of the participants' models, which FedDyn's
        tables quote; by default the one that the experiment's table quotes: `"average"` where it is there.

    Returns:
      The weights, in the order of the Keras model's.

    Raises:
      ValueError: if the file has no such model, or was made before models had names.
    """
    check_type("path", path, (str, pathlib.Path), "Pass the path of a weights.npz.")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (zipfile.BadZipFile, EOFError, ValueError) as error:
        raise ValueError(f"{path} is no file of weights: {error}") from error
    models = list(dict.fromkeys(name.partition("/")[0].removesuffix(_NON_TRAINABLE) for name in arrays))
    if SERVER not in models:
        raise ValueError(
            f"{path} was made before models and variables had names. Run the experiment's command again: it trains "
            "nothing that is done already, and writes the file anew."
        )
    model = model or (AVERAGE if AVERAGE in models else SERVER)
    check_name("model", model, models)
    return tff.learning.models.ModelWeights(
        *(
            [array for name, array in arrays.items() if name.startswith(f"{model}{kind}/")]
            for kind in ("", _NON_TRAINABLE)
        )
    )


def weights_to_bytes(models: Mapping[str, Any], build_keras_model: Callable[[], tf.keras.Model]) -> bytes:
    """Returns the content of a file of weights.

    Args:
      models: `ModelWeights` by name.
      build_keras_model: returns a new model, which the variables are named after.
    """
    # In a graph of their own layers are counted from the first; outside, from the first of this Python process.
    with tf.Graph().as_default():
        built = build_keras_model()
        names = [_names(weights) for weights in (built.trainable_weights, built.non_trainable_weights)]
    arrays = {
        f"{model}{kind}/{name}": np.asarray(array)
        for model, weights in models.items()
        for kind, listed, part in zip(("", _NON_TRAINABLE), names, weights, strict=True)
        for name, array in zip(listed, part, strict=True)
    }
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def _names(variables: Sequence[tf.Variable]) -> list[str]:
    names = [variable.name.removesuffix(":0") for variable in variables]
    return names if len({*names}) == len(names) else [f"{i}_{name}" for i, name in enumerate(names)]
