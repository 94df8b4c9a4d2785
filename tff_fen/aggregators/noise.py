"""Gaussian noise that nobody can repeat: each draw is keyed by 256 bits of the operating system's own.

TensorFlow's generators will not do. Unseeded ones take 32 bits once per process. The stateless ones take a key of 64
bits; their counter adds nothing to it, for Philox is a permutation of the counter: whoever knows some of the noise
tries a key and reads the counter off.

Here a draw reads its key from `/dev/urandom` inside the graph, on whichever runtime and machine the graph runs, and
expands it with ChaCha20 (RFC 8439), for which nothing faster than trying the keys is known. The key lives as long as
the draw: it is in no state, no argument and no result, so that nothing can store it.

What is claimed: whoever knows all the noise but one element has to search more than 2^255 keys for it. What is not:
the noise is a floating-point number, of 52 bits and at most 8.2 standard deviations, added to floating-point numbers.
Which results can be had so depends on the sum it was added to (Mironov, "On significance of the least significant bits
for differential privacy", 2012), which the accounting of an ideal Gaussian does not see.
"""

from __future__ import annotations

import pathlib
from typing import Any

import tensorflow as tf

SOURCE = "/dev/urandom"
"""Where the operating system gives random bytes, on each machine that draws noise."""

_KEY_BYTES = 32
# A key is the beginning of so many lines of random bytes. They are shorter than a key with a probability below 2^-80;
# then the round stops.
_LINES = 16
_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)  # "expand 32-byte k"
_WORDS = 16  # Of 32 bits, per block of the cipher.


def check_source() -> None:
    """Raises if this machine has no source of random bytes."""
    if not pathlib.Path(SOURCE).exists():
        raise RuntimeError(
            f"Noise needs random bytes of the operating system, found no {SOURCE}. Run on a system that has it, on "
            "every machine that takes part."
        )


def add_normal_noise(structure: Any, stddev: tf.Tensor) -> Any:
    """Returns a structure of floating-point tensors plus independent normal noise, from one key that is drawn anew."""
    leaves = [tf.convert_to_tensor(leaf) for leaf in tf.nest.flatten(structure)]
    sizes = [tf.size(leaf) for leaf in leaves]
    noise = tf.cast(stddev, tf.float64) * normal(read_key(), tf.reduce_sum(sizes))
    noised = [
        leaf + tf.cast(tf.reshape(part, tf.shape(leaf)), leaf.dtype)
        for leaf, part in zip(leaves, tf.split(noise, sizes), strict=True)
    ]
    return tf.nest.pack_sequence_as(structure, noised)


def read_key() -> tf.Tensor:
    """Returns a new key, uint32 [8], at each execution.

    TensorFlow reads whole files, whose size a device does not have, or lines. A line of random bytes is random, and
    without line feeds and carriage returns: 32 of its bytes are 254^32 > 2^255 keys, equally probable. Reading lines is
    stateful to TensorFlow, which therefore neither folds two draws into one nor keeps the result of one.
    """
    lines = tf.data.TextLineDataset(SOURCE, buffer_size=4096).take(_LINES).batch(_LINES)
    content = tf.strings.reduce_join(lines.get_single_element())
    key = tf.io.decode_raw(tf.strings.substr(content, 0, _KEY_BYTES), tf.int32)
    return tf.bitcast(tf.ensure_shape(key, [_KEY_BYTES // 4]), tf.uint32)


def normal(key: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Returns `size` independent standard normal numbers, float64, of a key that is used for nothing else.

    They are the inverse of the distribution function at uniform numbers of 52 bits, which float64 holds exactly.
    """
    blocks = (2 * size + _WORDS - 1) // _WORDS
    words = tf.reshape(chacha20(key, tf.cast(tf.range(blocks), tf.uint32)), [2, -1])[:, :size]
    high, low = tf.unstack(tf.cast(words, tf.float64))
    integers = high * 2.0**20 + tf.floor(low * 2.0**-12)
    return tf.math.ndtri((integers + 0.5) * 2.0**-52)


def chacha20(key: tf.Tensor, counter: tf.Tensor, nonce: tuple[int, int, int] = (0, 0, 0)) -> tf.Tensor:
    """Returns blocks of the cipher's key stream: uint32 [16, blocks], the words of a block in a column.

    Args:
      key: uint32 [8].
      counter: uint32 [blocks], all different.
      nonce: words 13 to 15 of the state.
    """
    column = tf.concat([tf.constant(_CONSTANTS, tf.uint32), key], 0)[:, tf.newaxis] + tf.zeros_like(counter)
    last = [counter, *(tf.fill(tf.shape(counter), tf.constant(word, tf.uint32)) for word in nonce)]
    start = [*tf.split(column, 3), tf.stack(last)]

    def double_round(a: tf.Tensor, b: tf.Tensor, c: tf.Tensor, d: tf.Tensor) -> list[tf.Tensor]:
        a, b, c, d = _quarter_rounds(a, b, c, d)
        # The diagonals become columns, and go back.
        a, b, c, d = _quarter_rounds(a, tf.roll(b, -1, 0), tf.roll(c, -2, 0), tf.roll(d, -3, 0))
        return [a, tf.roll(b, 1, 0), tf.roll(c, 2, 0), tf.roll(d, 3, 0)]

    rows = tf.while_loop(lambda *_: True, double_round, start, maximum_iterations=10)
    return tf.concat([x + y for x, y in zip(rows, start, strict=True)], 0)


def _quarter_rounds(a: tf.Tensor, b: tf.Tensor, c: tf.Tensor, d: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """Quarter rounds of four columns at once; each argument is a row of them."""
    for first, second in ((16, 12), (8, 7)):
        a += b
        d = _rotate(tf.bitwise.bitwise_xor(d, a), first)
        c += d
        b = _rotate(tf.bitwise.bitwise_xor(b, c), second)
    return a, b, c, d


def _rotate(x: tf.Tensor, bits: int) -> tf.Tensor:
    left, right = (tf.constant(n, tf.uint32) for n in (bits, 32 - bits))
    return tf.bitwise.bitwise_or(tf.bitwise.left_shift(x, left), tf.bitwise.right_shift(x, right))
