"""`make audit`: what it says and exits with; pip-audit itself is stood in for."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PIP_AUDIT = """#!/bin/sh
echo "$@" >arguments.txt
printf '%s\\n' "$FOUND"
printf '%s\\n' "$SAID" >&2
exit "$STATUS"
"""


@pytest.mark.parametrize(
    ("status", "found", "said", "code", "answer"),
    [
        (0, "", "No known vulnerabilities found", 0, "audit: no known vulnerability in 2 packages"),
        (1, "one 1 CVE-1", "Found 1 known vulnerability in 1 package", 1, "one 1 CVE-1\nFound 1 known vulnerability"),
        (1, "", "ConnectionError", 2, "audit: not checked: the database of vulnerabilities cannot be reached"),
        (124, "", "", 2, "audit: not checked: the database of vulnerabilities cannot be reached"),
        (0, "one could not be audited", "", 2, "the database of vulnerabilities does not know 1 of 2"),
    ],
    ids=["none", "one", "no network", "too long", "no database"],
)
def test_an_audit_that_was_not_made_is_no_good_news(
    tmp_path: pathlib.Path, status: int, found: str, said: str, code: int, answer: str
) -> None:
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "audit.sh", tmp_path / "tools")
    (tmp_path / "requirements.lock").write_text("one==1\ntwo==2\n")
    programs = tmp_path / ".venv-audit" / "bin"
    programs.mkdir(parents=True)
    for name, text in (("python", "#!/bin/sh\n"), ("pip-audit", PIP_AUDIT)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    done = subprocess.run(
        ["bash", "tools/audit.sh"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        env={"PATH": "/usr/bin:/bin", "STATUS": str(status), "FOUND": found, "SAID": said},
    )  # fmt: skip
    assert done.returncode == code and answer in done.stdout + done.stderr, done
    assert "--requirement requirements.lock --require-hashes" in (tmp_path / "arguments.txt").read_text()


def test_without_a_registry_nothing_is_checked(tmp_path: pathlib.Path) -> None:
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "audit.sh", tmp_path / "tools")
    done = subprocess.run(
        ["bash", "tools/audit.sh"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHON": "false"},
    )  # fmt: skip
    assert done.returncode == 2 and "audit: not checked: false -m venv failed" in done.stderr
