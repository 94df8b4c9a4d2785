"""Reads what TensorFlow Datasets prepared, without it: TFRecord files of pictures with labels.

TensorFlow Datasets imports the Python modules that a folder's `features.json` names, and decodes pictures
of any size. Here a folder is data: nothing of it is imported, and each size is compared with a limit first.
"""

from __future__ import annotations

import pathlib
import struct
from collections.abc import Iterator

import numpy as np

from tasks.data_sets import unpacking
from tasks.data_sets.unpacking import SourceError

_MOST_EXAMPLES = 60_000
_MOST_FILE_BYTES = 2**28
_MOST_RECORD_BYTES = 2**16


def find_prepared(name: str, folder: pathlib.Path) -> pathlib.Path | None:
    """Returns the newest version of a data set that TensorFlow Datasets prepared below `folder`, or `None`."""
    versions = sorted((folder / name).glob("*/dataset_info.json"), key=lambda info: _version(info.parent.name))
    return versions[-1].parent if versions else None


def read_prepared(version_folder: pathlib.Path, shape: tuple[int, ...]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns (images, labels) of `train` and `test` from a folder that TensorFlow Datasets prepared; no network.

    Args:
      version_folder: as `find_prepared` gives it.
      shape: of every image: [height, width], or [height, width, 3].
    """
    try:
        return {split: _read_split(version_folder, split, shape) for split in ("train", "test")}
    except (SourceError, OSError) as error:
        raise SourceError(f"{version_folder} cannot be read ({error})") from error


def _read_split(folder: pathlib.Path, split: str, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    files = sorted(folder.glob(f"*-{split}.tfrecord-*-of-*"))
    if not files:
        raise SourceError(f"it has no TFRecord files of {split}; other formats are not read")
    images: list[np.ndarray] = []
    labels: list[int] = []
    for path in files:
        for record in _records(unpacking.read_file(path, _MOST_FILE_BYTES), path.name):
            if len(images) == _MOST_EXAMPLES:
                raise SourceError(f"{split} has more than {_MOST_EXAMPLES} examples")
            content, label = _image_and_label(record, path.name)
            image = unpacking.picture(content, path.name, "PNG", shape[0] * shape[1])
            if image.shape != shape:
                raise SourceError(f"{path.name} has an image of shape {image.shape}, not {shape}")
            images.append(image)
            labels.append(label)
    return np.stack(images) if images else np.zeros((0, *shape), np.uint8), np.array(labels, np.int64)


def _records(content: bytes, name: str) -> Iterator[bytes]:
    """Yields the records of a TFRecord file: size, checksum of it, bytes, checksum of them."""
    # The checksums are not compared: the digest of the whole data set is.
    start = 0
    while start < len(content):
        if start + 12 > len(content):
            raise SourceError(f"{name} ends too early")
        (size,) = struct.unpack_from("<Q", content, start)
        if size > _MOST_RECORD_BYTES or start + 16 + size > len(content):
            raise SourceError(f"{name} has a record of {size} bytes")
        yield content[start + 12 : start + 12 + size]
        start += 16 + size


def _image_and_label(record: bytes, name: str) -> tuple[bytes, int]:
    from google.protobuf.message import DecodeError
    from tensorflow.core.example.example_pb2 import Example  # here: TensorFlow takes seconds to import

    try:
        features = Example.FromString(record).features.feature
    except DecodeError as error:
        raise SourceError(f"{name} holds a record that is no example") from error
    image, label = features["image"].bytes_list.value, features["label"].int64_list.value
    if len(image) != 1 or len(label) != 1:
        raise SourceError(f"{name} holds an example without one image and one label")
    return image[0], label[0]


def _version(name: str) -> list[int]:
    return [int(number) for number in name.split(".") if number.isdigit()]
