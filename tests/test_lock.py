"""The lock: every package that is installed is held to the hash of its file."""

from __future__ import annotations

import pathlib
import re

import pytest

from tools import lock

ROOT = pathlib.Path(__file__).parent.parent


def test_every_pin_has_a_hash_and_nothing_else_has() -> None:
    pins = lock.read_lock().pins
    assert lock.hash_findings(pins, lock.HASHES.read_text(), "") == []
    assert pins.keys() >= lock.SOURCES


@pytest.mark.parametrize(
    ("requirements", "name", "least"),
    [(lock.NOTEBOOK_REQUIREMENTS, "notebook", 50), (lock.GPU_REQUIREMENTS, "nvidia-cudnn-cu11", 10)],
    ids=["notebook", "gpu"],
)
def test_every_pin_beside_the_lock_has_a_hash(requirements: pathlib.Path, name: str, least: int) -> None:
    pins = lock.read_pins(requirements.read_text())
    assert name in pins and len(pins) >= least
    assert lock.hash_findings(pins, requirements.with_suffix(".lock").read_text(), "") == []


def test_what_is_wrong_with_hashes_is_named() -> None:
    digest = "--hash=sha256:" + 64 * "a"
    text = f"one==1 \\\n    {digest}\ntwo==2\nthree==3 \\\n    {digest} \\\n    {digest}\n"
    assert lock.read_pins(text) == {"one": "1", "two": "2", "three": "3"}
    assert lock.hash_findings({"one": "1", "two": "2"}, text, "FILE") == [
        "no hash: two==2 has none in FILE; run `make lock`",
        "unused: three==3 is in FILE alone; run `make lock`",
    ]
    assert lock.hash_findings({"one": "2"}, text, "FILE")[0] == "no hash: one==2 has none in FILE; run `make lock`"


@pytest.mark.parametrize(
    ("script", "command", "files"),
    [
        ("install.sh", "run_pip", ['"$TMPDIR/builders.txt"', "requirements.lock"]),
        ("gpu.sh", "pip install", ["requirements-gpu.lock"]),
        ("notebook.sh", "pip install", ["requirements-notebook.lock"]),
    ],
)
def test_installing_requires_hashes(script: str, command: str, files: list[str]) -> None:
    text = (ROOT / "tools" / script).read_text().replace("\\\n", " ")
    installs = re.findall(rf"{command} (.*?)-r (\S+)", text)
    assert [file.rstrip(";") for _, file in installs] == files
    assert all("--require-hashes" in arguments.split() for arguments, _ in installs)


def test_setuptools_has_no_known_hole() -> None:
    """CVE-2025-47273, mended in 78.1.1; from 82 on there is no pkg_resources, which tensorboard imports."""
    major, minor, patch = map(int, lock.read_lock().pins["setuptools"].split("."))
    assert (78, 1, 1) <= (major, minor, patch) < (82, 0, 0)


def test_a_pin_without_a_hash_fails_the_check(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setattr(lock, "HASHES", tmp_path / "none.lock")
    with pytest.raises(lock.LockError, match=r"no hash: absl-py==.* has none in none\.lock; run `make lock`"):
        lock.check()
