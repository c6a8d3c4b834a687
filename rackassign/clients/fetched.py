"""What a fetch response holds of a partition, whichever client asked for it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rackassign.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a fetch response holds of one partition.

    Args:
        partition: Which.
        size: Bytes of record batches.
        records: Records in the batches that are complete.
        preferred_replica: The broker to read from instead, if the sender named one (KIP-392).
    """

    partition: TopicPartition
    size: int
    records: int
    preferred_replica: int | None

    @property
    def topic(self) -> str:
        """Return the partition's topic."""
        return self.partition.topic


Observer = Callable[[int, Sequence[Fetched]], None]
"""Called on the host's IO thread with a broker's node id and what one response of its holds."""


_BATCH = struct.Struct(">8x i 4x b 4x h 34x i")
"""The head of a record batch: its length from here on, the version of the format, attributes, number of records."""

_LENGTH_FROM = 12
_CONTROL = 0x20


def count_records(batches: bytes) -> int:
    """Count the records in complete batches, by what their heads say; transaction markers are none."""
    count = place = 0
    while place + _BATCH.size <= len(batches):
        length, magic, attributes, records = _BATCH.unpack_from(batches, place)
        place += _LENGTH_FROM + max(length, 1)
        if place > len(batches):
            break
        if magic < _FIRST_WITH_COUNT:
            count += 1
        elif not attributes & _CONTROL:
            count += records
    return count


_FIRST_WITH_COUNT = 2
