"""What a user sees of a running experiment, and how they stop it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tqdm
from absl import logging

from experiments import columns

_SECONDS_BETWEEN_LINES = 10.0
# Short enough for 80 columns: tqdm cuts off what does not fit, and its own format has accuracy at the end.
_BAR = "{desc}: {n_fmt}/{total_fmt} |{bar}| {remaining} left{postfix}"


def say(text: str) -> None:
    """Prints a line of what is being done, with the time."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Progress:
    """A bar on a terminal; in a log a line now and then."""

    def __init__(self, name: str, done: int, rounds: int, bytes_so_far: int, quiet: bool) -> None:
        self._name, self._rounds, self._bytes = name, rounds, bytes_so_far
        terminal = sys.stderr.isatty() and not quiet
        self._bar = tqdm.tqdm(
            total=rounds, initial=done, desc=name, bar_format=_BAR, dynamic_ncols=True, disable=not terminal
        )
        self._lines = not terminal and not quiet
        self._next = 0.0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: Any) -> None:
        self._bar.close()

    def show(self, row: Mapping[str, Any]) -> None:
        """Shows a round."""
        self._bytes += columns.bytes_sent(row)
        number = row[columns.ROUND.name]
        lost, participants = row.get(columns.NON_FINITE.name), row.get(columns.PARTICIPANTS.name)
        if lost is not None and lost == participants:
            logging.log_first_n(
                logging.WARNING, "round %d: no client is finite; is the learning rate too high?", 1, number
            )
        accuracy = columns.best_accuracy(row)
        text = f"{accuracy:.2%}" if accuracy is not None else "-"
        sent = f"{self._bytes / 1e6:.2f} MB" if any(map(columns.is_sent, row)) else "-"
        self._bar.set_postfix_str(f"accuracy {text}, {sent}", refresh=False)
        self._bar.update()
        if self._lines and (time.monotonic() >= self._next or number == self._rounds):
            self._next = time.monotonic() + _SECONDS_BETWEEN_LINES
            loss = row.get(columns.LOSS.name)
            say(
                f"{self._name}: round {number}/{self._rounds} accuracy {text} "
                f"loss {'-' if loss is None else f'{loss:.4f}'} sent {sent}"
            )


class Interruption:
    """Whether the user has asked to stop: the first Ctrl-C (or SIGTERM) sets it, the second stops at once.

    Attributes:
      requested: whether they have.
      doing: what is finished first, for the user to read.
    """

    def __init__(self) -> None:
        self.requested = False
        self.doing = ""

    @contextmanager
    def watched(self) -> Iterator[Interruption]:
        """Handles the signals within the block; elsewhere than in the main thread there are none."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return

        def handle(number: int, frame: Any) -> None:
            if self.requested:
                raise KeyboardInterrupt
            self.requested = True
            # Not print, which may be what the signal has interrupted.
            os.write(
                2, f"\n{f'finishing {self.doing}' if self.doing else 'stopping'}; press again to stop now\n".encode()
            )

        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def print_table(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Prints what the experiments came to; factors are against sending every element as float32."""
    width = max(len("run"), *map(len, results))
    print(
        f"\n{'run':{width}} {'rounds':>6} {'accuracy':>8} {'non-zeros sent':>14} {'x fewer':>8} "
        f"{'MB sent':>8} {'x fewer':>8}"
    )
    for name, result in results.items():
        if not result["rounds"]:
            print(f"{name:{width}} {0:>6}")
            continue
        accuracy = columns.best_accuracy(result)
        sent = columns.bytes_sent(result)
        dense, count = result.get("dense_elements"), result.get("non_zeros")
        ratios = ((dense, count), (4 * (dense or 0), sent))
        fewer = [f"{a / b:.2f}" if a and b else "-" for a, b in ratios]
        non_zeros = "not measured" if count is None else f"{count:,}"
        # "-" where nobody could count what was sent.
        megabytes = f"{sent / 1e6:.2f}" if any(map(columns.is_sent, result)) else "-"
        print(
            f"{name:{width}} {result['rounds']:>6} {'-' if accuracy is None else f'{accuracy:.2%}':>8} "
            f"{non_zeros:>14} {fewer[0]:>8} {megabytes:>8} {fewer[1]:>8}"
        )
        if columns.EPSILON.name in result:
            least = "at least " if columns.LOWER_BOUND.name in result else ""
            print(f"{'':{width}} privacy spent: epsilon {least}{result[columns.EPSILON.name]:.3f}")
