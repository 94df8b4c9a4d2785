"""Files of hostile sources: what is unpacked, read or allocated stays within the limit, and the error says so."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import pathlib
import struct
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import scipy.io
from PIL import Image

from tasks.data_sets import cifar, mnist, prepared, shakespeare, sources, unpacking
from tasks.data_sets.matlab import read_mat

ZEROS = bytes(2**26)
LIMIT = 2**20


@contextlib.contextmanager
def little_memory() -> Iterator[None]:
    """Fails a test that takes 32 MB: half of what its file unpacks to."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**25, f"{peak} bytes"


def zipped(content: bytes, method: int = zipfile.ZIP_DEFLATED, name: str = "x.npy") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr(name, content)
    return file.getvalue()


def tarred(name: str, size: int, pax: int = 0) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as tar:
        entry = tarfile.TarInfo(name)
        entry.size = size
        entry.pax_headers = {"comment": "x" * pax} if pax else {}
        tar.addfile(entry, io.BytesIO(ZEROS))
    return file.getvalue()


def header(shape: tuple[int, ...], dtype: str = "|u1") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


CLAIM = header((2**40,)) + b"few"
DEEP = b"\x93NUMPY\x01\x00" + struct.pack("<H", 9010) + b"{'descr':" + 9000 * b"(" + b"}"


def by_path(read: Callable[[pathlib.Path], object]) -> Callable[[bytes, pathlib.Path], object]:
    def written(content: bytes, folder: pathlib.Path) -> object:
        (folder / "file").write_bytes(content)
        return read(folder / "file")

    return written


@pytest.mark.parametrize(
    ("make", "read", "message"),
    [
        (
            lambda: ZEROS,
            by_path(lambda p: unpacking.read_file(p, LIMIT)),
            "file unpacks to more than the 1048576 bytes",
        ),
        (
            lambda: gzip.compress(ZEROS, 1),
            lambda c, _: unpacking.gunzip(c, "a.gz", LIMIT),
            "a.gz unpacks to more than the 1048576 bytes",
        ),
        (lambda: zlib.compress(ZEROS), lambda c, _: unpacking.inflate(c, "a", LIMIT), "a unpacks to more than"),
        (
            lambda: zipped(ZEROS),
            by_path(lambda p: unpacking.unzip(p, "x.npy", LIMIT)),
            r"x.npy has 67108864 bytes, more than",
        ),
        (
            lambda: zipped(ZEROS),
            by_path(lambda p: unpacking.unzip(p, None, LIMIT)),
            r"x.npy has 67108864 bytes, more than",
        ),
        (
            lambda: zipped(ZEROS, zipfile.ZIP_BZIP2),
            by_path(lambda p: unpacking.unzip(p, None, 2**27)),
            "packed in another way",
        ),
        (
            lambda: tarred("a", len(ZEROS)),
            by_path(lambda p: unpacking.untar(p, ["a"], LIMIT)),
            "a has 67108864 bytes, more than",
        ),
        (
            lambda: tarred("a", len(ZEROS)),
            by_path(lambda p: unpacking.untar(p, ["b"], LIMIT)),
            "file unpacks to more than the 1048576 bytes",
        ),
        (
            lambda: tarred("a", 0, 2**22),
            by_path(lambda p: unpacking.untar(p, ["a"], LIMIT)),
            "file unpacks to more than the 1048576 bytes",
        ),
        (
            lambda: zipped(header((len(ZEROS),)) + ZEROS),
            by_path(lambda p: unpacking.read_npz(p, LIMIT)),
            "x.npy has 67108",
        ),
        (
            lambda: zipped(CLAIM),
            by_path(lambda p: unpacking.read_npz(p, LIMIT)),
            "x.npy has 1099511627776 bytes, more than",
        ),
        (lambda: CLAIM, by_path(lambda p: unpacking.read_npy(p, LIMIT)), "file has 1099511627776 bytes, more than"),
        (lambda: header((9,)), by_path(lambda p: unpacking.read_npy(p, LIMIT)), "file ends too early"),
        (lambda: header((-1, -1)) + b"x", by_path(lambda p: unpacking.read_npy(p, LIMIT)), "file is no array"),
        (lambda: header((1,), "|O") + b"x", by_path(lambda p: unpacking.read_npy(p, LIMIT)), "holds object of shape"),
        (lambda: header((1,), "<M8[s]") + bytes(8), by_path(lambda p: unpacking.read_npy(p, LIMIT)), "datetime64"),
        (lambda: DEEP, by_path(lambda p: unpacking.read_npy(p, LIMIT)), "file is no array that can be read"),
        (lambda: b"\x93NUMPY\x07\x00", by_path(lambda p: unpacking.read_npy(p, LIMIT)), "file is no array"),
    ],
)
def test_what_unpacks_to_too_much_is_refused(
    make: Callable[[], bytes], read: Callable[..., object], message: str, tmp_path: pathlib.Path
) -> None:
    content = make()
    with little_memory(), pytest.raises(sources.SourceError, match=message):
        read(content, tmp_path)


def test_what_is_within_the_limit_is_read(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "file"
    content = bytes(range(250))
    assert unpacking.gunzip(gzip.compress(content[:9]) + gzip.compress(content[9:]), "a", 250) == content
    assert unpacking.inflate(zlib.compress(content), "a", 250) == content
    path.write_bytes(zipped(content))
    assert unpacking.unzip(path, None, 250) == unpacking.unzip(path, "x.npy", 250) == content
    path.write_bytes(tarred("a/b", 70_000))
    assert unpacking.untar(path, ["a/b"], 100_000) == {"a/b": bytes(70_000)}
    array = np.asfortranarray(np.arange(12, dtype=">i2").reshape(3, 4))
    np.savez_compressed(path.with_suffix(".npz"), array=array, text=np.array("word"), none=np.zeros((0, 3)))
    arrays = unpacking.read_npz(path.with_suffix(".npz"), 1000)
    np.testing.assert_array_equal(arrays["array"], array)
    assert str(arrays["text"]) == "word" and arrays["none"].shape == (0, 3) and arrays["array"].flags.writeable
    with pytest.raises(sources.SourceError, match="file has no file c"):
        path.write_bytes(tarred("a/b", 70_000))
        unpacking.untar(path, ["a/b", "c"], 100_000)


def test_pictures(tmp_path: pathlib.Path) -> None:
    file = io.BytesIO()
    Image.new("L", (3000, 1)).save(file, "PNG")
    large = file.getvalue().replace(struct.pack(">II", 3000, 1), struct.pack(">II", 60_000, 60_000))
    large = large[:29] + struct.pack(">I", zlib.crc32(large[12:29])) + large[33:]
    for content, kind, message in [
        (large, "PNG", "(60000 x 60000 pixels|decompression bomb)"),
        (file.getvalue(), "PNG", "3000 x 1 pixels, more than 1024"),
        (file.getvalue(), "WEBP", "no WEBP picture"),
    ]:
        with little_memory(), pytest.raises(sources.SourceError, match=message):
            unpacking.picture(content, "a", kind, 1024)


def test_each_reader_has_a_limit(tmp_path: pathlib.Path) -> None:
    (tmp_path / "t8.shakespeare.txt.gz").write_bytes(gzip.compress(ZEROS, 1))
    with little_memory(), pytest.raises(sources.SourceError, match=r"t8.shakespeare.txt.gz unpacks to more than"):
        shakespeare._from_folder(tmp_path)
    (tmp_path / "train_labels.npy").write_bytes(CLAIM)
    with pytest.raises(sources.SourceError, match=r"train_labels.npy has 1099511627776 bytes"):
        cifar._from_folder("cifar100", tmp_path)
    labels = np.zeros(50_000, np.int64)
    labels[0] = 2**40  # counting to it takes 8 TiB
    with pytest.raises(sources.SourceError, match="50000 labels of type int64, not 50000 from 0 to 99"):
        cifar.canonical("cifar100", (np.broadcast_to(np.uint8(0), (50_000, 32, 32, 3)), labels), (labels, labels))
    for content in (b"\x00\x00\x08\xff", b"\x00\x00\x08\x03" + b"\xff" * 12):
        with pytest.raises(sources.SourceError, match="idx file of"):
            mnist.read_idx(content)


def test_a_pipe_is_not_waited_for(tmp_path: pathlib.Path) -> None:
    import os

    os.mkfifo(tmp_path / "t8.shakespeare.txt")
    with pytest.raises(sources.SourceError, match="no plain file"):
        shakespeare._from_folder(tmp_path)


# --- Matlab files


def saved(variables: dict[str, object], compressed: bool = True) -> bytes:
    file = io.BytesIO()
    scipy.io.savemat(file, variables, do_compression=compressed)
    return file.getvalue()


@pytest.mark.parametrize("compressed", [True, False])
def test_a_matlab_file_is_read_as_scipy_reads_it(compressed: bool) -> None:
    a, b = np.arange(12, dtype=np.uint8).reshape(3, 4), np.array([[1.5, -2.0]])
    found = read_mat(saved({"s": {"a": a, "t": {"b": b}}, "n": np.array([[7]], np.int16)}, compressed), "m", LIMIT)
    np.testing.assert_array_equal(found["s"]["a"], a)
    np.testing.assert_array_equal(found["s"]["t"]["b"], b)
    assert found["n"].tolist() == [[7]] and found["s"]["a"].dtype == np.uint8


def test_a_hostile_matlab_file() -> None:
    whole = saved({"s": {"a": np.zeros((3, 4), np.uint8)}}, False)
    claim = whole.replace(struct.pack("<ii", 3, 4), struct.pack("<ii", 2**30, 2**30))
    for content, message in [
        (saved({"a": np.frombuffer(ZEROS, np.uint8)}), "m unpacks to more than the 1048576 bytes"),
        (claim, r"'' of shape \[1073741824, 1073741824\] has 12 numbers"),
        (saved({"a": "text"}), "no real array"),
        (saved({"a": np.array([[1, 2], [3]], object)}), "no real array"),
        (whole[:-20], "ends after the file"),
        (b"x" * 200, "no Matlab file of version 5"),
    ]:
        with little_memory(), pytest.raises(sources.SourceError, match=message):
            read_mat(content, "m", LIMIT)


def test_damaged_matlab_files_are_refused_or_read() -> None:
    whole, rng = saved({"s": {"a": np.zeros((3, 4), np.uint8)}}, False), np.random.default_rng(0)
    for _ in range(3000):
        content = bytearray(whole)
        for place in rng.integers(124, len(content), 3):
            content[place] = rng.integers(256)
        try:
            read_mat(bytes(content), "m", LIMIT)
        except sources.SourceError:
            continue


# --- folders of TensorFlow Datasets


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """As TensorFlow Datasets writes it: twenty images."""
    import tensorflow_datasets as tfds

    class Mnist(tfds.testing.DummyMnist, skip_registration=True):  # type: ignore[call-arg]
        def _generate_examples(self):
            rng = np.random.default_rng(0)
            for i in range(20):
                yield i, {"image": rng.integers(0, 256, (28, 28, 1), np.uint8), "label": i % 10}

    root = tmp_path_factory.mktemp("tfds")
    Mnist(data_dir=root).download_and_prepare()
    return next(root.glob("*/*/features.json")).parent


def test_a_prepared_folder_is_read_as_its_maker_reads_it(folder: pathlib.Path) -> None:
    import tensorflow_datasets as tfds

    parts = prepared.read_prepared(folder, (28, 28))
    for split in ("train", "test"):
        expected = tfds.builder_from_directory(folder).as_dataset(split=split, batch_size=-1)
        order = np.argsort([image.tobytes() for image in expected["image"].numpy()])
        mine = np.argsort([image.tobytes() for image in parts[split][0]])
        np.testing.assert_array_equal(parts[split][0][mine], expected["image"].numpy()[order][..., 0])
        np.testing.assert_array_equal(parts[split][1][mine], expected["label"].numpy()[order])


def test_a_prepared_folder_names_no_code(
    folder: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorFlow Datasets would import the module that `features.json` names."""
    (tmp_path / "planted_by_a_folder.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.syspath_prepend(str(tmp_path))
    copy = tmp_path / "mnist" / "3.0.1"
    copy.mkdir(parents=True)
    for file in folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    features = json.loads((copy / "features.json").read_text())
    (copy / "features.json").write_text(json.dumps(features | {"pythonClassName": "planted_by_a_folder.Feature"}))
    images = mnist._from_folder(tmp_path)["x_train"]
    assert images.shape == (20, 784)
    assert not (tmp_path / "ran").exists()


def test_hostile_records(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "mnist-train.tfrecord-00000-of-00001"
    with pytest.raises(sources.SourceError, match="no TFRecord files of train"):
        prepared.read_prepared(tmp_path, (28, 28))
    record = next(prepared._records(next(folder.glob("*-train.tfrecord*")).read_bytes(), "a"))
    for content, message in [
        (struct.pack("<Q", 2**60) + bytes(100), "a record of 1152921504606846976 bytes"),
        (bytes(5), "ends too early"),
        (struct.pack("<Q", 3) + bytes(4) + b"\xff\xff\xff" + bytes(4), "no example"),
        (struct.pack("<Q", 0) + bytes(8), "without one image and one label"),
        (struct.pack("<Q", len(record)) + bytes(4) + record + bytes(4), r"28 x 28 pixels, more than 16"),
    ]:
        path.write_bytes(content)
        with pytest.raises(sources.SourceError, match=message):
            prepared.read_prepared(tmp_path, (4, 4))
