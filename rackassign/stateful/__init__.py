"""A consumer with state for each partition, which survives it: in a local file, in a changelog, and in standbys.

Invariants of this package:

* The state of a partition is what its changelog contains up to an offset, and nothing else. The local file contains it
  together with that offset, and both change in one transaction. So a standby, a file left from before and the active
  member's state are the same at different offsets.
* The changes of an input record are written to the changelog before they are in the file, and they are in the file
  before the offset of the input is committed.
* The offset where the input continues is known from the changelog alone. Committed offsets are for other tools.
* A new owner of a partition writes a *fence* first and reads up to it. Records of a former owner behind the fence are
  ignored by all readers (`replay`). So is a fence of a former owner, because its assignment is of an earlier generation
  (`claims`). The owner also rewrites their keys in the log, because compaction ignores owners.
* `records` and `replay` only compute. `sqlite_file` uses SQLite, and `changelog` uses Kafka.
* `reset`, `cleaning` and `local_files` are for commands, which run beside members or in place of them.
"""

from __future__ import annotations

from rackassign.stateful.active_task import StateLostError
from rackassign.stateful.consumer import StatefulConsumer
from rackassign.stateful.punctuation import Punctuate
from rackassign.stateful.serdes import BYTES, INT, JSON, STR, Serde, msgpack, pair
from rackassign.stateful.snapshot import StateSnapshot, open_state
from rackassign.stateful.sqlite_file import StoreError
from rackassign.stateful.state_store import State, StateStore
from rackassign.stateful.statistics import StateStatistics
from rackassign.stateful.stores import Store

__all__ = [
    "BYTES",
    "INT",
    "JSON",
    "STR",
    "Punctuate",
    "Serde",
    "State",
    "StateLostError",
    "StateSnapshot",
    "StateStatistics",
    "StateStore",
    "StatefulConsumer",
    "Store",
    "StoreError",
    "msgpack",
    "open_state",
    "pair",
]
