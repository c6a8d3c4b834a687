"""Where the state of a group is, from what its members and its leader have sent.

Sizes of changelogs as leaders report them, and one reason for those that are unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from kafka.errors import KafkaConnectionError

from rackassign.admin.admin_client import AuthorizationError
from rackassign.admin.describe import DescribedTopic
from rackassign.errors import ConfigError
from rackassign.model import Partition, TopicPartition
from rackassign.monitoring import (
    ChangelogSizes,
    MemberDescription,
    StateCopy,
    describe_state,
    lag_of,
    read_changelog_sizes,
    with_default_changelogs,
)
from rackassign.wire import Subscription
from rackassign.wire.streams import (
    ACTIVE_SUM,
    StreamsAssignmentInfo,
    StreamsSubscriptionInfo,
    TaskId,
    encode_streams,
    encode_streams_assignment,
)
from tests.helpers.builders import group

CHANGELOG = TopicPartition("g-t-changelog", 0)


def member(
    name: str, owned: Sequence[int], copies: Sequence[int], positions: Mapping[int, int], **tags: str
) -> MemberDescription:
    sums = {TaskId(0, p, "t"): position for p, position in positions.items()}
    standby = {TaskId(0, p, "t"): (TopicPartition("g-t-changelog", p),) for p in copies}
    active = tuple(TaskId(0, p, "t") for p in owned)
    return MemberDescription(
        name,
        f"client-{name}",
        "10.0.0.1",
        subscription=Subscription(("t",), encode_streams(StreamsSubscriptionInfo(UUID(int=7), sums, tags))),
        assigned={"t": tuple(owned)},
        assignment_data=encode_streams_assignment(StreamsAssignmentInfo(active, standby)),
    )


def test_each_partition_has_its_active_member_and_its_copies_with_their_lag() -> None:
    one = member("one", [0], [1], {0: ACTIVE_SUM, 1: 40}, zone="a")
    two = member("two", [1], [0], {1: ACTIVE_SUM, 0: 70}, zone="b")
    new = member("new", [], [0], {}, zone="c")
    found = describe_state(group(one, two, new))
    first, second = found.partitions
    assert (first.tp, first.active, first.changelog) == (TopicPartition("t", 0), one, CHANGELOG)
    assert first.copies == (StateCopy(new, None), StateCopy(two, 70))
    assert second.copies == (StateCopy(one, 40),)
    assert found.tags == {"one": {"zone": "a"}, "two": {"zone": "b"}, "new": {"zone": "c"}}
    ends = {CHANGELOG: 100}
    assert [lag_of(copy, first.changelog, ends) for copy in first.copies] == [None, 30]
    assert lag_of(second.copies[0], second.changelog, ends) is None


def test_a_copy_that_was_active_before_has_position_nought_and_not_a_negative_one() -> None:
    found = describe_state(group(member("one", [], [0], {0: ACTIVE_SUM})))
    assert found.partitions[0].active is None
    assert found.partitions[0].copies[0].position == 0


def test_a_member_that_sends_garbage_does_not_hide_the_others() -> None:
    good = member("good", [0], [], {})
    broken = replace(
        member("broken", [1], [0], {}), subscription=Subscription(("t",), b"\x00"), assignment_data=b"\xff\xff\xff\xff"
    )
    found = describe_state(group(good, broken))
    assert [(each.tp.partition, each.copies) for each in found.partitions] == [(0, ()), (1, ())]
    assert found.tags["broken"] == {}


def test_groups_without_state_and_groups_in_a_rebalance_are_refused() -> None:
    plain = MemberDescription("m", "c", "h", subscription=Subscription(("t",)), assigned={"t": (0,)})
    with pytest.raises(ConfigError, match="there are no copies of state"):
        describe_state(group(plain))
    with pytest.raises(ConfigError, match=r"in a rebalance \(PreparingRebalance\)"):
        describe_state(group(plain, state="PreparingRebalance"))
    assert describe_state(group(state="Empty")).partitions == ()


def _known(sizes: dict[str, int], names: Iterable[str]) -> dict[str, int]:
    return {name: sizes[name] for name in names if name in sizes}


def test_a_stopped_group_has_the_partitions_of_its_committed_offsets_and_their_changelogs() -> None:
    committed = [TopicPartition(topic, p) for topic in ("u", "t") for p in (0, 1)]
    stopped = describe_state(group(state="Empty"), committed)
    assert [(each.tp, each.active, each.copies) for each in stopped.partitions] == [
        (tp, None, ()) for tp in sorted(committed)
    ]
    for known in ({"g-t-changelog": 2, "g-u-changelog": 2}, {"g-t-u-changelog": 2}):
        found = with_default_changelogs(stopped, partial(_known, known))
        logs = sorted({each.changelog.topic for each in found.partitions if each.changelog is not None})
        assert logs == sorted(known)
        assert all(each.changelog is not None for each in found.partitions)


def test_a_partition_without_copies_has_the_changelog_of_its_topic() -> None:
    found = describe_state(group(member("one", [0, 1], [], {}), member("two", [2], [0], {0: 4})))
    assert [(each.changelog, len(each.copies)) for each in found.partitions] == [
        (TopicPartition("g-t-changelog", p), int(p == 0)) for p in range(3)
    ]


def test_a_group_without_copies_has_changelogs_by_their_default_names_where_these_exist() -> None:
    asked: list[str] = []

    def sizes(names: Iterable[str]) -> dict[str, int]:
        asked.extend(names)
        return {"g-t-changelog": 1}

    alone = describe_state(group(member("one", [0, 1], [], {}), name="g"))
    assert [each.changelog for each in alone.partitions] == [None, None]
    found = with_default_changelogs(alone, sizes)
    assert [each.changelog for each in found.partitions] == [CHANGELOG, None]
    assert asked == ["g-t-changelog"]
    kept = describe_state(group(member("one", [0], [1], {}), name="other"))
    assert with_default_changelogs(kept, sizes) is kept
    assert asked == ["g-t-changelog"]


def test_copartitioned_topics_have_one_changelog_and_the_same_copies() -> None:
    def joins(name: str, owned: Sequence[int], copies: Sequence[int]) -> MemberDescription:
        standby = {TaskId(0, p, "orders"): (TopicPartition("g-orders-payments-changelog", p),) for p in copies}
        return replace(
            member(name, [], [], {}),
            assigned={topic: tuple(owned) for topic in ("orders", "payments")},
            assignment_data=encode_streams_assignment(StreamsAssignmentInfo((), standby)),
        )

    one, two = joins("one", [0, 1], []), joins("two", [], [0])
    found = describe_state(group(one, two))
    shown = [(each.tp, each.changelog, [copy.member.id for copy in each.copies]) for each in found.partitions]
    assert shown == [
        (TopicPartition(topic, p), TopicPartition("g-orders-payments-changelog", p), [] if p else ["two"])
        for topic in ("orders", "payments")
        for p in (0, 1)
    ]


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
