"""What is done to training images before each step, by name; a test set is never changed.

An augmentation is a function `(batch, key) -> batch` for `tff_fen.LocalTraining(augment=...)`, which gives each batch a
key of its own: the same key, the same pixels, on every device and runtime.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

Batch = tuple[tf.Tensor, tf.Tensor]
Augmentation = Callable[[Batch, tf.Tensor], Batch]

PADDING = 4
# One generator everywhere: the bits are part of a result.
_RNG_ALGORITHM = "philox"


def flip_crop(batch: Batch, key: tf.Tensor) -> Batch:
    """Flips and shifts images [n, height, width, colours] as FedDyn's code does.

    Each image is mirrored with probability 1/2. Then, with probability 1/2, it gets `PADDING` pixels of zeros on each
    side, and a part of its own size is cut out, all places being equally likely.

    Args:
      batch: images and labels; the labels stay.
      key: int32[2].
    """
    images, labels = batch
    if images.shape.rank != 4:
        raise ValueError(f"flip_crop is for images of shape [n, height, width, colours], found {images.shape}.")
    height, width, colours = images.shape[1:]
    n = tf.shape(images)[0]
    draws = tf.random.stateless_uniform([4, n], key, alg=_RNG_ALGORITHM)
    flipped, cropped = tf.unstack((draws[:2] < 0.5)[..., tf.newaxis])
    # Where a part begins in the padded image; `PADDING` leaves the image where it is.
    begin = tf.cast(draws[2:] * (2 * PADDING + 1), tf.int32)[..., tf.newaxis]
    begin = tf.where(cropped, begin, PADDING)
    rows, columns = begin[0] + tf.range(height), begin[1] + tf.range(width)
    padded_height, padded_width = height + 2 * PADDING, width + 2 * PADDING
    columns = tf.where(flipped, padded_width - 1 - columns, columns)
    padded = tf.pad(images, [[0, 0], [PADDING, PADDING], [PADDING, PADDING], [0, 0]])
    # One lookup of pixels costs half of one of rows and then one of columns.
    rows += tf.range(n)[:, tf.newaxis] * padded_height
    pixels = rows[:, :, tf.newaxis] * padded_width + columns[:, tf.newaxis, :]
    parts = tf.gather(tf.reshape(padded, [-1, colours]), pixels)
    return tf.ensure_shape(parts, images.shape), labels


AUGMENTATIONS: dict[str, Augmentation | None] = {"none": None, "flip_crop": flip_crop}
"""By the names of `--augment`."""
