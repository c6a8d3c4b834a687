"""Samples of logs: what a broker that hangs costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError

from rackassign.model import TopicPartition
from rackassign.monitoring import throughput
from tests.helpers.builders import cluster

ADMIN: Any = object()


def test_a_broker_that_hangs_is_not_asked_for_each_of_its_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = {f"t{number}": [[1]] for number in range(500)} | {"other": [[2]]}
    now = 0.0

    def offsets(_: object, tps: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        nonlocal now
        if tps[0].topic == "other":
            return {tps[0]: (0, 7)}
        now += 5.0
        raise KafkaTimeoutError

    sizes = {TopicPartition(topic, 0): 1000 for topic in topics}
    monkeypatch.setattr(throughput, "describe_log_dirs", lambda *_: sizes)
    monkeypatch.setattr(throughput, "list_offsets", offsets)
    seen = throughput.sample_logs(ADMIN, cluster(topics).topology.topics, clock=lambda: now)
    assert now <= 20.0
    assert seen.logs.keys() == {TopicPartition("other", 0)}
    assert seen.problems == ("broker 1 does not report the offsets of all its logs in time",)
