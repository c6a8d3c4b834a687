"""The records of a changelog: the keys of a state with their values, as they were committed in Kafka's transactions.

A commit is one transaction (KIP-98). In the partition of a task it has each changed key once, with its last value, and
the progress of the task as its last record. So where the input continues is known from the changelog alone.

Nothing else is needed to read one. Readers of committed records get all records of a commit or none, the log cleaner
removes what was aborted, and a former owner cannot commit (`_transactions`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rackassign.stateful._stores import is_state_key

DELETES_MS = 86_400_000
"""How long a changelog keeps the records of deletions (`delete.retention.ms`) by default, in milliseconds."""

LARGEST_BYTES = 1_000_000
"""Size of a key and a value; the limits of producers and of brokers are a little larger by default."""

_EARLIER_HEADER = "rackassign"


class ChangelogRecord(NamedTuple):
    key: bytes
    # None if the key is deleted.
    value: bytes | None
    offset: int = -1


def is_change(record: Any) -> bool:  # noqa: ANN401 - kafka-python is untyped
    """Return whether a record is one of a changelog, and not of another program."""
    return not record.headers and is_state_key(record.key or b"")


def is_of_earlier_format(record: Any) -> bool:  # noqa: ANN401 - kafka-python is untyped
    """Return whether a record is of the format before transactions, which is not read any more."""
    return any(name == _EARLIER_HEADER for name, _ in record.headers or ())
