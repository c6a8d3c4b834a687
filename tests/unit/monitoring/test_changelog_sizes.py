"""Sizes of changelogs as leaders report them, and one reason for those that are unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from kafka.errors import KafkaConnectionError

from rackassign.admin.admin_client import AuthorizationError
from rackassign.admin.describe import DescribedTopic
from rackassign.model import Partition, TopicPartition
from rackassign.monitoring import ChangelogSizes, read_changelog_sizes

LOG = "g-t-changelog"
TPS = [TopicPartition(LOG, i) for i in range(3)]


class Brokers:
    """Brokers that report sizes; an error in place of sizes is raised."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, leaders: Iterable[int | None]) -> None:
        self.topics = {LOG: DescribedTopic(tuple(Partition((1, 2), leader) for leader in leaders))}
        self.sizes: dict[int, dict[TopicPartition, int] | Exception] = {}
        self.asked: list[int] = []
        monkeypatch.setattr("rackassign.monitoring.stateful_group.describe_topics", self._topics)
        monkeypatch.setattr("rackassign.monitoring.stateful_group.describe_log_dirs", self._sizes)

    def _topics(self, _: Any, names: Iterable[str]) -> dict[str, DescribedTopic]:
        return {name: self.topics.get(name, DescribedTopic(problem="UnknownTopicOrPartitionError")) for name in names}

    def _sizes(self, _: Any, broker: int, wanted: Mapping[str, int]) -> dict[TopicPartition, int]:
        assert wanted == {LOG: 3}
        self.asked.append(broker)
        found = self.sizes[broker]
        if isinstance(found, Exception):
            raise found
        return found


def test_each_size_is_that_of_the_leader_s_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch, [1, 2, 1])
    brokers.sizes = {1: {TPS[0]: 10, TPS[1]: 11, TPS[2]: 12}, 2: {TPS[0]: 20, TPS[1]: 21, TPS[2]: 22}}
    assert read_changelog_sizes(None, [*TPS, TPS[0]]) == ChangelogSizes({TPS[0]: 10, TPS[1]: 21, TPS[2]: 12})
    assert brokers.asked == [1, 2]


def test_without_the_permission_there_is_one_reason_for_all_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch, [1, 2, 3])
    refusal = AuthorizationError("DESCRIBE", "the cluster")
    brokers.sizes = {1: refusal, 2: refusal, 3: {TPS[2]: 5}}
    found = read_changelog_sizes(None, TPS)
    assert (found.bytes, found.problem) == ({TPS[2]: 5}, "not allowed: DESCRIBE on the cluster (brokers 1, 2)")


def test_brokers_that_return_nothing_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those before 3.2 do, without the permission."""
    brokers = Brokers(monkeypatch, [1, 1, 1])
    brokers.sizes = {1: {}}
    found = read_changelog_sizes(None, TPS)
    assert found.problem == "no sizes in the response, perhaps DESCRIBE on the cluster is missing (broker 1)"


def test_a_changelog_that_is_gone_or_has_no_leader_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch, [1, None, 1])
    brokers.sizes = {1: KafkaConnectionError("gone")}
    gone, beyond = TopicPartition("a-changelog", 0), TopicPartition(LOG, 3)
    assert read_changelog_sizes(None, [gone]).problem == "a-changelog: UnknownTopicOrPartitionError"
    assert read_changelog_sizes(None, [beyond]).problem == f"{LOG} has 3 partitions only"
    found = read_changelog_sizes(None, TPS)
    assert (found.bytes, found.problem) == ({}, f"{LOG}-1 has no leader, KafkaConnectionError (broker 1)")


def test_a_cluster_that_does_not_describe_topics_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise KafkaConnectionError("gone")

    monkeypatch.setattr("rackassign.monitoring.stateful_group.describe_topics", refuse)
    assert read_changelog_sizes(None, TPS).problem == "KafkaConnectionError"
