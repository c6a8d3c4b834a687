"""A consumer with state for each partition, which survives it: in a local file, in a changelog, and in standbys.

Invariants of this package:

* The state of a partition is what its changelog contains up to an offset, and nothing else. The local file contains it
  together with that offset, and both change in one transaction. So a standby, a file left from before and the active
  member's state are the same at different offsets.
* A *commit* has the changes of all records of an interval and the progress of the input. It is written to the changelog
  before it is in the file, and it is in the file before the offset of the input is committed.
* The offset where the input continues is known from the changelog alone. Committed offsets are for other tools.
* A new owner of a task writes a *fence* first and reads up to it. Records of a former owner behind the fence are
  ignored by all readers (`_changelog`). So is a fence of a former owner, because its assignment is of an earlier
  generation (its claim). The owner also rewrites their keys in the log, because compaction ignores owners.

* With transactions a commit has the changes of all tasks, what was written to the output and the offsets of the input.
  It is committed with the generation of the assignment, so that the coordinator of the group refuses that of a former
  owner. All readers of changelogs skip what is not committed.

Users and other packages import from here, from `prometheus`, `local_files` and `reset`. The modules in the order in
which they import each other: `_stateful_consumer`, `_snapshot`, `_active_tasks` (scheduling), `_active_task` and
`_processing`, `_local_state` (SQLite), `_changelog` (Kafka), and `_stores` (what an application sees) or `_output`
(what it writes). `reset` is for a command, which runs in place of members.
"""

from __future__ import annotations

from rackassign.stateful._active_task import FencedError, StateLostError
from rackassign.stateful._output import Output
from rackassign.stateful._processing import Punctuate
from rackassign.stateful._snapshot import StateSnapshot, open_state
from rackassign.stateful._sqlite_file import DamagedError, DiskFullError, StoreError
from rackassign.stateful._stateful_consumer import StatefulConsumer
from rackassign.stateful._statistics import StateStatistics
from rackassign.stateful._stores import BYTES, INT, JSON, STR, Serde, State, StateStore, Store, msgpack, pair

__all__ = [
    "BYTES",
    "INT",
    "JSON",
    "STR",
    "DamagedError",
    "DiskFullError",
    "FencedError",
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
