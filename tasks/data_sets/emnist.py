"""EMNIST-L: the first ten letters of EMNIST's 'letters', 28 x 28 pixels, as FedDyn's code takes them.

There are two training sets, with the same official test set of 8000 images:

| training set | images | from |
|---|---|---|
| `official` | 48 000, 4800 of each letter | the original files, in `data_dir` or from NIST |
| `pool` | 38 213, 1808 to 4800 of each letter | files put together from other parts of EMNIST, in `data_dir` only |

Images lie as all sources store them, with rows and columns exchanged, and are not turned upright: a perceptron does
not care, and FedDyn's code does the same. TensorFlow Datasets is no source: its `emnist/letters` keeps only the first
88 800 of the 124 800 training images.
"""

from __future__ import annotations

import hashlib
import io
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tasks.data_sets import downloads, prepared, sources, unpacking
from tasks.data_sets.matlab import read_mat
from tasks.data_sets.mnist import read_idx

NUM_LETTERS = 10
TEST_DIGEST = "6cb7840325566a6d38a85c82deaba101fe45cdedeefb2c729c5f025f31efff7a"
"""Of the official test images of the ten letters and their labels, in canonical order."""
POOL_DIGEST = "8a38524e4c0a3856e171dfde0cc955cceb06fbb717821c11c479f8604b732a5c"
"""Of training and test set in canonical order, from the pool's files (whose SHA-256 are below)."""
MAT_FILE = "emnist-letters.mat"
ARCHIVE = "gzip.zip"

_ARCHIVE_URL = f"https://biometrics.nist.gov/cs_links/EMNIST/{ARCHIVE}"
_OFFICIAL = {"train": 4800, "test": 800}  # images of each letter
_SHAPES = {
    "x_train": ((784,), "|u1"), "y_train": ((), "|u1"), "x_test": ((784,), "|u1"), "y_test": ((), "|u1"),
}  # fmt: skip
_MOST_BYTES = {"images": 98_000_000, "mat": 140_000_000, "archive": 2**30}
"""Of a file, unpacked but for the archive. The images of all letters have 97 843 216, and 114 150 400 in one file."""
_POOL_FILES = {
    "x_train": (
        "emnist-aj-trainpool-images-idx3-ubyte.gz",
        "1872ff33299ef7e79ed2656f2034a23d1d3109f7293bc3aeb3b353eb75f4a32d",
    ),
    "y_train": (
        "emnist-aj-trainpool-labels-idx1-ubyte.gz",
        "b9fddce6bdb7ae04f6d001646fa8ea3ca267019357ca3ea39f35e823f249fc3f",
    ),
    "x_test": (
        "emnist-letters-aj-test-images-idx3-ubyte.gz",
        "e85a1aed282fda816efbf6a9b532cf3fa3f689b2b32b4d2ec2c8c8375b6c22d5",
    ),
    "y_test": (
        "emnist-letters-aj-test-labels-idx1-ubyte.gz",
        "6b4a247ef2e8a29be602ec4d4c83900338e6a12cd71aec7e955833f59413527e",
    ),
    "selections": (
        "emnist-aj-trainpool-meta.npz",
        "d9c774a8aac184731d21b2edeaa7258a2decf8abb60f4a51ab0209b4cb788021",
    ),
}
_SELECTION = "select_cap4800"  # at most as many images of a letter as the official set has

Part = tuple[np.ndarray, np.ndarray]


def training_set(places: sources.Places) -> str:
    """Returns which training set `load` gives: `pool` if `data_dir` has that and not the original files."""
    folder = places.data_dir
    if folder is None or _official_reader(folder) is not None:
        return "official"
    return "pool" if any((folder / file).exists() for file, _ in _POOL_FILES.values()) else "official"


def load(places: sources.Places) -> sources.Arrays:
    """Returns `x_train` [n, 784], `y_train` (0 for 'a' to 9 for 'j'), `x_test` [8000, 784], `y_test`, uint8.

    In canonical order. The official training set comes from `data_dir`, if given, with `emnist-letters.mat` (of the
    Matlab version), `gzip.zip` or the four files `emnist-letters-*-ubyte.gz` out of it; or from NIST. If `data_dir`
    has the pool instead, its selection of at most 4800 images of each letter is the training set; see `training_set`.
    """
    if training_set(places) == "pool":
        return sources.load("emnist_letters_pool", places.data_dir_source(_from_pool), POOL_DIGEST, places)
    candidates = [*places.data_dir_source(_from_folder), sources.Source(f"NIST's {ARCHIVE} (560 MB)", _from_nist)]
    # Not 'emnist_letters': there, caches may still hold what TensorFlow Datasets keeps of the training images.
    return sources.load("emnist_letters_official", candidates, None, places, check_official)


def select_letters(train: Part, test: Part) -> sources.Arrays:
    """Returns the first ten of the letters, whose labels are 1 ('a') to 26, in canonical order and numbered from 0."""
    parts = []
    for name, (x, y) in (("train", train), ("test", test)):
        y = y.reshape(-1)
        if x.size != len(y) * 784:
            raise sources.SourceError(f"the {name} part has {len(y)} labels, but images of shape {x.shape}")
        if not len(y) or y.min() < 1 or y.max() > 26:
            raise sources.SourceError(f"the {name} labels are not letters from 1 to 26")
        chosen = y <= NUM_LETTERS
        parts.append((x.reshape(-1, 784)[chosen], y[chosen] - 1))
    return sources.canonical(*parts)


def check_official(arrays: sources.Arrays) -> sources.Arrays:
    """Returns the arrays; raises `SourceError` unless they have the official counts and the official test set.

    No original was at hand to take a digest of the training images from.
    """
    shapes = {name: (array.shape[1:], array.dtype.str) for name, array in arrays.items()}
    if shapes != _SHAPES or any(len(arrays[f"x_{part}"]) != len(arrays[f"y_{part}"]) for part in _OFFICIAL):
        raise sources.SourceError(f"it does not hold {', '.join(_SHAPES)} as expected, but {shapes}")
    for part, each in _OFFICIAL.items():
        counts = np.bincount(arrays[f"y_{part}"], minlength=NUM_LETTERS)
        if np.any(counts != each):
            raise sources.SourceError(
                f"the {part} part has {counts.min()} to {counts.max()} images of a letter, not {each} of each"
            )
    found = sources.digest({name: arrays[name] for name in ("x_test", "y_test")})
    if found != TEST_DIGEST:
        raise sources.SourceError(f"the test part is not the official one (digest {found[:12]}...)")
    return arrays


def _from_folder(folder: pathlib.Path) -> sources.Arrays:
    read = _official_reader(folder)
    if read is not None:
        return check_official(read())
    if prepared.find_prepared("emnist/letters", folder) is not None:
        raise sources.SourceError(
            "TensorFlow Datasets keeps only the first 88800 of the 124800 training images in its emnist/letters"
        )
    pool = _POOL_FILES["x_train"][0]
    raise sources.SourceError(
        f"neither {MAT_FILE}, nor {ARCHIVE}, nor {_idx_file('train', 'images')}, nor the pool's {pool} is there"
    )


def _official_reader(folder: pathlib.Path) -> Callable[[], sources.Arrays] | None:
    """Returns what reads the original files in the folder, in whichever form they are there; `None` if in none."""
    if (folder / MAT_FILE).exists():
        return lambda: _read_mat(folder / MAT_FILE)
    if (folder / ARCHIVE).exists():
        return lambda: _read_archive(folder / ARCHIVE)
    if (folder / _idx_file("train", "images")).exists():
        return lambda: _read_idx_files(lambda file: unpacking.read_file(folder / file, _MOST_BYTES["images"]))
    return None


def _read_mat(path: pathlib.Path) -> sources.Arrays:
    variables = read_mat(unpacking.read_file(path, _MOST_BYTES["mat"]), MAT_FILE, _MOST_BYTES["mat"])
    try:
        parts = [(variables["dataset"][part]["images"], variables["dataset"][part]["labels"]) for part in _OFFICIAL]
    except (KeyError, TypeError, IndexError) as error:
        raise sources.SourceError(f"{MAT_FILE} has no dataset with images and labels ({error})") from error
    return select_letters(*parts)


def _from_nist(folder: pathlib.Path) -> sources.Arrays:
    downloads.download_url(_ARCHIVE_URL, folder / ARCHIVE, _MOST_BYTES["archive"])
    return check_official(_read_archive(folder / ARCHIVE))


def _read_archive(path: pathlib.Path) -> sources.Arrays:
    return _read_idx_files(lambda file: unpacking.unzip(path, f"gzip/{file}", _MOST_BYTES["images"]))


def _read_idx_files(read: Callable[[str], bytes]) -> sources.Arrays:
    """Reads the four files of the official letters."""
    parts: list[Any] = []
    for part in ("train", "test"):
        files = [_idx_file(part, kind) for kind in ("images", "labels")]
        try:
            parts.append(tuple(_unpack(file, read(file)) for file in files))
        except OSError as error:
            raise sources.SourceError(f"{' or '.join(files)} cannot be read ({error})") from error
    return select_letters(*parts)


def _idx_file(part: str, kind: str) -> str:
    return f"emnist-letters-{part}-{kind}-idx{3 if kind == 'images' else 1}-ubyte.gz"


def _from_pool(folder: pathlib.Path) -> sources.Arrays:
    """Reads the pool: training images out of several parts of EMNIST, and the official test images."""
    contents = {}
    for name, (file, sha256) in _POOL_FILES.items():
        try:
            contents[name] = unpacking.read_file(folder / file, _MOST_BYTES["images"])
        except OSError as error:
            raise sources.SourceError(f"{file} of the pool cannot be read ({error.strerror})") from error
        found = hashlib.sha256(contents[name]).hexdigest()
        if found != sha256:
            raise sources.SourceError(f"{file} is not the pool's file (SHA-256 {found[:12]}..., not {sha256[:12]}...)")
    chosen = unpacking.read_npz(io.BytesIO(contents.pop("selections")), _MOST_BYTES["images"])[_SELECTION]
    arrays = {name: _unpack(_POOL_FILES[name][0], content) for name, content in contents.items()}
    return select_letters((arrays["x_train"][chosen], arrays["y_train"][chosen]), (arrays["x_test"], arrays["y_test"]))


def _unpack(file: str, content: bytes) -> np.ndarray:
    return read_idx(unpacking.gunzip(content, file, _MOST_BYTES["images"]))
