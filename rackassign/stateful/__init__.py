"""A consumer with state for each partition, which survives it: in a local file, in a changelog, and in standbys.

Invariants of this package:

* The state of a partition is what its changelog contains up to an offset, and nothing else. The local file contains it
  together with that offset, and both change in one transaction. So a standby, a file left from before and the active
  member's state are the same at different offsets.
* A *commit* has the changes of all records of an interval and the progress of the input. It is written to the changelog
  before it is in the file, and it is in the file before the offset of the input is committed.
* The offset where the input continues is known from the changelog alone. Committed offsets are for other tools.
* A new owner of a task writes a *fence* first and reads up to it. Records of a former owner behind the fence are
  ignored by all readers (`changelog.replay`). So is a fence of a former owner, because its assignment is of an earlier
  generation (`changelog.claims`). The owner also rewrites their keys in the log, because compaction ignores owners.

* With transactions a commit has the changes of all tasks, what was written to the output and the offsets of the input.
  It is committed with the generation of the assignment, so that the coordinator of the group refuses that of a former
  owner. All readers of changelogs skip what is not committed.

Each of these imports only those behind it: `consumer`, `snapshot`, `tasks` (processing), `files` (SQLite), `changelog`
(Kafka), and `stores` (what an application sees) or `transactions` (what it writes). `reset` is for a command, which
runs in place of members.
"""

from __future__ import annotations

from rackassign.stateful.consumer import StatefulConsumer
from rackassign.stateful.files.sqlite_file import StoreError
from rackassign.stateful.snapshot import StateSnapshot, open_state
from rackassign.stateful.statistics import StateStatistics
from rackassign.stateful.stores.declaration import Store
from rackassign.stateful.stores.serdes import BYTES, INT, JSON, STR, Serde, msgpack, pair
from rackassign.stateful.stores.state import State, StateStore
from rackassign.stateful.tasks.active_task import StateLostError
from rackassign.stateful.tasks.run import Punctuate
from rackassign.stateful.transactions.output import Output

__all__ = [
    "BYTES",
    "INT",
    "JSON",
    "STR",
    "Output",
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
