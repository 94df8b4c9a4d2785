"""Shakespeare's speaking roles as clients that predict the next character: LEAF's preparation from the raw text.

The text is the 1994 Project Gutenberg edition of the complete works. Every role of every
play is a client; its lines are joined, and each window of 80 characters is an input
whose label is the character that follows. A window is never stored: a role is one
array of character numbers, and windows are views of it, so that the whole data set
takes 4 MB instead of 340.

As in LEAF: names of roles are compared in upper case, roles of at most two lines are left
out, line ends and runs of spaces count as one space, and the vocabulary has 80 characters.
"""

from __future__ import annotations

import pathlib
import re
from typing import NamedTuple

import numpy as np

from tasks.data_sets import downloads, sources, unpacking
from tff_fen.checks import check_integer

WINDOW = 80
"""Characters in an input."""

VOCABULARY = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""LEAF's characters; a character's number is its place here."""

DIGEST = "5dcde7dc99cb3c03c672e4b7f538a86b9ef87817b61eda8f44c66fab318cbef2"
"""Of the text, 5 458 199 bytes, as an array."""

NUM_TRAIN, NUM_TEST = 2000, 400
"""Windows a client has for training and for the test set, as in FedDyn's code."""

_AUTHOR = "by William Shakespeare"
_TITLE_LINES = range(2, 8)  # how far above the author's line a title may stand
_MIN_LINES = 3
_TRAIN_SHARE = 0.8
_MOST_BYTES = 8_000_000  # of the text
_URL = "http://www.gutenberg.org/files/100/old/1994-01-100.zip"
_NUMBERS = np.full(256, 255, np.uint8)
_NUMBERS[np.frombuffer(VOCABULARY.encode("ascii"), np.uint8)] = np.arange(len(VOCABULARY))


class _Layout(NamedTuple):
    """How a play is typeset: a line that starts a speech (role, words), one that goes on with it (words), no speech."""

    speech: re.Pattern[str]
    continuation: re.Pattern[str]
    nobody: re.Pattern[str]


_USUAL = _Layout(re.compile(r"  ([a-zA-Z][a-zA-Z ]*)\. (.*)"), re.compile(r"    (.*)"), re.compile(r"(?!)"))
# One play lacks the indentation; there, headings of acts look like roles, and the publisher's notice like speech.
_UNINDENTED = _Layout(
    re.compile(r"([a-zA-Z][a-zA-Z ]*)\. (.*)"), re.compile(r"(.*)"), re.compile(r"ACT [a-zA-Z ]*\. |<", re.IGNORECASE)
)
_UNINDENTED_PLAY = "THE COMEDY OF ERRORS"


class Roles(NamedTuple):
    """The speaking roles.

    Attributes:
      names: `(play, role)`, in the order of their first words.
      texts: the numbers of each role's characters, uint8; more than `WINDOW` of them.
    """

    names: list[tuple[str, str]]
    texts: list[np.ndarray]

    def num_windows(self) -> np.ndarray:
        """How many examples each role has."""
        return np.array([len(text) - WINDOW for text in self.texts])


def load(places: sources.Places) -> Roles:
    """Returns the roles, from `data_dir` with `t8.shakespeare.txt` (or `.gz`), or from Project Gutenberg."""
    candidates = [*places.data_dir_source(_from_folder), sources.Source("Project Gutenberg, 1994 edition", _from_web)]
    text = sources.load("shakespeare", candidates, DIGEST, places)["text"]
    return parse(text.tobytes().decode("ascii"))


def parse(text: str) -> Roles:
    """Returns the roles of a text in the layout of the 1994 edition."""
    lines = text.splitlines()[1:]
    starts = [i for i, line in enumerate(lines) if _AUTHOR in line]
    spoken: dict[tuple[str, str], list[str]] = {}
    # The first author's line is that of the sonnets.
    for start, end in zip(starts[1:], [*starts[2:], len(lines)], strict=True):
        title = next((lines[start - n].strip() for n in _TITLE_LINES if lines[start - n].strip()), "untitled")
        speeches = _speeches(lines[start + 1 : end], _UNINDENTED if title == _UNINDENTED_PLAY else _USUAL)
        if len(speeches) > 1:  # a poem has no roles
            spoken |= {(title, role): words for role, words in speeches.items() if len(words) >= _MIN_LINES}
    roles = Roles([], [])
    for name, words in spoken.items():
        joined = re.sub(" {2,}", " ", " ".join(words) + " ")
        numbers = _NUMBERS[np.frombuffer(joined.encode("ascii", "replace"), np.uint8)]
        if numbers.size and numbers.max() == 255:
            raise sources.SourceError(f"{name} speaks a character outside the vocabulary")
        if len(numbers) > WINDOW:
            roles.names.append(name)
            roles.texts.append(numbers)
    return roles


def windows(text: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the inputs int32 [n, 80] and labels int32 [n] of the windows of a role that begin at `starts`."""
    views = np.lib.stride_tricks.sliding_window_view(text, WINDOW + 1)[starts]
    return views[:, :WINDOW].astype(np.int32), views[:, WINDOW].astype(np.int32)


def num_train_windows(num_windows: np.ndarray) -> np.ndarray:
    """How many of a role's windows, its first, are for training. The test windows start 79 later: none overlaps."""
    return np.maximum(1, (_TRAIN_SHARE * num_windows).astype(np.int64))


class Windows(NamedTuple):
    """Windows by the role and the place they begin at.

    Attributes:
      role: int32 [n].
      start: int32 [n].
    """

    role: np.ndarray
    start: np.ndarray

    def read(self, roles: Roles) -> tuple[np.ndarray, np.ndarray]:
        """Returns inputs int32 [n, 80] and labels int32 [n]."""
        x, y = np.empty((len(self.role), WINDOW), np.int32), np.empty(len(self.role), np.int32)
        for role in np.unique(self.role):
            chosen = self.role == role
            x[chosen], y[chosen] = windows(roles.texts[role], self.start[chosen])
        return x, y


def split_natural(roles: Roles, num_clients: int = 100, seed: int = 0) -> tuple[list[Windows], Windows]:
    """Makes clients of roles: of those with more than 2000 training and 400 test windows, `num_clients` at random.

    Each has 2000 consecutive training windows from a random place on; the test set has 400
    of each. As in FedDyn's code, but that test windows here share no character with
    training windows.

    Returns:
      The clients' training windows, and the test windows.
    """
    total = roles.num_windows()
    train = num_train_windows(total)
    eligible = np.flatnonzero((train > NUM_TRAIN) & (total - train - (WINDOW - 1) > NUM_TEST))
    check_integer("num_clients", num_clients, 1, len(eligible))
    rng = np.random.default_rng((seed, 4))
    clients, tests = [], []
    for role in np.sort(rng.permutation(eligible)[:num_clients]):
        first = rng.integers(train[role] - NUM_TRAIN)
        clients.append(_run_of_windows(role, first, NUM_TRAIN))
        begin = train[role] + WINDOW - 1
        tests.append(_run_of_windows(role, begin + rng.integers(total[role] - begin - NUM_TEST), NUM_TEST))
    return clients, Windows(*map(np.concatenate, zip(*tests, strict=True)))


def split_iid(roles: Roles, num_clients: int = 11, seed: int = 0) -> tuple[list[Windows], Windows]:
    """Deals windows of all roles at random to `num_clients` clients, 2000 each, and 400 each to the test set.

    (LEAF's IID variant makes 11 clients: a hundredth of the number of roles.)
    """
    total = roles.num_windows()
    train = num_train_windows(total)
    rng = np.random.default_rng((seed, 5))

    def draw(first: np.ndarray, count: np.ndarray, number: int) -> Windows:
        """Returns `number` different windows out of `count[role]` of each role, the first of which is `first[role]`."""
        ends = np.cumsum(count)
        chosen = rng.choice(ends[-1], number, replace=False)
        role = np.searchsorted(ends, chosen, side="right")
        return Windows(role.astype(np.int32), (first[role] + chosen - (ends - count)[role]).astype(np.int32))

    gap = np.minimum(train + WINDOW - 1, total)
    check_integer("num_clients", num_clients, 1, int(min(train.sum() // NUM_TRAIN, (total - gap).sum() // NUM_TEST)))
    drawn = draw(np.zeros_like(train), train, num_clients * NUM_TRAIN)
    tests = draw(gap, total - gap, num_clients * NUM_TEST)
    parts = zip(np.split(drawn.role, num_clients), np.split(drawn.start, num_clients), strict=True)
    return [Windows(*part) for part in parts], tests


def _run_of_windows(role: int, first: int, number: int) -> Windows:
    return Windows(np.full(number, role, np.int32), np.arange(first, first + number, dtype=np.int32))


def _speeches(lines: list[str], layout: _Layout) -> dict[str, list[str]]:
    """Returns each role's lines."""
    spoken: dict[str, list[str]] = {}
    role = None
    for line in lines:
        if layout.nobody.match(line):
            role = None
        elif speech := layout.speech.match(line):
            role = speech[1].upper()
            spoken.setdefault(role, []).append(speech[2])
        elif role and (words := layout.continuation.match(line)):
            spoken[role].append(words[1])
    return spoken


def _from_folder(folder: pathlib.Path) -> sources.Arrays:
    packed, plain = folder / "t8.shakespeare.txt.gz", folder / "t8.shakespeare.txt"
    if packed.exists():
        return _arrays(unpacking.gunzip(unpacking.read_file(packed, _MOST_BYTES), packed.name, _MOST_BYTES))
    if plain.exists():
        return _arrays(unpacking.read_file(plain, _MOST_BYTES))
    raise sources.SourceError("t8.shakespeare.txt.gz is missing there")


def _from_web(folder: pathlib.Path) -> sources.Arrays:
    archive = folder / "shakespeare.zip"
    downloads.download_url(_URL, archive, _MOST_BYTES)
    return _arrays(unpacking.unzip(archive, None, _MOST_BYTES))


def _arrays(text: bytes) -> sources.Arrays:
    return {"text": np.frombuffer(text.replace(b"\r\n", b"\n"), np.uint8)}
