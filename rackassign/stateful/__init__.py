"""A consumer with state of its own for each partition, which outlives it: in a local file, in a changelog, in copies.

Rules of this room:

* The state of a partition is what its changelog says, up to an offset, and nothing else. The local file holds it with
  that offset, both changed in one transaction. So a copy, a file that was left behind and the state of who runs the
  partition are the same thing at different offsets.
* What a record of the input changes is written to the changelog before it is in the file, and in the file before the
  input's offset is committed.
* Where the input goes on is known from the changelog alone; what is committed is for others to look at.
* Who takes a partition over writes a *fence* first and reads up to it. What a former owner writes behind that is
  ignored by everybody (`replay`), and undone in the log by the owner, for compaction knows no owners.
* `changes` and `replay` do nothing but compute; `store` knows SQLite, `changelog` knows Kafka.
"""

from __future__ import annotations

from rackassign.stateful.active_partition import StateLostError
from rackassign.stateful.consumer import StatefulConsumer
from rackassign.stateful.state_store import StateStore, StoreError

__all__ = ["StateLostError", "StateStore", "StatefulConsumer", "StoreError"]
