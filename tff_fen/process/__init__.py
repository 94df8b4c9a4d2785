"""Composes an algorithm into a `tff.templates.IterativeProcess`.

What happens between an algorithm's two halves, `update` and `absorb`, happens here, once for all
algorithms: compressing a message, checking that it is finite, measuring it.
"""

from tff_fen.process.algorithm import Algorithm, Train, Update
from tff_fen.process.compose import compose_process
from tff_fen.process.outputs import ClientInput, ClientMessage, MessagesOutput, RoundOutput, StatefulClientProcess
from tff_fen.process.uplink import Uplink

__all__ = [
    "Algorithm",
    "ClientInput",
    "ClientMessage",
    "MessagesOutput",
    "RoundOutput",
    "StatefulClientProcess",
    "Train",
    "Update",
    "Uplink",
    "compose_process",
]
