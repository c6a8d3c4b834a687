"""Traffic whose acknowledged records are noted in a journal."""

from __future__ import annotations

from collections.abc import Sequence

from rackassign.model import TopicPartition
from rackassign.testing.harness import Traffic

from .history import Acked, Journal, now

_RATE = 150.0


def journaled_traffic(bootstrap: str, topics: Sequence[str], journal: Journal) -> Traffic:
    """Return traffic that goes on when a producer fails: a record that is not acknowledged may be there or not."""

    def note(tp: TopicPartition, number: int, offset: int) -> None:
        journal.note(Acked(now(), tp, offset, number))

    return Traffic({"bootstrap_servers": bootstrap}, topics, rate=_RATE, tolerant=True, on_acknowledged=note)
