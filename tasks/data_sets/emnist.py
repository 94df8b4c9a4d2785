"""EMNIST-L: the first ten letters of EMNIST's 'letters', 28 x 28 pixels, as FedDyn's code takes them.

Images lie as both sources store them, with rows and columns exchanged, and are not turned
upright: a perceptron does not care, and FedDyn's code does the same. No package registry
has this data set, and no original was at hand to take a digest from: shapes, labels and
counts are checked, and the cache against what was put there.
"""

from __future__ import annotations

import pathlib

import numpy as np

from tasks.data_sets import downloads, sources

NUM_LETTERS = 10
MAT_FILE = "emnist-letters.mat"


def load(places: sources.Places) -> sources.Arrays:
    """Returns `x_train` [n, 784], `y_train` (0 for 'a' to 9 for 'j'), `x_test`, `y_test`, uint8, in canonical order.

    From `data_dir`, if given, with `emnist-letters.mat` (of the Matlab version) or with
    `emnist/letters` as prepared by TensorFlow Datasets; from TensorFlow Datasets.
    """
    candidates = [*places.data_dir_source(_from_folder), sources.Source("TensorFlow Datasets", _from_tfds)]
    return sources.load("emnist_letters", candidates, None, places)


def select_letters(train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray]) -> sources.Arrays:
    """Returns the first ten of the letters, whose labels are 1 ('a') to 26, in canonical order and numbered from 0."""
    parts = []
    for name, (x, y) in (("train", train), ("test", test)):
        y = y.reshape(-1)
        if x.size != len(y) * 784:
            raise sources.SourceError(f"the {name} part has {len(y)} labels, but images of shape {x.shape}")
        if not len(y) or y.min() < 1 or y.max() > 26:
            raise sources.SourceError(f"the {name} labels are not letters from 1 to 26")
        chosen = y <= NUM_LETTERS
        missing = sorted(set(range(1, NUM_LETTERS + 1)) - set(y[chosen].tolist()))
        if missing:
            raise sources.SourceError(f"the {name} part has no image of letter {missing[0]}")
        parts.append((x.reshape(-1, 784)[chosen], y[chosen] - 1))
    return sources.canonical(*parts)


def _from_tfds(folder: pathlib.Path) -> sources.Arrays:
    parts = downloads.load_tfds("emnist/letters", "https://www.itl.nist.gov/iaui/vip/cs_links/EMNIST/gzip.zip", folder)
    return select_letters(parts["train"], parts["test"])


def _from_folder(folder: pathlib.Path) -> sources.Arrays:
    prepared = downloads.find_prepared("emnist/letters", folder)
    if prepared is not None:
        parts = downloads.read_prepared(prepared)
        return select_letters(parts["train"], parts["test"])
    if not (folder / MAT_FILE).exists():
        raise sources.SourceError(f"neither {MAT_FILE} nor emnist/letters is there")
    from scipy import io

    try:
        dataset = io.loadmat(folder / MAT_FILE)["dataset"][0, 0]
        parts = {part: (dataset[part][0, 0]["images"], dataset[part][0, 0]["labels"]) for part in ("train", "test")}
    except Exception as error:  # scipy's reader fails in many ways on a file that is damaged or of another kind
        raise sources.SourceError(f"{MAT_FILE} cannot be read ({type(error).__name__}: {error})") from error
    return select_letters(parts["train"], parts["test"])
