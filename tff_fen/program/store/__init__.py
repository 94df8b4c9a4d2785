"""Stores of rounds: on disk (`SqliteStore`) or in memory (`MemoryStore`), behind one interface (`RoundStore`)."""

from tff_fen.program.store.errors import DamagedStoreError, StoreError, StoreFullError, StoreInUseError
from tff_fen.program.store.interface import Round, RoundStore
from tff_fen.program.store.memory import MemoryStore
from tff_fen.program.store.sqlite import SqliteStore

__all__ = [
    "DamagedStoreError",
    "MemoryStore",
    "Round",
    "RoundStore",
    "SqliteStore",
    "StoreError",
    "StoreFullError",
    "StoreInUseError",
]
