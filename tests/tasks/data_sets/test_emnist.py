"""EMNIST-L: the original files in each of their forms (made up, small), and the pool where it is at hand."""

from __future__ import annotations

import gzip
import io
import pathlib
import shutil
import zipfile
from collections.abc import Callable

import numpy as np
import pytest
import scipy.io

from tasks.data_sets import emnist, sources
from tasks.registry import load_task
from tests.support import real_data

Part = tuple[np.ndarray, np.ndarray]


def letters(per_letter: int, seed: int) -> Part:
    """Images of all 26 letters, as EMNIST numbers them."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(1, 27), per_letter)).astype(np.uint8)
    return rng.integers(0, 256, (len(labels), 28, 28), np.uint8), labels


TRAIN, TEST = letters(4, 0), letters(2, 1)


@pytest.fixture
def small_official(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes `TRAIN` and `TEST` for the official sets."""
    monkeypatch.setattr(emnist, "_OFFICIAL", {"train": 4, "test": 2})
    arrays = emnist.select_letters(TRAIN, TEST)
    monkeypatch.setattr(emnist, "TEST_DIGEST", sources.digest({n: arrays[n] for n in ("x_test", "y_test")}))


def write_mat(folder: pathlib.Path, train: Part, test: Part) -> None:
    def part(images: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
        return {"images": images.reshape(len(images), 784), "labels": labels[:, None], "writers": labels[:, None] * 0}

    mapping = np.array([[i, 64 + i, 96 + i] for i in range(1, 27)], np.uint8)
    dataset = {"train": part(*train), "test": part(*test), "mapping": mapping}
    scipy.io.savemat(folder / "emnist-letters.mat", {"dataset": dataset}, do_compression=True)


def idx(array: np.ndarray) -> bytes:
    return gzip.compress(bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes())


def idx_files(train: Part, test: Part) -> dict[str, bytes]:
    return {
        f"emnist-letters-{name}-{kind}-ubyte.gz": idx(array)
        for name, part in (("train", train), ("test", test))
        for kind, array in zip(("images-idx3", "labels-idx1"), part, strict=True)
    }


def write_idx(folder: pathlib.Path, train: Part, test: Part) -> None:
    for file, content in idx_files(train, test).items():
        (folder / file).write_bytes(content)


def write_archive(folder: pathlib.Path, train: Part, test: Part) -> None:
    with zipfile.ZipFile(folder / "gzip.zip", "w") as archive:
        archive.writestr("gzip/emnist-digits-train-images-idx3-ubyte.gz", b"not looked at")
        for file, content in idx_files(train, test).items():
            archive.writestr(f"gzip/{file}", content)


@pytest.mark.parametrize("write", [write_mat, write_idx, write_archive])
def test_the_original_files(write: Callable[..., None], small_official: None, tmp_path: pathlib.Path) -> None:
    """The first ten letters, numbered from 0, images as stored (not turned), from each form."""
    write(tmp_path, TRAIN, TEST)
    places = sources.Places(tmp_path, tmp_path / "cache")
    arrays = emnist.load(places)
    assert emnist.training_set(places) == "official"
    for part, (images, labels) in (("train", TRAIN), ("test", TEST)):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        assert np.bincount(y).tolist() == [4 if part == "train" else 2] * 10
        expected = {(int(b) - 1, a.tobytes()) for a, b in zip(images, labels, strict=True) if b <= 10}
        assert {(int(b), a.tobytes()) for a, b in zip(x, y, strict=True)} == expected
    assert (tmp_path / "cache" / "emnist_letters_official.npz").exists()


def test_the_archive_of_nist(small_official: None, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `data_dir` the archive is fetched, and an old cache of TensorFlow Datasets' share is not believed."""

    def download(url: str, path: pathlib.Path, most_bytes: int) -> None:
        assert url == "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip"
        write_archive(path.parent, TRAIN, TEST)

    monkeypatch.setattr(emnist.downloads, "download_url", download)
    np.savez(tmp_path / "emnist_letters.npz", **emnist.select_letters(letters(3, 0), TEST))
    assert len(emnist.load(sources.Places(None, tmp_path))["y_train"]) == 40


def test_a_cache_that_is_not_the_official_set(small_official: None, tmp_path: pathlib.Path) -> None:
    """Not even with a digest of its own, nor with other arrays than the four."""
    write_mat(tmp_path, TRAIN, TEST)
    right = emnist.load(sources.Places(tmp_path, tmp_path / "right"))
    few = {name: array[:5] for name, array in right.items()}
    for number, arrays in enumerate((few, right | {"more": few["y_test"]}, {"x_train": few["x_train"]})):
        cache = tmp_path / str(number)
        cache.mkdir()
        np.savez(cache / "emnist_letters_official.npz", **arrays, digest=np.array(sources.digest(arrays)))
        assert sources.digest(emnist.load(sources.Places(tmp_path, cache))) == sources.digest(right)
        assert (cache / "emnist_letters_official.damaged").exists()


def test_what_is_not_the_official_set(small_official: None, tmp_path: pathlib.Path) -> None:
    for train, test, message in [
        ((TRAIN[0], TRAIN[1] - 1), TEST, "train labels are not letters from 1 to 26"),
        ((TRAIN[0][:, :27], TRAIN[1]), TEST, "train part has 104 labels, but images of shape"),
        (letters(3, 0), TEST, "train part has 3 to 3 images of a letter, not 4 of each"),
        (TRAIN, (TEST[0][TEST[1] != 7], TEST[1][TEST[1] != 7]), "test part has 0 to 2 images of a letter, not 2"),
        (TRAIN, letters(2, 2), "the test part is not the official one"),
    ]:
        with pytest.raises(sources.SourceError, match=message):
            emnist.check_official(emnist.select_letters(train, test))
    write_idx(tmp_path, letters(3, 0), TEST)
    with pytest.raises(sources.SourceError, match="train part has 3 to 3 images"):
        emnist._from_folder(tmp_path)


def test_files_that_cannot_be_read(tmp_path: pathlib.Path) -> None:
    with pytest.raises(sources.SourceError, match=r"neither emnist-letters\.mat, nor gzip.zip, .* nor the pool's"):
        emnist._from_folder(tmp_path)
    prepared = tmp_path / "emnist" / "letters" / "3.0.0"
    prepared.mkdir(parents=True)
    (prepared / "dataset_info.json").write_text("{}")
    with pytest.raises(sources.SourceError, match="keeps only the first 88800 of the 124800 training images"):
        emnist._from_folder(tmp_path)
    for file, content, message in [
        ("emnist-letters-train-images-idx3-ubyte.gz", b"no gzip", "train-images-idx3-ubyte.gz cannot be unpacked"),
        ("emnist-letters-train-images-idx3-ubyte.gz", idx(TRAIN[0]), "train-labels-idx1-ubyte.gz cannot be read"),
        ("gzip.zip", b"no archive", "gzip.zip does not hold gzip/emnist-letters-train-images.* as expected"),
        ("emnist-letters.mat", b"no Matlab file", "emnist-letters.mat is no Matlab file of version 5"),
    ]:
        (tmp_path / file).write_bytes(content)
        with pytest.raises(sources.SourceError, match=message):
            emnist._from_folder(tmp_path)


def test_the_pool(tmp_path: pathlib.Path) -> None:
    """`load` has compared the five files and the arrays with their digests."""
    places = sources.Places(real_data.folder("emnist"), tmp_path)
    assert emnist.training_set(places) == "pool"
    task = load_task("emnist_letters", places=places)
    labels = np.concatenate([y for _, y in task.clients])
    assert np.bincount(labels).tolist() == [4800, 3116, 4147, 4800, 4800, 3852, 2170, 4087, 4633, 1808]
    x, y = task.test
    assert np.bincount(y).tolist() == [800] * 10
    assert len(task.clients) == 100 and task.training_set == "pool"
    assert task.build_keras_model().count_params() == 89_610
    pixels = np.concatenate([x for x, _ in task.clients])
    assert not {row.tobytes() for row in pixels} & {row.tobytes() for row in x}
    assert pixels.mean(dtype=np.float64) == pytest.approx(0.0, abs=1e-5)
    assert pixels.std(dtype=np.float64) == pytest.approx(1.0, abs=1e-5)
    # An 'i' lies on its side, in both parts: its ink goes along the rows.
    for images in (pixels[labels == 8], x[y == 8]):
        ink = images.reshape(-1, 28, 28).mean(0) > 0
        assert ink.any(0).sum() > ink.any(1).sum()
    # From the cache, as long as the folder says that it is the pool that is meant.
    assert (tmp_path / "emnist_letters_pool.npz").exists()
    with np.load(tmp_path / "emnist_letters_pool.npz", allow_pickle=False) as file:
        assert file["x_train"].shape == (38_213, 784)


def test_a_damaged_pool(tmp_path: pathlib.Path) -> None:
    folder = real_data.folder("emnist")
    for file, _ in emnist._POOL_FILES.values():
        shutil.copy(folder / file, tmp_path / file)
    meta = tmp_path / "emnist-aj-trainpool-meta.npz"
    with np.load(meta) as stored:
        arrays = {name: stored[name] for name in stored.files}
    arrays["select_cap4800"] = arrays["select_cap4800"][1:]
    content = io.BytesIO()
    np.savez(content, **arrays)
    meta.write_bytes(content.getvalue())
    places = sources.Places(tmp_path, tmp_path / "cache")
    # Never the official set instead.
    with pytest.raises(sources.DataUnavailableError, match=r"meta\.npz is not the pool's file") as raised:
        emnist.load(places)
    assert "NIST" not in str(raised.value)
    meta.unlink()
    with pytest.raises(sources.DataUnavailableError, match=r"meta\.npz of the pool cannot be read"):
        emnist.load(places)


def test_the_official_set_goes_before_the_pool(small_official: None, tmp_path: pathlib.Path) -> None:
    for file, _ in emnist._POOL_FILES.values():
        (tmp_path / file).touch()
    places = sources.Places(tmp_path, tmp_path / "cache")
    assert emnist.training_set(places) == "pool"
    write_mat(tmp_path, TRAIN, TEST)
    assert emnist.training_set(places) == "official" and len(emnist.load(places)["y_train"]) == 40
    task = load_task("emnist_letters", num_clients=4, places=places)
    assert task.training_set == "official" and load_task("digits").training_set is None
