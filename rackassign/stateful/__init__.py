"""A consumer with state for each partition, which survives it: in a local file, in a changelog, and in standbys.

Invariants of this package:

* The state of a partition is what its changelog contains up to an offset, and nothing else. The local file contains it
  together with that offset, and both change in one transaction. So a standby, a file left from before and the active
  member's state are the same at different offsets.
* A *commit* is one transaction of Kafka: it has the changes of all tasks of a member, the progress of their input, what
  was written to the output, and the offsets of the input. It is in the local file once it is committed.
* The offset where the input continues is known from the changelog alone. Committed offsets are for other tools.
* The offsets are committed with the generation of the assignment, so that the coordinator of the group refuses the
  transaction of a former owner (`_transactions`). Readers of changelogs skip what is not committed. A new owner reads
  up to the end as of its assignment, before which all is that a former owner can still commit.

Users and other packages import from here, from `prometheus`, `local_files` and `reset`. The modules in the order in
which they import each other: `_stateful_consumer`, `_snapshot`, `_active_tasks` (scheduling), `_active_task` and
`_processing`, `_local_state` (SQLite), `_changelog` (Kafka), and `_stores` (what an application sees) or `_output`
(what it writes). `reset` is for a command, which runs in place of members.
"""

from __future__ import annotations

from rackassign.stateful._output import Output
from rackassign.stateful._processing import Punctuate
from rackassign.stateful._snapshot import StateSnapshot, open_state
from rackassign.stateful._sqlite_file import DamagedError, StoreError
from rackassign.stateful._stateful_consumer import StatefulConsumer
from rackassign.stateful._statistics import StateStatistics
from rackassign.stateful._stores import BYTES, INT, JSON, STR, Serde, State, StateStore, Store, msgpack, pair

__all__ = [
    "BYTES",
    "INT",
    "JSON",
    "STR",
    "DamagedError",
    "Output",
    "Punctuate",
    "Serde",
    "State",
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
