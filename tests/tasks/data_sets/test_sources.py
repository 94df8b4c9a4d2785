"""Sources, cache and downloads: what is verified, what is kept, and what a user is told when nothing works."""

from __future__ import annotations

import http.server
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from tasks.data_sets import downloads, sources

ROOT = pathlib.Path(__file__).parents[3]
ARRAYS = {"x": np.arange(12, dtype=np.uint8).reshape(3, 4), "y": np.array([2, 0, 1], np.uint8)}
DIGEST = sources.digest(ARRAYS)


class Counting:
    """A source that counts how often it is asked."""

    def __init__(self, arrays: sources.Arrays) -> None:
        self.arrays, self.asked = arrays, 0

    def __call__(self, folder: pathlib.Path) -> sources.Arrays:
        self.asked += 1
        (folder / "half").write_bytes(b"what a download leaves")
        return {name: array.copy() for name, array in self.arrays.items()}


def refuse(folder: pathlib.Path) -> sources.Arrays:
    raise sources.SourceError("the host is down")


def load(places: sources.Places, *found: sources.Source, digest: str | None = DIGEST) -> sources.Arrays:
    return sources.load("thing", found, digest, places)


@pytest.fixture
def places(tmp_path: pathlib.Path) -> sources.Places:
    return sources.Places(cache_dir=tmp_path / "cache")


@pytest.mark.parametrize("kind", ["pipe", "file", "link", "dead link"])
def test_what_stands_for_a_half_download_is_removed(places: sources.Places, tmp_path: pathlib.Path, kind: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").touch()
    planted = places.cache() / "thing-a.part"
    places.cache().mkdir()
    if kind == "pipe":
        os.mkfifo(planted)
    elif kind == "file":
        planted.touch()
    else:
        planted.symlink_to(tmp_path / "mine" if kind == "link" else "nowhere")
    load(places, sources.Source("good", Counting(ARRAYS)))
    assert not os.path.lexists(planted) and (tmp_path / "mine" / "precious").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a | {"x": a["x"] + np.uint8(1)},
        lambda a: a | {"x": a["x"].astype(np.int8)},
        lambda a: a | {"x": a["x"].reshape(4, 3)},
        lambda a: {"z": a["x"], "y": a["y"]},
        lambda a: {"x": a["x"]},
    ],
)
def test_the_digest_sees_contents_types_shapes_and_names(change) -> None:
    assert sources.digest(change(ARRAYS)) != DIGEST


def test_canonical_order_does_not_depend_on_the_source() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (50, 2, 2), np.uint8), rng.integers(0, 3, 50)
    x[7] = x[3]  # equal examples of different labels
    order = rng.permutation(50)
    first = sources.canonical((x, y), (x[:5], y[:5]))
    again = sources.canonical((x[order], y[order]), (x[:5][::-1], y[:5][::-1]))
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
    assert np.all(np.diff(first["y_train"].astype(int)) >= 0)
    pairs = {(int(label), row.tobytes()) for label, row in zip(y, x, strict=True)}
    assert {(int(b), a.tobytes()) for a, b in zip(first["x_train"], first["y_train"], strict=True)} == pairs
    with pytest.raises(sources.SourceError, match="5 examples but 4 labels"):
        sources.canonical((x, y), (x[:5], y[:4]))


def test_the_first_source_that_gives_the_right_data_is_kept(places: sources.Places) -> None:
    wrong, right = Counting(ARRAYS | {"y": np.zeros(3, np.uint8)}), Counting(ARRAYS)
    found = [sources.Source("down", refuse), sources.Source("wrong", wrong), sources.Source("right", right)]
    for _ in range(2):
        arrays = load(places, *found)
        assert sources.digest(arrays) == DIGEST
    assert (wrong.asked, right.asked) == (1, 1), "the second time it comes from the cache"
    assert sorted(path.name for path in places.cache().iterdir()) == ["thing.lock", "thing.npz"]


def test_without_an_original_digest_the_cache_is_held_to_its_own(places: sources.Places) -> None:
    right = Counting(ARRAYS)
    load(places, sources.Source("right", right), digest=None)
    with np.load(places.cache() / "thing.npz") as file:
        content = dict(file)
    np.savez(places.cache() / "thing.npz", **(content | {"y": np.zeros(3, np.uint8)}))
    assert sources.digest(load(places, sources.Source("right", right), digest=None)) == DIGEST
    assert right.asked == 2


@pytest.mark.parametrize("damage", [lambda c: c[:50], lambda c: b"", lambda c: c[:-40] + b"x" * 40])
def test_a_damaged_cache_is_put_aside_and_fetched_anew(places: sources.Places, damage) -> None:
    right = Counting(ARRAYS)
    load(places, sources.Source("right", right))
    cached = places.cache() / "thing.npz"
    cached.write_bytes(damage(cached.read_bytes()))
    assert sources.digest(load(places, sources.Source("right", right))) == DIGEST
    assert right.asked == 2 and (places.cache() / "thing.damaged").exists()


def test_a_failure_tells_what_was_tried_why_it_failed_and_what_to_do(
    places: sources.Places, tmp_path: pathlib.Path
) -> None:
    wrong = sources.Source("elsewhere", Counting({"x": ARRAYS["x"]}))
    missing = places._replace(data_dir=tmp_path / "nowhere").data_dir_source(refuse)
    with pytest.raises(sources.DataUnavailableError) as raised:
        load(places, *missing, sources.Source("the web", refuse), wrong)
    message = str(raised.value)
    for part in (
        "The data set thing could not be had",
        "nowhere: there is no such folder",
        "the web: the host is down",
        "elsewhere: the data differ from the original",
        "--data_dir",
    ):
        assert part in message
    assert not (places.cache() / "thing.npz").exists()


def test_a_cache_that_cannot_be_written_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(sources.DataUnavailableError, match="set TFF_FEN_CACHE to a folder"):
        load(sources.Places(cache_dir=tmp_path / "file"), sources.Source("right", Counting(ARRAYS)))


_SLOW = """
import pathlib, sys, time
import numpy as np
from tasks.data_sets import sources
def slow(folder):
    (folder / "half").write_bytes(b"half a download")
    print("half", flush=True)
    time.sleep(float(sys.argv[2]))
    return {"x": np.arange(12, dtype=np.uint8).reshape(3, 4), "y": np.array([2, 0, 1], np.uint8)}
sources.load("thing", [sources.Source("slow", slow)], sys.argv[3], sources.Places(cache_dir=pathlib.Path(sys.argv[1])))
"""


def start_slow(places: sources.Places, seconds: float) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _SLOW, str(places.cache()), str(seconds), DIGEST],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "half\n"
    return process


def test_a_killed_download_leaves_nothing_that_is_believed(places: sources.Places) -> None:
    process = start_slow(places, 60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list(places.cache().glob("thing-*.part")), "the half download is there"
    right = Counting(ARRAYS)
    load(places, sources.Source("right", right))
    assert right.asked == 1
    assert sorted(path.name for path in places.cache().iterdir()) == ["thing.lock", "thing.npz"]


def test_two_processes_fetch_once(places: sources.Places) -> None:
    process = start_slow(places, 1.0)
    right = Counting(ARRAYS)
    load(places, sources.Source("right", right))
    assert process.wait() == 0 and right.asked == 0, "the second waited for the first"


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves 300 000 bytes, or breaks off in the middle."""

    content = bytes(300_000)

    def do_GET(self) -> None:
        if self.path == "/missing":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        self.wfile.write(self.content[: 100_000 if self.path == "/broken" else None])

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()


def test_a_download_from_the_web(server: str, tmp_path: pathlib.Path, capfd) -> None:
    downloads.download_url(f"{server}/file", tmp_path / "file", 300_000)
    assert (tmp_path / "file").read_bytes() == Handler.content
    assert "file: 100%" in capfd.readouterr().err, "progress"
    for path in ("missing", "broken"):
        with pytest.raises(sources.SourceError):
            downloads.download_url(f"{server}/{path}", tmp_path / "other", 300_000)


def test_downloaders_report_what_went_wrong(tmp_path: pathlib.Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(sources.SourceError, match="npm, which fetches it, is not installed"):
        downloads.download_npm_package("anything", "1.0", tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(sources.SourceError, match=r"'tff-fen-has-no-such-package==1.0' failed: ERROR"):
        downloads.download_wheel("tff-fen-has-no-such-package", "1.0", tmp_path)


def test_tensorflow_datasets_without_a_network_gives_up_soon(tmp_path: pathlib.Path, monkeypatch) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    start = time.monotonic()
    with pytest.raises(sources.SourceError, match="cannot be reached"):
        downloads.load_tfds("mnist", "http://127.0.0.1:9/", tmp_path, (28, 28))
    assert time.monotonic() - start < 30


def test_the_default_cache_folder(monkeypatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("TFF_FEN_CACHE", str(tmp_path / "own"))
    assert sources.Places().cache() == tmp_path / "own"
    monkeypatch.delenv("TFF_FEN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert sources.Places().cache() == tmp_path / "tff_fen"


def test_no_home_is_told_in_one_line(monkeypatch, tmp_path: pathlib.Path) -> None:
    def nobody(uid: int) -> None:
        raise KeyError(uid)

    for name in ("TFF_FEN_CACHE", "XDG_CACHE_HOME", "TFDS_DATA_DIR", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    with pytest.raises(
        sources.DataUnavailableError, match=r"^There is no home folder .* set TFF_FEN_CACHE, or --cache"
    ):
        sources.load("thing", [], DIGEST, sources.Places())
    with pytest.raises(sources.SourceError, match="set TFDS_DATA_DIR"):
        downloads.load_tfds("mnist", "http://127.0.0.1:9/", tmp_path, (28, 28))


def test_a_cached_file_without_a_digest_is_fetched_anew(places: sources.Places) -> None:
    places.cache().mkdir()
    np.savez(places.cache() / "thing.npz", **(ARRAYS | {"y": np.zeros(3, np.uint8)}))
    right = Counting(ARRAYS)
    assert sources.digest(load(places, sources.Source("right", right), digest=None)) == DIGEST
    assert right.asked == 1


def test_the_check_sees_the_cache_too(places: sources.Places) -> None:
    """Who writes into the cache can write a digest too."""
    wrong = ARRAYS | {"y": np.zeros(3, np.uint8)}
    places.cache().mkdir()
    np.savez(places.cache() / "thing.npz", **wrong, digest=np.array(sources.digest(wrong)))

    def check(arrays: sources.Arrays) -> None:
        if not arrays["y"].any():
            raise sources.SourceError("all labels are 0")

    right = Counting(ARRAYS)
    arrays = sources.load("thing", [sources.Source("right", right)], None, places, check)
    assert sources.digest(arrays) == DIGEST and right.asked == 1
    with pytest.raises(sources.DataUnavailableError, match="elsewhere: all labels are 0"):
        sources.load("other", [sources.Source("elsewhere", Counting(wrong))], None, places, check)


def test_a_data_set_has_a_limit_in_the_cache_and_from_a_source(places: sources.Places) -> None:
    right = sources.Source("right", Counting(ARRAYS))
    load(places, right)
    for name in ("thing", "other"):
        with pytest.raises(sources.DataUnavailableError, match="right: the data have 15 bytes, more than 14"):
            sources.load(name, [right], DIGEST, places, most_bytes=14)


def test_a_download_larger_than_its_limit_is_broken_off(server: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(sources.SourceError, match="gives more than the 200000 bytes"):
        downloads.download_url(f"{server}/file", tmp_path / "file", 200_000)
    assert (tmp_path / "file").stat().st_size < 300_000
