"""Tasks of the source, without Spark and without brokers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from rackassign.model import TopicPartition
from rackassign.spark import task
from rackassign.spark.options import Options
from rackassign.spark.source.partitions import SplitPartition, read_partition
from rackassign.spark.splits import OffsetRange, Split


class Pool:
    """A pool of one consumer that reads nothing; keeps its racks, and the topics whose leaders it requests."""

    def __init__(self) -> None:
        self.racks: list[str | None] = []
        self.topics: list[str] = []

    def list_topics(self, topic: str, _timeout_s: float) -> None:
        self.topics.append(topic)

    @contextmanager
    def borrow(self, settings: Mapping[str, Any]) -> Iterator[Pool]:
        self.racks.append(settings.get("client.rack"))
        yield self


def splits(count: int) -> list[Split]:
    """Splits without offsets, so that there is nothing to wait for."""
    return [Split(OffsetRange(TopicPartition("t", number), 0, 0), ("a",), 0, 1 << number) for number in range(count)]


@pytest.mark.parametrize(("rack", "warnings"), [("a", 0), (None, 1)])
def test_a_task_reads_the_rack_of_its_executor_once(
    rack: str | None, warnings: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pool = Pool()
    monkeypatch.setattr(task, "consumers_of_this_process", lambda: pool)
    monkeypatch.setattr(task, "read", lambda *_: iter(()))
    monkeypatch.setenv("RACKASSIGN_RACK", rack or "")
    options = Options.of({"kafka.bootstrap.servers": "k:1", "subscribe": "t"}, "batch")
    assert list(read_partition(options, SplitPartition(splits(3)), ("value",))) == []
    assert (pool.racks, pool.topics) == ([rack] * 3, ["t"] * 3)
    assert sum("RACKASSIGN_RACK is not set on this executor" in each for each in caplog.messages) == warnings
