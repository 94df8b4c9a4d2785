"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import pathlib


def write_whole(path: pathlib.Path, content: bytes) -> None:
    """Writes a file so that it is there whole or not at all."""
    new = path.with_name(f".{path.name}.new")
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
