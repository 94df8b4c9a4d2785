"""What happens to a client's messages on their way to the server."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tff_fen.codec import Codec
from tff_fen.compressors.threshold import hard_threshold
from tff_fen.compressors.top_k import top_k


class Uplink(NamedTuple):
    """Makes messages cheaper: threshold, then top-k with error feedback, then a codec.

    Attributes:
      thresholds: epsilon by the name of a message; none by default.
      top_k: the share of a message's elements that is sent, for processes of one message. What is not
        sent is kept in the client's state, in a field `residual`, and joins its next message.
      codec: what rounds a message and encodes it; `None` sends float32 as it is.
    """

    thresholds: Mapping[str, float] = {}
    top_k: float | None = None
    codec: Codec | None = None

    def send(self, messages: Mapping[str, Any], state: Any) -> tuple[Mapping[str, Any], Any]:
        """Returns the messages as the server gets them, and the client's state with its new residual.

        What the codec cannot hold becomes infinite, so that the client is counted as not finite.
        """
        sent: collections.OrderedDict[str, Any] = collections.OrderedDict()
        for name, message in messages.items():
            epsilon = self.thresholds.get(name, 0.0)
            wanted = tf.nest.map_structure(lambda x, epsilon=epsilon: hard_threshold(x, epsilon), message)
            if self.top_k is None:
                sent[name] = self._as_received(wanted)
            else:
                wanted = tf.nest.map_structure(tf.add, wanted, state.residual)
                sent[name] = self._as_received(top_k(wanted, self.top_k))
                state = state._replace(residual=tf.nest.map_structure(tf.subtract, wanted, sent[name]))
        return sent, state

    def _as_received(self, message: Any) -> Any:
        return message if self.codec is None else tf.nest.map_structure(self.codec.as_received, message)
