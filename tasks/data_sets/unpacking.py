"""Unpacks what a source gave, never to more than a limit: of files, archives, arrays and pictures.

A packed file may be small and hold a thousand times as much. Each function here compares sizes with
`most_bytes` before it unpacks, or while it does, and raises `SourceError` once they are larger. So a
source costs no more memory than the data set that was asked for, times a small number.
"""

from __future__ import annotations

import gzip
import io
import math
import pathlib
import tarfile
import tokenize
import zipfile
import zlib
from collections.abc import Collection
from typing import IO, Any

import numpy as np
from PIL import Image

Arrays = dict[str, np.ndarray]
_KINDS = "biufcSU"  # of arrays: numbers and texts


class SourceError(Exception):
    """A source cannot give the data; the message says why."""


def read_file(path: pathlib.Path, most_bytes: int) -> bytes:
    """Returns the content of a plain file."""
    _check_plain(path)
    with path.open("rb") as file:
        return _read(file, path.name, most_bytes)


def gunzip(content: bytes, name: str, most_bytes: int) -> bytes:
    """Returns what a gzip file holds."""
    try:
        return _read(gzip.GzipFile(fileobj=io.BytesIO(content)), name, most_bytes)
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"{name} cannot be unpacked ({error})") from error


def inflate(content: bytes, name: str, most_bytes: int) -> bytes:
    """Returns what a zlib stream holds."""
    stream = zlib.decompressobj()
    try:
        unpacked = stream.decompress(content, most_bytes + 1)
    except zlib.error as error:
        raise SourceError(f"{name} cannot be unpacked ({error})") from error
    if len(unpacked) > most_bytes:
        raise _too_large(name, None, most_bytes)
    return unpacked


def unzip(path: pathlib.Path, member: str | None, most_bytes: int) -> bytes:
    """Returns one file of a zip archive: `member`, or the first if that is `None`."""
    _check_plain(path)
    try:
        with zipfile.ZipFile(path) as archive:
            if member is None and not archive.namelist():
                raise SourceError(f"{path.name} is empty")
            info = archive.infolist()[0] if member is None else archive.getinfo(member)
            with _open_member(archive, info, most_bytes) as file:
                return _read(file, info.filename, most_bytes)
    except (zipfile.BadZipFile, KeyError, NotImplementedError, RuntimeError, EOFError, zlib.error) as error:
        raise SourceError(f"{path.name} does not hold {member or 'a file'} as expected ({error})") from error


def untar(path: pathlib.Path, members: Collection[str], most_bytes: int) -> dict[str, bytes]:
    """Returns files of a gzipped tar archive that, with all that it holds, unpacks to at most `most_bytes`."""
    found: dict[str, bytes] = {}
    _check_plain(path)
    try:
        with gzip.open(path) as file:
            bounded: Any = _Bounded(file, path.name, most_bytes)  # has all of a file that a stream needs
            tar = tarfile.open(fileobj=bounded, mode="r|")  # noqa: SIM115
            for entry in tar:
                if entry.name in members and entry.isreg():
                    if entry.size > most_bytes:
                        raise _too_large(entry.name, entry.size, most_bytes)
                    content = tar.extractfile(entry)
                    assert content is not None  # it is a regular file
                    found[entry.name] = content.read()
                if len(found) == len(members):
                    return found
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError) as error:
        raise SourceError(f"{path.name} cannot be unpacked ({error})") from error
    raise SourceError(f"{path.name} has no file {min(set(members) - set(found))}")


def read_npy(path: pathlib.Path, most_bytes: int) -> np.ndarray:
    """Returns the array of an npy file."""
    return _read_array(io.BytesIO(read_file(path, most_bytes)), path.name, most_bytes)


def read_npz(file: pathlib.Path | IO[bytes], most_bytes: int) -> Arrays:
    """Returns the arrays of an npz file, which together have at most `most_bytes`."""
    arrays: Arrays = {}
    if isinstance(file, pathlib.Path):
        _check_plain(file)
    try:
        with zipfile.ZipFile(file) as archive:
            for info in archive.infolist():
                with _open_member(archive, info, most_bytes) as member:
                    array = _read_array(member, info.filename, most_bytes)
                most_bytes -= array.nbytes
                arrays[info.filename.removesuffix(".npy")] = array
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error, OSError) as error:
        raise SourceError(f"it cannot be read ({type(error).__name__})") from error
    return arrays


def picture(content: bytes, name: str, kind: str, most_pixels: int) -> np.ndarray:
    """Returns a picture as uint8: [height, width] if it is grey, else [height, width, 3].

    Args:
      content: of the file.
      name: for messages.
      kind: the format it has to have, as Pillow names it: no other decoder sees the content.
      most_pixels: how many there may be.
    """
    try:
        with Image.open(io.BytesIO(content), formats=[kind]) as image:
            if image.width * image.height > most_pixels:
                raise SourceError(f"{name} has {image.width} x {image.height} pixels, more than {most_pixels}")
            return np.asarray(image if image.mode == "L" else image.convert("RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise SourceError(f"{name} is no {kind} picture that can be read ({error})") from error


def _check_plain(path: pathlib.Path) -> None:
    if path.exists() and not path.is_file():  # a pipe would make its reader wait
        raise SourceError(f"{path.name} is no plain file")


class _Bounded:
    """The first `most_bytes` of what a gzip file holds; an error after them."""

    def __init__(self, file: gzip.GzipFile, name: str, most_bytes: int) -> None:
        self._file, self._name, self._most = file, name, most_bytes

    def read(self, size: int) -> bytes:
        """Returns `size` bytes, or fewer at the end."""
        content = self._file.read(size)
        if self._file.tell() > self._most:
            raise _too_large(self._name, None, self._most)
        return content


def _open_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, most_bytes: int) -> IO[bytes]:
    # Python's other decompressors, of bzip2 and LZMA, know no limit.
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise SourceError(f"{info.filename} is packed in another way than zip's usual one")
    if info.file_size > most_bytes:
        raise _too_large(info.filename, info.file_size, most_bytes)
    return archive.open(info)


def _read(file: IO[bytes] | gzip.GzipFile, name: str, most_bytes: int) -> bytes:
    content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise _too_large(name, None, most_bytes)
    return content


def _read_array(file: IO[bytes], name: str, most_bytes: int) -> np.ndarray:
    """Reads an npy file. What its header says is compared with the limit before anything is allocated."""
    try:
        headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, in_fortran_order, dtype = headers[np.lib.format.read_magic(file)](file)
        size = math.prod(shape) * dtype.itemsize
        if dtype.kind not in _KINDS or size < 0 or not dtype.itemsize:
            raise SourceError(f"{name} holds {dtype} of shape {shape}, no array of numbers")
        if size > most_bytes:
            raise _too_large(name, size, most_bytes)
        content = bytearray(size)  # its array can be written to
        filled = 0
        while filled < size:
            piece = file.read(min(size - filled, 2**20))
            if not piece:
                raise SourceError(f"{name} ends too early")
            content[filled : filled + len(piece)] = piece
            filled += len(piece)
        return np.ndarray(shape, dtype, content, order="F" if in_fortran_order else "C")
    except (
        KeyError, ValueError, TypeError, SyntaxError, OverflowError, RecursionError, MemoryError, tokenize.TokenError,
    ) as error:  # fmt: skip
        raise SourceError(f"{name} is no array that can be read ({error})") from error


def _too_large(name: str, size: int | None, most_bytes: int) -> SourceError:
    found = "unpacks to more than" if size is None else f"has {size} bytes, more than"
    return SourceError(f"{name} {found} the {most_bytes} bytes that it may have")
