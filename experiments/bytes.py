"""What a round costs on the wire, in bytes really encoded: uplink and downlink, each message apart."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from experiments.columns import DOWNLINK, UPLINK, is_sent, of_message
from experiments.histogram import count_magnitudes, empty_histogram
from tff_fen import StatefulClientProcess
from tff_fen.codec import Codec, LosslessCodec, QuantisedCodec


class MessageMismatchError(Exception):
    """What was decoded is not what the server aggregated."""


def flatten(structure: Any) -> np.ndarray:
    """Returns all elements as one float32 vector; -0.0 is 0.0, which nobody sends."""
    return np.concatenate([np.ravel(x) for x in tf.nest.flatten(structure)]) + np.float32(0)


class ByteCounter:
    """Counts the bytes of the messages of a process."""

    def __init__(
        self,
        process: StatefulClientProcess,
        *,
        codec: Codec | None = None,
        counted: Sequence[Codec] = (),
        message_bytes: Callable[[int, int], int] | None = None,
    ) -> None:
        """Initializes the counter.

        Args:
          process: tells which messages there are.
          codec: what messages go through; `None` counts the lossless one.
          counted: codecs whose bytes are counted beside.
          message_bytes: bytes of a message of d elements in some tensors, where an aggregator encodes it:
            `(d, tensors) -> bytes`. It hides messages from the server, so that each aggregate costs one.
        """
        self._messages = process.messages
        self._codec = codec
        self._counted = {codec.name: codec for codec in counted}
        self._message_bytes = message_bytes
        # An aggregate that follows from a message is sent by itself if the server never sees the message.
        self._hidden = [name for name in process.releases if name not in process.messages] if message_bytes else []

    def count_uplink(
        self, messages: Sequence[Any], of_clients: dict[int, int] | None = None
    ) -> tuple[dict[str, int | None], np.ndarray]:
        """Counts what clients sent.

        Args:
          messages: of a round, as `process.next` gives them back.
          of_clients: where the bytes that each client really sent are added, by its id.

        Returns:
          The columns (`uplink_bytes` for the first message, `uplink_{name}_bytes` for others, and those of further
          codecs, `None` where one cannot hold a value), and the histogram of the first message's elements.
        """
        counts: dict[str, int | None] = collections.OrderedDict({UPLINK.of(): 0})
        histogram = empty_histogram()
        for sent in messages:
            parts = [sent.message] if len(self._messages) == 1 else [sent.message[name] for name in self._messages]
            for place, (name, part) in enumerate(zip(self._messages, parts, strict=True)):
                vector, step = flatten(part), getattr(sent, "steps", {}).get(name)
                for column, size in self._sizes(name, place == 0, vector, len(tf.nest.flatten(part)), step).items():
                    so_far = counts.get(column, 0)
                    counts[column] = None if size is None or so_far is None else so_far + size
                    if of_clients is not None and is_sent(column):
                        client = int(sent.client_id)
                        of_clients[client] = of_clients.get(client, 0) + int(size or 0)
                if place == 0:
                    histogram += count_magnitudes(vector)
        return counts, histogram

    def count_downlink(self, weights: Any, broadcast: Mapping[str, Any], participants: int) -> dict[str, int]:
        """Counts what the server sends to each participant, lossless.

        Args:
          weights: the trainable weights.
          broadcast: what goes with them, by name.
          participants: how many got them.
        """
        sent = {DOWNLINK.of(): weights}
        sent |= {of_message(DOWNLINK, name, False): value for name, value in broadcast.items()}
        return {column: participants * len(LosslessCodec().encode(flatten(value))) for column, value in sent.items()}

    def _sizes(
        self, name: str, first: bool, vector: np.ndarray, tensors: int, step: np.float32 | None
    ) -> dict[str, int | None]:
        size = self._as_sent(vector, tensors, step)
        sizes: dict[str, int | None] = {of_message(UPLINK, name, first): size}
        if first:
            sizes |= {of_message(UPLINK, hidden, False): size for hidden in self._hidden}
        return sizes | {
            of_message(UPLINK, name, first, key): _size_or_none(codec, vector) for key, codec in self._counted.items()
        }

    def _as_sent(self, vector: np.ndarray, tensors: int, step: np.float32 | None) -> int:
        """Bytes of a message; one of whole multiples of a step is sent as such."""
        if self._message_bytes is not None:
            return self._message_bytes(vector.size, tensors)
        given = self._codec if step is None else QuantisedCodec(float(step))
        codec: Codec = given or LosslessCodec()
        message = codec.encode(vector)
        if given is not None and not np.array_equal(_as_received(codec, message, vector.size), vector):
            raise MessageMismatchError(
                f"A message of {vector.size} elements through codec {codec.name!r} was decoded to other numbers than "
                "the server aggregated. This is a defect of the package; please report it with the configuration."
            )
        return len(message)


def _as_received(codec: Codec, message: bytes, length: int) -> np.ndarray:
    """What a server decodes, which knows the model and the codec, and trusts no client."""
    return codec.decode(message, length=length, step=codec.step, finite=True)


def _size_or_none(codec: Codec, vector: np.ndarray) -> int | None:
    try:
        return len(codec.encode(vector))
    except ValueError as error:
        logging.log_first_n(logging.WARNING, "Bytes of codec %s are left out: %s", 1, codec.name, error)
        return None
