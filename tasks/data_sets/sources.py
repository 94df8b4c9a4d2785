"""Arrays of a data set from the first source that has them, verified, and kept in a cache.

Whatever the source, the arrays are brought into one canonical order and compared with
a digest of the originals; what does not match is neither used nor kept. A file gets its
final name only when it is complete, so that a killed download leaves nothing that is
later believed; what it did leave is removed the next time. No pickle is ever loaded.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tasks.data_sets import unpacking
from tasks.data_sets.unpacking import Arrays as Arrays
from tasks.data_sets.unpacking import SourceError as SourceError


class DataUnavailableError(Exception):
    """No source could give the data; the message lists each with its reason, and what to do."""


class Source(NamedTuple):
    """A place where a data set may be had.

    Attributes:
      name: for messages.
      load: returns the arrays; may write into the folder it is given, which is removed
        afterwards. Raises `SourceError` if it cannot.
    """

    name: str
    load: Callable[[pathlib.Path], Arrays]


class Places(NamedTuple):
    """Where a user's data are.

    Attributes:
      data_dir: a folder with the original files, or with data sets that TensorFlow
        Datasets prepared; `None` if there is none.
      cache_dir: where verified arrays are kept; `None` for `$TFF_FEN_CACHE`, or `tff_fen` in the
        user's cache folder.
    """

    data_dir: pathlib.Path | None = None
    cache_dir: pathlib.Path | None = None

    def cache(self) -> pathlib.Path:
        """The cache folder."""
        if self.cache_dir is not None:
            return self.cache_dir
        given = os.environ.get("TFF_FEN_CACHE")
        if given:
            return pathlib.Path(given)
        try:
            return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tff_fen"
        except RuntimeError as error:  # some containers have a user without a name
            raise DataUnavailableError(
                "There is no home folder to keep data sets in: set TFF_FEN_CACHE, or --cache_dir, to a folder."
            ) from error

    def data_dir_source(self, read: Callable[[pathlib.Path], Arrays]) -> list[Source]:
        """Returns `--data_dir` as a list of one source, read by `read`; an empty list if there is none."""
        if self.data_dir is None:
            return []
        folder = self.data_dir

        def load(_: pathlib.Path) -> Arrays:
            if not folder.is_dir():
                raise SourceError("there is no such folder")
            return read(folder)

        return [Source(f"--data_dir={folder}", load)]


def digest(arrays: Arrays) -> str:
    """Returns the SHA-256 of names, types, shapes and contents."""
    sha = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        sha.update(f"{name} {array.dtype.str} {array.shape}".encode())
        sha.update(array.data)
    return sha.hexdigest()


def canonical(train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray]) -> Arrays:
    """Returns the examples of a labelled data set in an order that no source can change.

    They are sorted by label, and within a label by the SHA-256 of the example.

    Args:
      train: examples uint8 [n, ...] and labels [n].
      test: likewise.

    Returns:
      `x_train`, `y_train`, `x_test`, `y_test`, all uint8.
    """
    arrays: Arrays = {}
    for name, (x, y) in (("train", train), ("test", test)):
        x, y = np.ascontiguousarray(x, np.uint8), np.asarray(y, np.uint8).reshape(-1)
        if len(x) != len(y):
            raise SourceError(f"the {name} part has {len(x)} examples but {len(y)} labels")
        keys = [(label, hashlib.sha256(row.data).digest()) for label, row in zip(y.tolist(), x, strict=True)]
        order = np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)
        arrays |= {f"x_{name}": x[order], f"y_{name}": y[order]}
    return arrays


def load(
    name: str,
    sources: Sequence[Source],
    expected_digest: str | None,
    places: Places,
    check: Callable[[Arrays], object] | None = None,
    most_bytes: int = 2**30,
) -> Arrays:
    """Returns the arrays from the cache, or from the first source that gives the right ones.

    Processes that want the same data set at the same time wait for the first to have it.

    Args:
      name: of the data set, and of its file in the cache.
      sources: tried in order.
      expected_digest: of the arrays, see `digest`; `None` where no original could be had to
        take it from. Then the first source's word is taken, as far as `check` does not object, and
        what the cache holds is compared with the digest that was put there with it.
      places: the user's folders.
      check: raises `SourceError` if arrays cannot be the right ones; for what has no digest. It sees
        the arrays of a source and of the cache.
      most_bytes: all arrays together may have.

    Raises:
      DataUnavailableError: if no source gives the right arrays, or the cache cannot be written.
    """
    cache = places.cache()
    reasons: list[str] = []

    def verify(arrays: Arrays) -> Arrays:
        size = sum(array.nbytes for array in arrays.values())
        if size > most_bytes:
            raise SourceError(f"the data have {size} bytes, more than {most_bytes}")
        found = digest(arrays)
        if expected_digest is not None and found != expected_digest:
            raise SourceError(
                f"the data differ from the original (digest {found[:12]}..., not {expected_digest[:12]}...)"
            )
        if check is not None:
            check(arrays)
        return arrays

    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _only_one(cache / f"{name}.lock"):
            arrays = _load(name, sources, verify, cache, reasons, most_bytes)
        if arrays is not None:
            return arrays
    except OSError as error:
        reasons.append(f"cache {cache}: {error.strerror or error}; set TFF_FEN_CACHE to a folder with free space")
    tried = "\n".join(f"  - {reason}" for reason in reasons)
    raise DataUnavailableError(
        f"The data set {name} could not be had. Tried:\n{tried}\n"
        f"Make one of these reachable, or put the original files into a folder and name it with --data_dir."
    )


def _load(
    name: str,
    sources: Sequence[Source],
    verify: Callable[[Arrays], Arrays],
    cache: pathlib.Path,
    reasons: list[str],
    most_bytes: int,
) -> Arrays | None:
    """Does the work of `load`; returns `None` if all fails, with what went wrong appended to `reasons`."""
    cached = cache / f"{name}.npz"
    if cached.exists():
        try:
            return verify(_read(cached, most_bytes))
        except SourceError as error:
            reasons.append(f"cache {cached}: {error}; put aside as {name}.damaged")
            cached.replace(cached.with_suffix(".damaged"))
    for left_by_a_killed_one in cache.glob(f"{name}-*.part"):
        if left_by_a_killed_one.is_dir() and not left_by_a_killed_one.is_symlink():
            shutil.rmtree(left_by_a_killed_one)
        else:  # put there by somebody else: a pipe, say, which would make its reader wait
            left_by_a_killed_one.unlink()
    for source in sources:
        print(f"{name}: trying {source.name}", file=sys.stderr)
        with tempfile.TemporaryDirectory(dir=cache, prefix=f"{name}-", suffix=".part") as folder:
            try:
                arrays = verify(source.load(pathlib.Path(folder)))
            except SourceError as error:
                reasons.append(f"{source.name}: {error}")
                continue
            complete = pathlib.Path(folder) / "complete.npz"
            with complete.open("wb") as file:
                np.savez(file, **arrays, digest=np.array(digest(arrays)))
                file.flush()
                os.fsync(file.fileno())
            complete.replace(cached)
            return arrays
    return None


@contextlib.contextmanager
def _only_one(path: pathlib.Path) -> Iterator[None]:
    """Holds a lock that ends with the process, however it ends; a link in its place is an error."""
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{path.stem}: another process is fetching it; waiting", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _read(path: pathlib.Path, most_bytes: int) -> Arrays:
    """Returns the arrays of a cached file, whose digest is in it."""
    arrays = unpacking.read_npz(path, most_bytes)
    stored = arrays.pop("digest", None)
    if stored is None:
        raise SourceError("it has no digest of its arrays")
    if str(stored) != digest(arrays):
        raise SourceError(f"its arrays are not those that were put there (their digest was {str(stored)[:12]}...)")
    return arrays
