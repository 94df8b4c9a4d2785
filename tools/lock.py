"""Checks and re-creates requirements.txt: `python tools/lock.py check` or `python tools/lock.py write`.

`python tools/lock.py check-gpu` checks requirements-gpu.txt, and installs nothing: that its pins are TensorFlow's own,
and that pip finds them and what they need (where the registry gives no metadata, pip downloads packages for that).

pip cannot resolve this project's requirements (see requirements.txt), so nothing but this file notices a missing, a
superfluous or a clashing pin. It walks the metadata of the installed packages, from the direct dependencies on. `write`
also writes requirements.lock, which is what is installed: the same pins, each with the SHA-256 of its files; pip is
asked for those of pins that are not in there yet. requirements-notebook.txt and requirements-gpu.txt have theirs. The
direct dependencies, above the line `MARKER`, are written by hand; everything below it is written by `write`.
"""

import dataclasses
import json
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REQUIREMENTS = Path(__file__).resolve().parent.parent / "requirements.txt"
HASHES = REQUIREMENTS.with_suffix(".lock")
# Jupyter's own environment; see tools/notebook.sh.
NOTEBOOK_REQUIREMENTS = REQUIREMENTS.with_name("requirements-notebook.txt")
GPU_REQUIREMENTS = REQUIREMENTS.with_name("requirements-gpu.txt")
# What is pinned by hand beside requirements.txt; each has a file of hashes.
EXTRA_REQUIREMENTS = (NOTEBOOK_REQUIREMENTS, GPU_REQUIREMENTS)
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
# To be had as source alone: pip runs their setup.py. Everything else is a wheel, of which nothing runs.
SOURCES = {"jax", "promise", "sqlalchemy"}
# The oldest C library that TFF's wheel is for. With a newer one pip may take another file of the same version.
_OLDEST_GLIBC = 31
_PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;#]+)\s*(#.*)?")
_HASH = re.compile(r"\\\n\s+--hash=sha256:([0-9a-f]{64})")
_HASHES_HEAD = """\
# Written by `make lock`: the pins of {requirements}, each with the SHA-256 of its wheels for Linux x86_64, or of its
# source (of those named in tools/lock.py).
# Install: pip install --no-deps --require-hashes -r {lock}
"""


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


def read_hashes(text: str) -> dict[str, list[str]]:
    """The SHA-256 digests of each `name==version` that has some."""
    found = {}
    for pin in re.finditer(rf"^([^\s#]+==[^\s\\]+) ((?:{_HASH.pattern}\s*?)+)$", text, re.MULTILINE):
        found[pin[1]] = _HASH.findall(pin[2])
    return found


def read_pins(text: str) -> dict[str, str]:
    """Reads `name==version` lines, with or without hashes."""
    pins: dict[str, str] = {}
    for line in map(str.strip, _HASH.sub("", text).splitlines()):
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


def hash_findings(pins: dict[str, str], text: str, file: str) -> list[str]:
    """What is wrong with a file of hashes, one line each."""
    wanted, hashed = {f"{name}=={version}" for name, version in pins.items()}, read_hashes(text)
    there = {f"{name}=={version}" for name, version in read_pins(text).items()}
    found = [f"no hash: {pin} has none in {file}; run `make lock`" for pin in wanted - hashed.keys()]
    return sorted(found + [f"unused: {pin} is in {file} alone; run `make lock`" for pin in there - wanted])


def fetch_hashes(pins: list[str]) -> dict[str, list[str]]:
    """The SHA-256 of the files that pip would install here, and with the oldest C library that TFF runs with.

    pip names the files and their digests as the registry has them; nothing is installed.
    """
    by_source = [pin for pin in pins if pin.partition("==")[0] in SOURCES]
    wheels = [pin for pin in pins if pin not in by_source]
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in range(_OLDEST_GLIBC, 4, -1)]
    platforms += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"]
    abis = [f"--abi={abi}" for abi in ("cp311", "abi3", "none")]
    oldest = ["--target=.", "--only-binary=:all:", "--python-version=3.11", "--implementation=cp", *abis]
    hashes: dict[str, set[str]] = {pin: set() for pin in pins}
    for options, chosen in (
        (["--only-binary=:all:"], wheels),
        ([*oldest, *(f"--platform={platform}" for platform in platforms)], wheels),
        (["--no-binary=:all:"], by_source),
    ):
        for name, version, digest in _report(options, chosen):
            hashes[f"{canonicalize_name(name)}=={version}"].add(digest)
    return {pin: sorted(digests) for pin, digests in hashes.items()}


def _report(options: list[str], pins: list[str]) -> list[tuple[str, str, str]]:
    """Name, version and SHA-256 of what pip would install."""
    if not pins:
        return []
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet"]
    with tempfile.TemporaryDirectory() as folder:
        command = [*pip, "--no-build-isolation", "--report=report.json", *options, *pins]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LockError(f"{done.stderr.strip()}\npip cannot tell the hashes of {', '.join(pins)}")
        report = json.loads(Path(folder, "report.json").read_text())
    return [
        (of["name"], of["version"], each["download_info"]["archive_info"]["hashes"]["sha256"])
        for each in report["install"]
        for of in [each["metadata"]]
    ]


def write_hashes(pins: dict[str, str], file: Path) -> None:
    """Writes a file of hashes; keeps what it has, and asks pip for the hashes of the other pins."""
    known = read_hashes(file.read_text()) if file.exists() else {}
    wanted = [f"{name}=={version}" for name, version in sorted(pins.items())]
    known |= fetch_hashes([pin for pin in wanted if pin not in known])
    lines = [" \\\n    ".join([pin, *(f"--hash=sha256:{digest}" for digest in known[pin])]) for pin in wanted]
    file.write_text(
        _HASHES_HEAD.format(requirements=file.with_suffix(".txt").name, lock=file.name) + "\n".join(lines) + "\n"
    )


def check() -> None:
    """Prints what is wrong with the lock, or that all is well."""
    lock = read_lock()
    found = findings(lock)
    extra = [(read_pins(file.read_text()), file.with_suffix(".lock")) for file in EXTRA_REQUIREMENTS]
    for pins, file in ((lock.pins, HASHES), *extra):
        found += hash_findings(pins, file.read_text() if file.exists() else "", file.name)
    if found:
        raise LockError("\n".join(found))
    print(
        f"requirements.txt is sound: {len(lock.direct)} direct dependencies, {len(lock.transitive)} needed by these, "
        f"{len(ALLOWED)} allowed exceptions, all with hashes; only as source: {', '.join(sorted(SOURCES))}"
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
    write_hashes(read_lock().pins, HASHES)
    for file in EXTRA_REQUIREMENTS:
        write_hashes(read_pins(file.read_text()), file.with_suffix(".lock"))


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
