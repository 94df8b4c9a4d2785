"""Checks and re-creates requirements.txt: `python tools/lock.py check` or `python tools/lock.py write`.

`python tools/lock.py check-gpu` checks requirements-gpu.txt, and installs nothing: that its pins are TensorFlow's own,
and that pip finds them and what they need (where the registry gives no metadata, pip downloads packages for that).

pip cannot resolve this project's requirements (see requirements.txt), so nothing but this file notices a missing, a
superfluous or a clashing pin. It walks the metadata of the installed packages, from the direct dependencies on. The
direct dependencies, above the line `MARKER`, are written by hand; everything below it is written by `write`.
"""

import dataclasses
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REQUIREMENTS = Path(__file__).resolve().parent.parent / "requirements.txt"
GPU_REQUIREMENTS = REQUIREMENTS.with_name("requirements-gpu.txt")
# What TensorFlow asks for on GPUs and can do without; see requirements-gpu.txt.
GPU_OMITTED = {"tensorrt"}
MARKER = "# ===== Everything below is written by `make lock` ====="
PROJECT = "tff-fen"
# Part of a fresh virtual environment, or put there by `make venv`: they need no pin.
UNPINNED = {"pip", "setuptools", "wheel", PROJECT}
# (package, what it requires): why the pin may violate the requirement.
ALLOWED = {
    ("tensorflow-federated", "jax"): "0.4.13 stands in for 0.4.14, to match jaxlib",
    ("tensorflow-federated", "jaxlib"): "0.4.14 is no longer published; 0.4.13 works",
}
_PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;#]+)\s*(#.*)?")


class LockError(Exception):
    """The file or the environment is in no state to work with; the message says what to do."""


@dataclasses.dataclass(frozen=True)
class Lock:
    """The contents of requirements.txt: canonical package names to versions, in the order of the file."""

    head: str  # the text up to and including MARKER
    direct: dict[str, str]
    transitive: dict[str, str]

    @property
    def pins(self) -> dict[str, str]:
        """All pins, direct and transitive."""
        return self.direct | self.transitive


@dataclasses.dataclass(frozen=True)
class Needs:
    """What the direct dependencies need, and what these need in turn."""

    owners: dict[str, str]  # package to the first direct dependency that leads to it
    edges: list[tuple[str, Requirement]]  # (package, one of its requirements)

    def via(self, name: str) -> list[str]:
        """The packages that require `name` themselves."""
        return sorted({by for by, needed in self.edges if canonicalize_name(needed.name) == name and by != name})


def read_pins(text: str) -> dict[str, str]:
    """Reads `name==version` lines."""
    pins: dict[str, str] = {}
    for line in map(str.strip, text.splitlines()):
        if not line or line.startswith("#"):
            continue
        match = _PIN.fullmatch(line)
        if match is None:
            raise LockError(f"requirements.txt: expected name==version, found: {line}")
        name = canonicalize_name(match["name"])
        if name in pins:
            raise LockError(f"requirements.txt: {name} is pinned twice")
        pins[name] = match["version"]
    return pins


def read_lock() -> Lock:
    """Reads requirements.txt."""
    head, marker, tail = REQUIREMENTS.read_text().partition(MARKER + "\n")
    if not marker:
        raise LockError(f"requirements.txt: the line '{MARKER}' is missing; it ends the direct dependencies")
    return Lock(head + marker, read_pins(head), read_pins(tail))


def installed_versions() -> dict[str, str]:
    """The packages in this environment."""
    return {canonicalize_name(each.metadata["Name"]): each.version for each in metadata.distributions()}


def requirements_of(name: str, extra: str) -> list[Requirement]:
    """What an installed package requires on this interpreter; with `extra` "" no extras are taken."""
    try:
        lines = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []
    found = map(Requirement, lines)
    return [each for each in found if each.marker is None or each.marker.evaluate({"extra": extra})]


def walk(direct: dict[str, str]) -> Needs:
    """Follows the requirements from the direct dependencies on, with those extras alone that a requirement names."""
    needs = Needs({name: name for name in direct}, [])
    seen = set()
    for root in direct:
        todo: list[tuple[str, str]] = [(root, "")]
        while todo:
            name, extra = todo.pop(0)
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            needs.owners.setdefault(name, root)
            for needed in requirements_of(name, extra):
                needs.edges.append((name, needed))
                todo += [(canonicalize_name(needed.name), each) for each in ("", *sorted(needed.extras))]
    return needs


def findings(lock: Lock) -> list[str]:
    """What is wrong with the lock, one line each."""
    pins, installed, needs = lock.pins, installed_versions(), walk(lock.direct)
    unpinned = UNPINNED | read_pins(GPU_REQUIREMENTS.read_text()).keys()
    found = []
    allowances = set(ALLOWED)
    for by, requirement in needs.edges:
        needed = canonicalize_name(requirement.name)
        if needed not in pins:
            found.append(f"missing: {needed} is needed by {by}, but not in requirements.txt; run `make lock`")
        elif not requirement.specifier.contains(pins[needed], prereleases=True):
            if (by, needed) not in ALLOWED:
                found.append(f"clash: {by} requires {needed}{requirement.specifier}, but {pins[needed]} is pinned")
            allowances.discard((by, needed))
    twice = lock.direct.keys() & lock.transitive.keys()
    found += [f"twice: {name} is pinned above and below the line; run `make lock`" for name in twice]
    found += [f"unused: nothing needs {name}" for name in pins if name not in needs.owners]
    found += [f"allowed in tools/lock.py for nothing: {by} and {name} agree" for by, name in allowances]
    for name, version in pins.items():
        if name not in installed:
            found.append(f"not installed: {name}=={version}")
        elif installed[name] != version:
            found.append(f"differs: {name}=={version} is pinned, but {installed[name]} is installed")
    found += [
        f"not pinned: {name}=={version} is installed; add it to the direct dependencies, or uninstall it"
        for name, version in installed.items()
        if name not in pins and name not in needs.owners and name not in unpinned
    ]
    return sorted(set(found))


def check() -> None:
    """Prints what is wrong with the lock, or that all is well."""
    lock = read_lock()
    if found := findings(lock):
        raise LockError("\n".join(found))
    print(
        f"requirements.txt is sound: {len(lock.direct)} direct dependencies, {len(lock.transitive)} needed by these, "
        f"{len(ALLOWED)} allowed exceptions"
    )


def write() -> None:
    """Writes the part of requirements.txt below MARKER anew, with the versions that are installed."""
    lock, installed = read_lock(), installed_versions()
    needs = walk(lock.direct)
    absent = {f"{name}=={version}" for name, version in lock.direct.items() if installed.get(name) != version}
    absent |= {
        needed.name + str(needed.specifier)
        for _, needed in needs.edges
        if canonicalize_name(needed.name) not in installed
    }
    if absent:
        # Their metadata is needed to go on; what they need in turn shows next time.
        quoted = " ".join(f"'{each}'" for each in sorted(absent))
        raise LockError(f"not installed; run this, then try again: .venv/bin/python -m pip install --no-deps {quoted}")
    sections = [lock.head]
    for root in lock.direct:
        names = sorted(name for name, owner in needs.owners.items() if owner == root and name not in lock.direct)
        if names:
            pins = "\n".join(f"{name}=={installed[name]}  # via {', '.join(needs.via(name))}" for name in names)
            sections.append(f"\n# Needed by {root}.\n{pins}\n")
    text = "".join(sections)
    if text == REQUIREMENTS.read_text():
        print("requirements.txt is up to date")
    else:
        REQUIREMENTS.write_text(text)
        print("requirements.txt is written anew")


def check_gpu() -> None:
    """Checks requirements-gpu.txt against TensorFlow's metadata, and that pip can resolve it."""
    pins = read_pins(GPU_REQUIREMENTS.read_text())
    plain = {str(each) for each in requirements_of("tensorflow", "")}
    wanted = {
        canonicalize_name(each.name): str(each.specifier).removeprefix("==")
        for each in requirements_of("tensorflow", "and-cuda")
        if str(each) not in plain and canonicalize_name(each.name) not in GPU_OMITTED
    }
    if pins != wanted:
        differing = sorted({*pins.items()} ^ {*wanted.items()})
        raise LockError(f"requirements-gpu.txt differs from tensorflow[and-cuda]: {differing}")
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--only-binary", ":all:"]
    done = subprocess.run([*pip, "--quiet", "-r", str(GPU_REQUIREMENTS)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LockError(
            f"{done.stderr.strip()}\npip cannot resolve requirements-gpu.txt. Without a network it never can: the pins "
            "are TensorFlow's own, that much is checked."
        )
    print(f"requirements-gpu.txt is sound: {len(pins)} pins, all to be had")


def main(arguments: list[str]) -> int:
    """Runs the command that was asked for; returns the exit code."""
    commands = {"check": check, "check-gpu": check_gpu, "write": write}
    if len(arguments) != 1 or arguments[0] not in commands:
        print("usage: lock.py check|check-gpu|write", file=sys.stderr)
        return 2
    try:
        commands[arguments[0]]()
    except LockError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
