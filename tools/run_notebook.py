"""Executes a notebook and stores its outputs in it: `python tools/run_notebook.py docs/quickstart.ipynb`.

As `jupyter-execute --inplace` does, but so that the file differs only where its cells or their results do: no times of
execution, each stream in one piece, and cells that import this checkout's packages, whatever is installed.
"""

import os
import sys
from pathlib import Path
from typing import Any

import nbclient
import nbformat

ROOT = Path(__file__).resolve().parent.parent
CELL_SECONDS = 600


def execute(path: Path) -> Any:
    """Returns the notebook at `path` with fresh outputs; raises `nbclient.exceptions.CellExecutionError`."""
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        coalesce_streams=True,
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    search_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    client.execute(env={**os.environ, "PYTHONPATH": search_path})
    # Which Python executed it is the environment's business.
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def main(arguments: list[str]) -> int:
    """Executes the notebooks that are named; returns the exit code."""
    if not arguments:
        print("usage: run_notebook.py NOTEBOOK...", file=sys.stderr)
        return 2
    for path in map(Path, arguments):
        try:
            nbformat.write(execute(path), path)
        except nbclient.exceptions.CellExecutionError as error:
            print(f"{path}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
