"""Count of fetched bytes by broker."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from rackassign.clients.common.fetch_metrics import FetchedPartition
from rackassign.model import TopicPartition


class FetchMeter:
    """Counts the bytes of record batches in fetch responses, by broker and partition.

    It counts what the broker sent: batches as stored in the log, compressed if they are. Bytes that
    are sent twice count twice. Pass one meter to `attach`; it may be read from any thread at any time.
    """

    __slots__ = ("_bytes", "_lock", "_responses")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes: dict[tuple[int, TopicPartition], int] = {}
        self._responses: dict[int, int] = {}

    def __call__(self, broker: int, fetched: Iterable[FetchedPartition]) -> None:
        """Count one fetch response of a broker."""
        with self._lock:
            self._responses[broker] = self._responses.get(broker, 0) + 1
            for partition in fetched:
                if partition.size:
                    key = (broker, partition.partition)
                    self._bytes[key] = self._bytes.get(key, 0) + partition.size

    def bytes_by_partition(self) -> dict[tuple[int, TopicPartition], int]:
        """Return bytes by broker and partition; only those with bytes."""
        with self._lock:
            return dict(self._bytes)

    def bytes_by_broker(self) -> dict[int, int]:
        """Return bytes by broker; only those with bytes."""
        totals: dict[int, int] = {}
        for (broker, _), size in self.bytes_by_partition().items():
            totals[broker] = totals.get(broker, 0) + size
        return totals

    def responses_by_broker(self) -> dict[int, int]:
        """Return the number of fetch responses of each broker, including empty ones and redirects."""
        with self._lock:
            return dict(self._responses)
