"""What happens to a client's messages on their way to the server."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tff_fen.checks import check_type
from tff_fen.client_work.batches import RNG_ALGORITHM
from tff_fen.codec import CODECS, COMPRESSORS, Codec, LosslessCodec
from tff_fen.compressors.compressor import Compressor
from tff_fen.compressors.threshold import hard_threshold


class Sent(NamedTuple):
    """What a client sent.

    Attributes:
      messages: as the server gets them, by name.
      residuals: what was not sent of each, by name; nothing without error feedback.
      steps: of which a message's elements are multiples, by name; only of messages that are sent so.
    """

    messages: Mapping[str, Any]
    residuals: Mapping[str, Any]
    steps: Mapping[str, tf.Tensor]


class Uplink(NamedTuple):
    """Makes messages cheaper: threshold, then a compressor, then a codec; together C.

        v = message + e,  sent = C(v),  e' = v - sent      with error feedback
        sent = C(message)                                  without

    Attributes:
      thresholds: epsilon by the name of a message; none by default.
      compressor: see `tff_fen.compressors`; `None` for none.
      codec: what rounds a message and encodes it; `None` sends float32 as it is.
      error_feedback: whether what was not sent is kept in the client's state, in a field `residual`, and joins the
        client's next message.
    """

    thresholds: Mapping[str, float] = {}
    compressor: Compressor | None = None
    codec: Codec | None = None
    error_feedback: bool = False

    def check(self) -> None:
        """Raises unless compressor and codec are such, and fit together."""
        if self.codec is not None:
            check_type("codec", self.codec, CODECS, "Pass tff_fen.codec.parse_codec('quantised:0.01'), or None.")
        if self.compressor is not None:
            advice = "Pass tff_fen.codec.parse_compressor('top_k:0.1'), or None."
            check_type("compressor", self.compressor, COMPRESSORS, advice)
        check_type("error_feedback", self.error_feedback, bool, "True keeps what was not sent, False forgets it.")
        if self.compressor is None or not self.compressor.sends_steps:
            return
        if self.codec is not None and not isinstance(self.codec, LosslessCodec):
            raise ValueError(
                f"compressor={self.compressor.name!r} and codec={self.codec.name!r} are two ways to round a message. "
                "Take one of them."
            )

    def send(self, messages: Mapping[str, Any], residuals: Mapping[str, Any], seed: tf.Tensor | None) -> Sent:
        """Sends messages.

        What the codec cannot hold becomes infinite, so that the client is counted as not finite.

        Args:
          messages: what the client wants to send, by name.
          residuals: e, by name; not used without error feedback.
          seed: int32[2] of this client in this round; not used without a compressor.
        """
        sent, left, steps = (collections.OrderedDict[str, Any]() for _ in range(3))
        for place, (name, message) in enumerate(messages.items()):
            v = tf.nest.map_structure(tf.add, message, residuals[name]) if self.error_feedback else message
            epsilon = self.thresholds.get(name, 0.0)
            c = tf.nest.map_structure(lambda x, epsilon=epsilon: hard_threshold(x, epsilon), v)
            if self.compressor is not None:
                own_seed = tf.random.experimental.stateless_fold_in(seed, place, alg=RNG_ALGORITHM)
                c, step = self.compressor.compress(c, own_seed)
                if step is not None:
                    steps[name] = step
            if self.codec is not None:
                c = tf.nest.map_structure(self.codec.as_received, c)
            sent[name] = c
            if self.error_feedback:
                left[name] = tf.nest.map_structure(tf.subtract, v, c)
        return Sent(sent, left, steps)
