"""Ways to cut a 32-bit number into a symbol, worth a place in a histogram, and extra bits, sent as they are."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import numpy as np


class Split(Protocol):
    """Cuts `uint32` numbers in two; all methods work elementwise on arrays, symbols are `int64`."""

    def symbols(self, values: np.ndarray) -> np.ndarray: ...

    def widths(self, symbols: np.ndarray) -> np.ndarray:
        """int64, 0 to 32: how many extra bits follow each symbol."""

    def extra(self, values: np.ndarray, symbols: np.ndarray) -> np.ndarray:
        """uint64, below `2 ** widths(symbols)`."""

    def join(self, symbols: np.ndarray, extra: np.ndarray) -> np.ndarray:
        """uint64 numbers; those of symbols that no uint32 has may be 2^32 or more."""


@dataclasses.dataclass(frozen=True)
class Leading(Split):
    """The place of the leading one and the `bits` bits after it are the symbol: numbers below `2^(bits + 1)` exactly.

    Fits numbers whose logarithm is what matters: gaps, magnitudes, counts.
    """

    bits: int

    def symbols(self, values: np.ndarray) -> np.ndarray:
        if values.max() >> self.bits + 1 == 0:
            return values.astype(np.int64)
        # The exponent of a float64 is the place of the leading one, exactly, for all numbers below 2^53.
        place = (values.astype(np.float64).view(np.int64) >> 52) - 1023
        width = np.maximum(place - self.bits, 0)
        return (width << self.bits) + (values >> width.astype(np.uint32))

    def widths(self, symbols: np.ndarray) -> np.ndarray:
        return np.maximum((symbols >> self.bits) - 1, 0)

    def extra(self, values: np.ndarray, symbols: np.ndarray) -> np.ndarray:
        return values & ((np.uint64(1) << self.widths(symbols).astype(np.uint64)) - np.uint64(1))

    def join(self, symbols: np.ndarray, extra: np.ndarray) -> np.ndarray:
        width = self.widths(symbols)
        return ((symbols - (width << self.bits)) << width).astype(np.uint64) + extra


@dataclasses.dataclass(frozen=True)
class High(Split):
    """All but the lowest `shift` bits are the symbol; with 0 the symbol is the number itself."""

    shift: int

    def symbols(self, values: np.ndarray) -> np.ndarray:
        return (values >> np.uint32(self.shift)).astype(np.int64)

    def widths(self, symbols: np.ndarray) -> np.ndarray:
        return np.full(symbols.shape, self.shift, np.int64)

    def extra(self, values: np.ndarray, symbols: np.ndarray) -> np.ndarray:
        return (values & np.uint32((1 << self.shift) - 1)).astype(np.uint64)

    def join(self, symbols: np.ndarray, extra: np.ndarray) -> np.ndarray:
        return (symbols.astype(np.uint64) << np.uint64(self.shift)) | extra


@dataclasses.dataclass(frozen=True)
class Float32(Split):
    """For the bits of float32 numbers: exponent and `top` mantissa bits, then the mantissa's trailing zeros if `zeros`.

    An update is a difference of weights, hence a multiple of the weights' last place: the smaller it is, the more of
    its low mantissa bits are zero. For a number without such zeros their count costs exactly what it saves.
    The sign is the lowest extra bit.
    """

    top: int
    zeros: bool

    MOST = 15  # Counting stops here, which keeps the symbol within 14 bits.

    def _rest(self) -> int:
        return 23 - self.top

    def symbols(self, values: np.ndarray) -> np.ndarray:
        head = ((values & np.uint32(0x7FFFFFFF)) >> np.uint32(self._rest())).astype(np.int64)
        if not self.zeros:
            return head
        marked = values | np.uint32(1 << self.MOST)
        lowest = marked & (~marked + np.uint32(1))
        return (head << 4) | ((lowest.astype(np.float64).view(np.int64) >> 52) - 1023)

    def _known(self, symbols: np.ndarray) -> np.ndarray:
        """How many low mantissa bits the symbol tells: its zeros, and the one above them."""
        zeros = symbols & 15
        return zeros + (zeros < self.MOST)

    def widths(self, symbols: np.ndarray) -> np.ndarray:
        rest = np.full(symbols.shape, self._rest() + 1, np.int64)
        return rest - self._known(symbols) if self.zeros else rest

    def extra(self, values: np.ndarray, symbols: np.ndarray) -> np.ndarray:
        low = (values & np.uint32((1 << self._rest()) - 1)).astype(np.uint64)
        if self.zeros:
            low >>= self._known(symbols).astype(np.uint64)
        return (low << np.uint64(1)) | (values >> np.uint32(31))

    def join(self, symbols: np.ndarray, extra: np.ndarray) -> np.ndarray:
        sign, low, head = extra & np.uint64(1), extra >> np.uint64(1), symbols
        if self.zeros:
            zeros = (symbols & 15).astype(np.uint64)
            one = (zeros < self.MOST).astype(np.uint64) << zeros
            low, head = (low << self._known(symbols).astype(np.uint64)) | one, symbols >> 4
        return (head.astype(np.uint64) << np.uint64(self._rest())) | low | (sign << np.uint64(31))


COUNTS = Leading(3)  # Half a step is 6 % of a count, which costs less than 0.001 bits a symbol; 2^31 fits a byte.
EXACT = High(0)
