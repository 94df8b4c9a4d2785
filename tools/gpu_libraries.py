"""Checks that the libraries of requirements-gpu.txt are where TensorFlow looks for them, and that they load.

    python tools/gpu_libraries.py [FOLDER]

FOLDER is what the packages were installed into, by default that of this Python. No GPU and no driver are needed. Each
library is loaded in the order in which it needs the others, as TensorFlow's own loader does it.
"""

from __future__ import annotations

import ctypes
import pathlib
import sys
import sysconfig

# TensorFlow 2.14 finds these by the paths that are built into it, relative to its own folder.
LIBRARIES = (
    ("cuda_runtime", "libcudart.so.11.0"),
    ("cublas", "libcublasLt.so.11"),
    ("cublas", "libcublas.so.11"),
    ("cufft", "libcufft.so.10"),
    ("cusparse", "libcusparse.so.11"),
    ("cusolver", "libcusolver.so.11"),
    ("cudnn", "libcudnn.so.8"),
)


def find_missing(site: pathlib.Path) -> list[str]:
    """Returns a line for each library that is not there or does not load."""
    found = []
    for folder, name in LIBRARIES:
        file = site / "nvidia" / folder / "lib" / name
        if not file.is_file():
            found.append(f"{name}: {file} does not exist")
            continue
        try:
            ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            found.append(f"{name}: {error}")
    return found


def main(arguments: list[str]) -> int:
    """Prints what is missing; returns the exit code."""
    site = pathlib.Path(arguments[0] if arguments else sysconfig.get_path("purelib"))
    missing = find_missing(site)
    print("\n".join(missing) or f"all {len(LIBRARIES)} libraries that TensorFlow needs for GPUs load")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
