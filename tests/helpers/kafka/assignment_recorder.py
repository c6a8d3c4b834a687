"""A group seen from two sides: what its coordinator gave to each member, and what each member says it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from kafka import KafkaAdminClient

from rackassign import RackAwareConsumer, RackAwareRangeAssignor
from rackassign.model import TopicPartition
from tests.helpers.kafka.consumers import CONSUMER
from tests.helpers.kafka.waiting import wait_until

Owned = frozenset[TopicPartition]


class GroupMember(Protocol):
    """A member of whatever client."""

    @property
    def id(self) -> str:
        """Its member id; empty before it has joined."""

    def poll(self) -> None:
        """Let it do a little work, or raise what has ended it."""

    def assignment(self) -> Owned:
        """Return what it says it owns."""


class Recorder(RackAwareRangeAssignor):
    """Our range assignor, which keeps what it decided: for each time it led, what each member id got."""

    def __init__(self, rack: str) -> None:
        super().__init__(rack)
        self.decided: list[dict[str, Owned]] = []

    def assign(self, cluster: Any, members: Any) -> Any:
        decided = super().assign(cluster, members)
        self.decided.append(
            {
                member: partitions((topic, ids) for topic, ids in assignment.assigned_partitions)
                for member, assignment in decided.items()
            }
        )
        return decided


class Ours:
    """A `RackAwareConsumer` as a member; counts what it reads."""

    def __init__(self, bootstrap: str, group: str, topics: Sequence[str], rack: str, **more: Any) -> None:
        self.assignor = Recorder(rack)
        self.consumer = RackAwareConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            client_rack=rack,
            partition_assignment_strategy=[self.assignor],
            **CONSUMER,
            **more,
        )
        self.consumer.subscribe(topics)
        self.values: dict[TopicPartition, list[bytes]] = {}

    @property
    def id(self) -> str:
        return str(self.consumer.group_metadata().member_id)

    def poll(self) -> None:
        for tp, records in self.consumer.poll(timeout_ms=50).items():
            place = TopicPartition(tp.topic, tp.partition)
            self.values.setdefault(place, []).extend(record.value for record in records)

    def assignment(self) -> Owned:
        return frozenset(TopicPartition(tp.topic, tp.partition) for tp in self.consumer.assignment())

    def records(self) -> Counter[TopicPartition]:
        return Counter({place: len(values) for place, values in self.values.items()})

    def close(self) -> None:
        self.consumer.close(timeout_ms=5000)


def settle(
    admin: KafkaAdminClient, group: str, members: Sequence[GroupMember], topics: Mapping[str, int]
) -> dict[str, Owned]:
    """Poll until the group is stable, made of these members, and each has what the coordinator gave it.

    All of the topics, given with their numbers of partitions, must be owned exactly once.

    Returns:
        What each member id owns.
    """
    whole = sorted(TopicPartition(topic, p) for topic, count in topics.items() for p in range(count))
    settled: dict[str, Owned] = {}

    def look() -> bool:
        for member in members:
            member.poll()
        said = {member.id: member.assignment() for member in members}
        # Only now ask the coordinator: before the first member has joined there may be none.
        if sorted(place for owned in said.values() for place in owned) == whole and given(admin, group) == said:
            settled.update(said)
        return bool(settled)

    try:
        wait_until(look, f"{group} settled")
    except AssertionError as error:
        said = [(member.id, sorted(member.assignment())) for member in members]
        raise AssertionError(f"{error}; members say {said}, the coordinator {given(admin, group)}") from None
    return settled


def given(admin: KafkaAdminClient, group: str) -> dict[str, Owned] | None:
    """Return what the coordinator gave to each member id in the name of the leader; None if it is not stable."""
    described = admin.describe_groups([group])[group]
    if described["group_state"] != "Stable":
        return None
    return {
        member["member_id"]: partitions(
            (a["topic"], a["partitions"]) for a in member["member_assignment"]["assigned_partitions"]
        )
        for member in described["members"]
    }


def partitions(owned: Iterable[tuple[str, Iterable[int]]]) -> Owned:
    return frozenset(TopicPartition(topic, p) for topic, ids in owned for p in ids)
