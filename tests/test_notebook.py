"""`make notebook`: what it says, what it installs, what it starts; Jupyter itself is stood in for."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
# Stands in for .venv's Python: `-m venv` makes an environment whose Python writes down what it is asked for.
STAND_IN = """#!/bin/sh
if [ "$2" = venv ]; then
  mkdir -p "$3/bin"
  printf '%s\\n' '#!/bin/sh' 'echo "$@" >>calls.txt' 'exit "${FAILS:-0}"' >"$3/bin/python"
  chmod +x "$3/bin/python"
fi
"""


@pytest.fixture
def checkout(tmp_path: pathlib.Path) -> pathlib.Path:
    """A checkout in which `.venv` is there and nothing can be downloaded."""
    folder = tmp_path / "with a space"
    for name in ("tools/notebook.sh", "requirements-notebook.lock"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(STAND_IN)
    python.chmod(0o755)
    (folder / "my.ipynb").write_text("{}")
    return folder


def open_notebook(checkout: pathlib.Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(checkout / "tools" / "notebook.sh"), *arguments]
    path = {"PATH": "/usr/bin:/bin"}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=path | environment)


def test_jupyter_is_installed_once_by_hash_and_its_kernel_is_this_checkouts(checkout: pathlib.Path) -> None:
    for _ in range(2):
        done = open_notebook(checkout, "my.ipynb", "--no-browser", "--port=1")
        assert done.returncode == 0, done.stderr
    install, *started = (checkout / "calls.txt").read_text().splitlines()
    assert "--require-hashes -r requirements-notebook.lock" in install and "--no-deps" in install
    assert started == 2 * ["-Im notebook --ip=127.0.0.1 my.ipynb --no-browser --port=1"]
    kernel = checkout / ".venv-notebook" / "share" / "jupyter" / "kernels" / "python3" / "kernel.json"
    spec = json.loads(kernel.read_text())
    assert spec["argv"][0] == str(checkout / ".venv" / "bin" / "python")
    assert spec["env"]["PYTHONPATH"] == str(checkout)


def test_an_install_that_failed_is_made_anew(checkout: pathlib.Path) -> None:
    done = open_notebook(checkout, "my.ipynb", FAILS="1")
    assert done.returncode == 1 and done.stderr.endswith("notebook: pip failed; see .venv-notebook/install.log\n")
    assert open_notebook(checkout, "my.ipynb").returncode == 0
    assert [call.split()[1] for call in (checkout / "calls.txt").read_text().splitlines()] == ["pip", "pip", "notebook"]


def test_what_is_missing_is_said_before_anything_is_installed(checkout: pathlib.Path) -> None:
    assert "notebook: which notebook?" in open_notebook(checkout).stderr
    assert "notebook: there is no notebook other.ipynb in" in open_notebook(checkout, "other.ipynb").stderr
    shutil.rmtree(checkout / ".venv")
    assert ".venv is not there; run make venv first" in open_notebook(checkout, "my.ipynb").stderr
    assert not (checkout / ".venv-notebook").exists()


def test_make_lists_it_and_clean_removes_it() -> None:
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert "make notebook " in listed.stdout
    would = subprocess.run(["make", "-n", "clean"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert ".venv-notebook" in would.stdout
    ignored = subprocess.run(["git", "check-ignore", "-q", ".venv-notebook/x"], cwd=ROOT, timeout=60, check=False)
    assert ignored.returncode == 0 or not (ROOT / ".git").exists()


def test_the_kernels_packages_are_in_the_environment() -> None:
    """The kernel runs in .venv, not in Jupyter's environment."""
    done = subprocess.run(
        [sys.executable, "-c", "import ipykernel_launcher"], cwd=ROOT, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
