"""What runs a process for many rounds, as `tff.program` does: rounds, stores of states, serialization, sampling."""

from tff_fen.program import sampling
from tff_fen.program.records import Record
from tff_fen.program.rounds import Rounds
from tff_fen.program.store import MemoryStore, RoundStore, SqliteStore, StoreError

__all__ = ["MemoryStore", "Record", "RoundStore", "Rounds", "SqliteStore", "StoreError", "sampling"]
