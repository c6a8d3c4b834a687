"""What a consumer fetches, seen response by response."""

from __future__ import annotations

import inspect
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rackassign.clients.kafka_python.host.remedy import host_version
from rackassign.clients.once import Once
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


def observe_fetches(consumer: Any, observer: Observer, once: Once, *, key: object) -> None:
    """Show every fetch response to an observer, unless there is one for this key already.

    Shadows `_fetcher._handle_fetch_response`, which is looked up for each send.
    """
    fetcher = getattr(consumer, "_fetcher", None)
    observers: dict[object, Observer] | None = vars(fetcher).get("_rackassign") if fetcher is not None else None
    if observers is None:
        if not _show_fetches(fetcher, once):
            return
        observers = {}
    if key not in observers:
        # Replaced and not changed: the IO thread may be walking over the old one.
        fetcher._rackassign = {**observers, key: observer}  # type: ignore[union-attr]


def _show_fetches(fetcher: Any, once: Once) -> bool:
    original = getattr(fetcher, "_handle_fetch_response", None)
    expected = ("node_id", "fetch_offsets", "send_time", "response")
    if original is None or tuple(inspect.signature(original).parameters) != expected:
        once.warn("fetches", "%s differs: fetches are not observed", host_version())
        return False

    def handle_fetch_response(node_id: int, fetch_offsets: Any, send_time: float, response: Any) -> None:
        try:
            fetched = _fetched(response)
            for observe in fetcher._rackassign.values():
                observe(node_id, fetched)
        except Exception:  # noqa: BLE001 - a response nobody could observe must still be read
            once.warn("fetches", "%s differs: a fetch response could not be observed", host_version(), exc_info=True)
        original(node_id, fetch_offsets, send_time, response)

    fetcher._handle_fetch_response = handle_fetch_response
    return True


def _fetched(response: Any) -> list[Fetched]:
    return [
        Fetched(
            TopicPartition(topic.topic, partition.partition_index),
            len(partition.records or b""),
            count_records(partition.records or b""),
            # -1 if there is none.
            partition.preferred_read_replica if partition.preferred_read_replica >= 0 else None,
        )
        for topic in response.responses
        for partition in topic.partitions
    ]


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
