"""Whole numbers as few bytes: a symbol coded at its entropy (`constriction`), the bits below it as they are.

A `Split` cuts a 32-bit number into a symbol and extra bits, as many as the symbol says. What is predictable goes into
the symbol, what is noise into the extra bits. `encode_numbers` picks, from a family of splits, the one with the fewest
bytes, table included. It writes a section, which `decode_numbers` reads (numbers in it are LEB128 varints):

    split        1 byte, the place in the family
    table        number of symbols, then hexadecimal digits: for each symbol the change d of its count's code as
                 d + 7, or 15 and the two digits of the code (3 bits of precision); a jump over symbols that do not
                 occur is 15 0 0 and its size, three bits a digit as in a varint
    symbols      number of bytes, then the words of an ANS coder without the zero bytes at their end; none if there is
                 one symbol only
    extra bits   packed from the lowest bit on, the last byte filled with zeros
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import constriction
import numpy as np

from tff_fen.entropy_coding.symbols import COUNTS, EXACT, Split

# `constriction` has 2^24 steps of probability for a table; this many symbols leave each of them enough.
MAX_SYMBOLS = 2**16
# Numbers decoded at a time: what is held of them beside the result stays below a megabyte.
BLOCK = 2**13
# A coded symbol takes at most the 24 bits of a probability; the coder's state is two words more.
_MAX_CODED_BYTES = 3
_STATE_BYTES = 16
# Digits of a jump, of which the last one that is possible is at bit 30; and of an entry: 3, the jump, 3 of the code.
_LONGEST_JUMP = 11
_LONGEST_ENTRY = 17
# Of a table, bytes and entries decoded at a time.
_TABLE_BLOCK = 2**12
_MOST_ENTRIES = 2**11


class CodecError(ValueError):
    """The message is corrupt, cut off, or not for this codec."""


class Reader:
    """Takes a message apart from front to back; never past its end."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self._at = 0

    @property
    def left(self) -> int:
        """How many bytes are not read yet."""
        return len(self._data) - self._at

    def peek(self, start: int, end: int) -> memoryview:
        """The bytes from `start` to `end`, counted from the next one, or as many of them as there are."""
        return self._data[self._at + start : self._at + end]

    def take(self, size: int, what: str) -> memoryview:
        """The next `size` bytes, not copied; `what` names them in the error."""
        if size > self.left:
            raise CodecError(f"Message ends within its {what}: {size} bytes announced, {self.left} there.")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, what: str, low: int, high: int) -> int:
        """The next varint, which must be in [`low`, `high`]."""
        value = shift = 0
        while True:
            byte = self.take(1, what)[0]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
            if shift > 63:
                raise CodecError(f"Message gives a {what} of more than 63 bits.")
        if not low <= value <= high:
            raise CodecError(f"Message gives {value} as its {what}; {low} to {high} is possible here.")
        return value


def varint(value: int) -> bytes:
    """LEB128: seven bits a byte, lowest first, the top bit set on all but the last byte."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def changes(values: np.ndarray, before: int) -> np.ndarray:
    """`values[i] - values[i - 1]`, with `before` as the one before the first; several times as fast as `np.diff`."""
    out = values.copy()
    out[1:] -= values[:-1]
    out[0] -= before
    return out


def encode_numbers(values: np.ndarray, family: Sequence[Split]) -> bytes:
    """A section with `values` (uint32, at least one), cut by the cheapest of `family` (finest first) or of `EXACT`."""
    fine = family[0].symbols(values)
    counts = np.bincount(fine)
    present = np.flatnonzero(counts)
    counts = counts[present]
    # A coarser split merges symbols of the finest: any number with that symbol tells which.
    examples = family[0].join(present, np.zeros(len(present), np.uint64)).astype(np.uint32)
    merged = [split.symbols(examples) for split in family]
    costs = [_cost(symbols, counts, split) for split, symbols in zip(family, merged, strict=True)]
    choice = int(np.argmin(costs))
    split: Split = family[choice]
    symbols, inverse = np.unique(merged[choice], return_inverse=True)
    ranks = np.empty(present[-1] + 1, np.int32)
    ranks[present] = inverse
    coded = ranks[fine]
    if family[0].widths(present).any() and _few_distinct(values):
        exact, positions, exact_counts = np.unique(values, return_inverse=True, return_counts=True)
        if len(exact) <= MAX_SYMBOLS and _cost(exact.astype(np.int64), exact_counts, EXACT) < costs[choice]:
            choice, split, symbols, coded = len(family), EXACT, exact.astype(np.int64), positions.astype(np.int32)
    table = COUNTS.symbols(np.bincount(coded).astype(np.uint32))
    words = b""
    if len(symbols) > 1:
        coder = constriction.stream.stack.AnsCoder()
        coder.encode_reverse(coded, _model(table))
        words = coder.get_compressed().astype("<u4").tobytes().rstrip(b"\0")
    packed = b""
    widths = split.widths(symbols)
    if widths.any():
        packed = _pack(split.extra(values, symbols[coded]), widths[coded])
    return bytes([choice]) + _encode_table(symbols, table) + varint(len(words)) + words + packed


def decode_numbers(
    reader: Reader, count: int, family: Sequence[Split], most_distinct: int = MAX_SYMBOLS
) -> Iterator[np.ndarray]:
    """The `count` (>= 1) numbers (uint32) of the next section, of which at most `most_distinct` differ, in blocks.

    The caller has checked `count`: time and memory are bounded by it, whatever the section holds. Before the last block
    the end of the section is checked.
    """
    choice = reader.take(1, "number of a split")[0]
    if choice > len(family):
        raise CodecError(f"Message names split {choice}, there are 0 to {len(family)}.")
    split = [*family, EXACT][choice]
    symbols, table = _decode_table(reader, count, most_distinct)
    widest = int(split.widths(symbols[-1:].astype(np.int64))[0])
    most_bytes = min(reader.left, _MAX_CODED_BYTES * count + _STATE_BYTES)
    words = reader.take(reader.number("number of bytes of symbols", 0, most_bytes), "symbols")
    if words[-1:] == b"\0":
        raise CodecError("Message has coded symbols that end with a zero byte; a coder writes none.")
    if widest > 32:
        raise CodecError(f"Message has a symbol with {widest} extra bits; 32 is the most.")
    coder = _coder(words) if len(symbols) > 1 else None
    model = None if coder is None else _model(table)
    bits = 0
    for start in range(0, count, BLOCK):
        size = min(BLOCK, count - start)
        coded = np.zeros(size, np.int32) if coder is None else coder.decode(model, size)
        block = symbols[coded].astype(np.int64)
        extra, bits = _unpack(reader, split.widths(block), bits)
        values = split.join(block, extra)
        if values.max() >= 2**32:
            raise CodecError(f"Message has the number {values.max()}, which does not fit 32 bits.")
        if start + size == count:
            if words if coder is None else not coder.is_empty():
                raise CodecError(f"Message has coded symbols that do not end after {count} numbers.")
            last = reader.take((bits + 7) // 8, "extra bits")[-1:]
            if bits % 8 and last[0] >> bits % 8:
                raise CodecError("Message has bits set after its last extra bit.")
        yield values.astype(np.uint32)


def _coder(words: memoryview) -> constriction.stream.stack.AnsCoder:
    """A coder that reads what another has written, without the zero bytes at its end."""
    padded = np.zeros((len(words) + 3) // 4, "<u4")
    padded.view(np.uint8)[: len(words)] = np.frombuffer(words, np.uint8)
    return constriction.stream.stack.AnsCoder(padded.astype(np.uint32, copy=False))


def _few_distinct(values: np.ndarray) -> bool:
    """Whether a sample has so many repeats that a table of all distinct numbers may pay."""
    sample = values[:: len(values) // 2048 + 1]
    return len(np.unique(sample)) <= len(sample) // 4 + 1


def _cost(symbols: np.ndarray, counts: np.ndarray, split: Split) -> float:
    """Bits of a section with `counts[i]` numbers of symbol `symbols[i]`; a symbol may stand in several places."""
    present, places = np.unique(symbols, return_inverse=True)
    merged = np.bincount(places, weights=counts)
    total = merged.sum()
    entropy = total * np.log2(total) - np.sum(merged * np.log2(merged))
    jumps = changes(present, -1) - 1
    codes = changes(COUNTS.symbols(merged.astype(np.uint32)), 0)
    digits = np.sum((jumps > 0) * (4 + np.log2(jumps + 1) // 3)) + np.sum(np.where(np.abs(codes) > 7, 3, 1))
    return float(entropy + np.sum(merged * split.widths(present)) + 4 * digits)


def _middles() -> np.ndarray:
    """The middle of each step, by the symbol of a count."""
    symbols = np.arange(256)
    low = COUNTS.join(symbols, np.zeros(256, np.uint64)).astype(np.float64)
    return low + ((1 << COUNTS.widths(symbols)) - 1) / 2


_MIDDLES = _middles()
# The least count of each symbol of a count.
_LEAST = COUNTS.join(np.arange(256), np.zeros(256, np.uint64)).astype(np.int64)


def _model(table: np.ndarray) -> constriction.stream.model.Categorical:
    """The model both sides build from the counts as transmitted, in the middle of their steps.

    Not normalised: halves of integers add up exactly in float64, in whatever order, so that both sides get the same.
    """
    return constriction.stream.model.Categorical(_MIDDLES[table], perfect=False)


def _encode_table(symbols: np.ndarray, table: np.ndarray) -> bytes:
    digits: list[int] = []
    last = 0
    for jump, code in zip((changes(symbols, -1) - 1).tolist(), table.tolist(), strict=True):
        if jump:
            digits += [15, 0, 0]
            while jump > 7:
                digits.append(jump & 7 | 8)
                jump >>= 3
            digits.append(jump)
        # Neighbours in a histogram are alike: most codes need one digit.
        digits += [code - last + 7] if abs(code - last) <= 7 else [15, code >> 4, code & 15]
        last = code
    return varint(len(symbols)) + bytes.fromhex("".join(f"{digit:x}" for digit in digits) + "0" * (len(digits) % 2))


def _decode_table(reader: Reader, count: int, most_distinct: int) -> tuple[np.ndarray, np.ndarray]:
    """Symbols (uint32, ascending) and counts (symbols of `COUNTS`, uint8), both at least one and at most `count`.

    Takes what `_encode_table` writes: a longer form of the same table would cost time alone.
    """
    size = reader.number("number of symbols", 1, min(MAX_SYMBOLS, 2 * reader.left, count, most_distinct))
    symbols, table = np.empty(size, np.uint32), np.empty(size, np.uint8)
    done = at = least = code = 0
    symbol = -1
    while done < size:
        most = min(size - done, _MOST_ENTRIES)
        end = at // 2 + min(_TABLE_BLOCK, (_LONGEST_ENTRY + 1) // 2 * most)
        jumps, codes, at = _read_entries(reader.peek(at // 2, end), at, most, code, end < reader.left)
        block = symbol + np.cumsum(jumps + 1)
        symbol, code = int(block[-1]), int(codes[-1])
        bad = (block >= 2**32) | (codes < 1) | (codes >= 240)
        if bad.any():
            i = int(np.argmax(bad))
            raise CodecError(f"Message has a table with code {codes[i]} for symbol {block[i]}; codes are 1 to 239.")
        least += int(_LEAST[codes].sum())
        if least > count:
            raise CodecError(f"Message has a table of {least} or more numbers; {count} are expected.")
        symbols[done : done + len(block)], table[done : done + len(block)] = block, codes
        done += len(block)
    reader.take((at + 1) // 2, "table")
    return symbols, table


def _read_entries(data: memoryview, at: int, most: int, last: int, goes_on: bool) -> tuple[np.ndarray, np.ndarray, int]:
    """The next entries of a table, at least one: jumps, codes (int64 both), and the digit after them.

    Where the next entry begins, it tells of every digit at once; which of these are entries is the one loop in Python.

    Args:
      data: of the table, from the byte on in which the entries begin.
      at: the digit of the table at which they begin.
      most: entries to read.
      last: the code before them.
      goes_on: whether the message has more than `data`, which then may end within an entry.
    """
    digits = np.zeros(2 * len(data) + _LONGEST_ENTRY, np.uint8)
    raw = np.frombuffer(data, np.uint8)
    digits[: 2 * len(raw) : 2], digits[1 : 2 * len(raw) : 2] = raw >> 4, raw & 15
    places = np.arange(len(digits), dtype=np.int32)
    ends = np.minimum.accumulate(np.where(digits < 8, places, len(digits) - 3)[::-1])[::-1]
    jumping = np.flatnonzero((digits[:-5] == 15) & (digits[1:-4] == 0) & (digits[2:-3] == 0))
    heads = places.copy()
    heads[jumping] = np.minimum(ends[jumping + 3] + 1, len(digits) - 3)
    following = (heads + np.where(digits[heads] == 15, 3, 1)).data
    stop = 2 * len(raw) - goes_on * _LONGEST_ENTRY
    found: list[int] = []
    place = first = at % 2
    while place < stop and len(found) < most:
        found.append(place)
        place = following[place]
    if place > 2 * len(raw) or not found:
        raise CodecError("Message ends within its table.")
    starts = np.array(found)
    head = heads[starts]
    escaped = digits[head] == 15
    whole = 16 * digits[head + 1].astype(np.int64) + digits[head + 2]
    # Codes are changes of the one before, as far back as to one that is given whole.
    codes = np.cumsum(np.where(escaped, 0, digits[head].astype(np.int64) - 7))
    since = np.maximum.accumulate(np.where(escaped, np.arange(len(starts)), -1))
    codes += np.where(since < 0, last, (whole - codes)[since])
    lengths = head - starts - 3
    jumps = np.zeros(len(starts), np.int64)
    for i in range(int(min(lengths.max(), _LONGEST_JUMP))):
        jumps += np.where(lengths > i, (digits[starts + 3 + i] & 7).astype(np.int64) << 3 * i, 0)
    if (lengths > _LONGEST_JUMP).any() or ((lengths > 0) & (digits[head - 1] == 0)).any():
        raise CodecError("Message has a jump in its table that takes no digit, ends with 0, or is too long.")
    if (escaped & (np.abs(changes(codes, last)) <= 7)).any():
        raise CodecError("Message has a code in its table in three digits where one is enough.")
    return jumps, codes, at - first + place


def _pack(extra: np.ndarray, widths: np.ndarray) -> bytes:
    """`extra[i]` (uint64) in `widths[i]` (int64, 0 to 32) bits, one after the other."""
    ends = np.cumsum(widths)
    offsets = ends - widths
    shifted = extra << (offsets & 31).astype(np.uint64)
    # At most 32 bits each: a number begins in every 32-bit word, so that the groups are the words, in order.
    words = offsets >> 5
    sums = np.add.reduceat(shifted, np.flatnonzero(changes(words, -1)))
    out = np.zeros(len(sums) + 1, np.uint64)
    out[:-1] = sums & np.uint64(0xFFFFFFFF)
    out[1:] += sums >> np.uint64(32)
    return out.astype("<u4").tobytes()[: (int(ends[-1]) + 7) // 8]


def _unpack(reader: Reader, widths: np.ndarray, start: int) -> tuple[np.ndarray, int]:
    """Numbers (uint64) of `widths[i]` bits each, from bit `start` of what is left to read on; and where they end."""
    first_byte = start // 8
    ends = np.cumsum(widths) + (start - 8 * first_byte)
    end = 8 * first_byte + int(ends[-1])
    size = (end + 7) // 8
    if size > reader.left:
        raise CodecError(f"Message ends within its extra bits: {size} bytes announced, {reader.left} there.")
    if end == start:
        return np.zeros(len(widths), np.uint64), end
    offsets = ends - widths
    data = bytes(reader.peek(first_byte, size))
    words = np.frombuffer(data + bytes(-len(data) % 4 + 8), "<u4").astype(np.uint64)
    first = offsets >> 5
    window = words[first] | (words[first + 1] << np.uint64(32))
    mask = (np.uint64(1) << widths.astype(np.uint64)) - np.uint64(1)
    return (window >> (offsets & 31).astype(np.uint64)) & mask, end
