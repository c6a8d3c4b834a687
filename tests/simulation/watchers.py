"""What must hold, each stated once. A watcher sees brokers and members from outside, and changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from kafka.errors import FencedInstanceIdError
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from rackassign.wire import decode_subscription, encode_subscription
from tests.simulation import kafka_python
from tests.simulation.group import STABLE, Committed, Group, GroupMember
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.member import Member

Partition = tuple[str, int]

_STAYS_S = 8.0
"""Less than `metadata_max_age_ms`, after which a reader asks its leader again, and more than two waits of a fetch."""


class Watchers:
    """Report to the world what does not hold."""

    def __init__(self, world: World, *, once: bool, within_s: float | None = None) -> None:
        self._world = world
        self._within_s = within_s
        self._calm = False
        # When each reader was sent away last, and when before.
        self._sent_away: dict[tuple[str, Partition], tuple[float, float]] = {}
        # Whether each record is processed once: nothing fails, and what is processed is committed.
        self._once = once
        self.members: list[Member] = []
        self.done: dict[Partition, set[int]] = {}
        self._prefix: dict[Partition, int] = {}

    # Called by brokers.

    def expired(self, group: Group, member: GroupMember) -> None:
        """A member is not removed while nothing fails; a static one that was closed has not left, and is."""
        # One of aiokafka that commits and stops while it joins does not leave: its generation is gone after the commit.
        stops = any(m.has_known_defects and m.stopping and member.id.startswith(f"{m.host}-") for m in self.members)
        if self._once and member.instance_id is None and not stops:
            self._world.violated("members that live stay", f"{member.id} is removed in generation {group.generation}")

    def assigned(self, group: Group) -> None:
        """No partition has two owners in one generation."""
        owners: dict[Partition, str] = {}
        for member in group.members.values():
            for partition in partitions_of(member.assignment):
                if partition in owners:
                    self._world.violated(
                        "one owner",
                        f"{partition} has {owners[partition]} and {member.id} in generation {group.generation}",
                    )
                owners[partition] = member.id

    def committed(
        self, group: Group, partition: Partition, before: Committed | None, now: Committed, member_id: str
    ) -> None:
        """A committed offset never goes back, never passes what was processed, and is its owner's."""
        self._world.note("committed", f"{partition} {now.offset}")
        if before is not None and now.offset < before.offset:
            self._world.violated(
                "committed offsets grow", f"{member_id} commits {now.offset} of {partition} over {before.offset}"
            )
        if now.offset > self.processed_up_to(partition):
            self._world.violated(
                "what is committed was processed",
                f"{member_id} commits {now.offset} of {partition}, of which {self.processed_up_to(partition)} are done",
            )
        self._commits_are_owners(group, partition, member_id)

    def _commits_are_owners(self, group: Group, partition: Partition, member_id: str) -> None:
        # One of aiokafka that has joined and not synced yet commits what it had, too, if its application stops then.
        former = any(each.has_known_defects and each.member_id() == member_id for each in self.members)
        if group.state == STABLE and not former:
            for other in group.members.values():
                if other.id != member_id and partition in partitions_of(other.assignment):
                    self._world.violated(
                        "commits are the owner's", f"{member_id} commits {partition}, which {other.id} owns"
                    )

    def written(self, partition: Partition, end: int) -> None:
        """What is written is processed within a time, where a script says so."""

        def look() -> None:
            if self.processed_up_to(partition) < end:
                done = self.processed_up_to(partition)
                self._world.violated("processed in time", f"{partition}: {done} of {end} after {self._within_s} s")

        if self._within_s is not None:
            self._world.later(self._within_s, "look", look)

    def sent_away(self, client: str, partition: Partition) -> None:
        """A leader sends a reader to a follower, and not each time it has read from it, once all is calm.

        Twice is none: the term of a follower may end while a fetch from it is under way.
        """
        last, before = self._sent_away.get((client, partition), (-_STAYS_S, -_STAYS_S))
        self._sent_away[client, partition] = self._world.now, last
        if self._calm and self._world.now - before < _STAYS_S:
            self._world.violated("a follower is not left", f"{client} is sent away again for {partition}")

    # Called by members.

    def processed(self, member: Member, partition: Partition, offsets: list[int]) -> None:
        self._world.note("processed", f"{member.name} {partition} {offsets[0]}-{offsets[-1]}")
        done = self.done.setdefault(partition, set())
        if self._once and not done.isdisjoint(offsets):
            again = f"{min(done.intersection(offsets))} of {partition}"
            self._world.violated("once while nothing fails", f"{member.name} processes {again} again")
        done.update(offsets)

    def processed_up_to(self, partition: Partition) -> int:
        """Return the first offset that was not processed."""
        done, offset = self.done.get(partition, set()), self._prefix.get(partition, 0)
        while offset in done:
            offset += 1
        self._prefix[partition] = offset
        return offset

    def poll_raised(self, member: Member, error: Exception) -> None:
        # A coordinator that takes over knows what the last rebalance ended with, and fences who has joined since.
        # aiokafka has no name for that error.
        fenced = (isinstance(error, FencedInstanceIdError) or "UnknownError" in repr(error)) and (
            any(member.host in group.forgotten for group in member.cluster.groups.values())
            or any(other is not member and other.host == member.host for other in self.members)
        )
        if not fenced:
            self._world.violated("poll() raises nothing", f"{member.name}: {error!r}")

    def commit_failed(self, member: Member, error: Exception) -> None:
        """While nothing fails, no commit does, also during a rebalance."""
        if self._once and not member.stopping:
            self._world.violated("commits succeed while nothing fails", f"{member.name}: {error!r}")
        # What one could not commit that stops in a rebalance is read again.
        self._once = False

    # Called when nothing has happened for a while.

    def planned(self, cluster: SimulatedCluster, group: Group) -> None:
        """The group has what its planner makes of the present racks: planned again, nothing moves."""
        living = {m.member_id(): m for m in self.members if not m.dead and not m.ended}
        if (
            self._world.problems
            or not living
            or any(member.options.client in {"patched", "stock"} for member in living.values())
        ):
            return
        # On behalf of a member: what is drawn at random is drawn for one.
        self._world.current = next(iter(living.values()))
        rows, owned = [], {}
        for member_id, member in living.items():
            by_topic: dict[str, list[int]] = {}
            for topic, index in sorted(member.consumer.assignment()):
                by_topic.setdefault(topic, []).append(index)
            owned[member_id] = frozenset((topic, i) for topic, indexes in by_topic.items() for i in indexes)
            joined = decode_subscription(group.members[member_id].metadata(group.protocol))
            now = replace(joined, owned={topic: tuple(i) for topic, i in by_topic.items()}, generation=group.generation)
            rows.append((member_id, group.members[member_id].instance_id, encode_subscription(now)))
        again = kafka_python.planned_again(group.protocol, cluster.metadata(), rows)
        racks = {member_id: member.rack for member_id, member in living.items()}
        # The range assignor moves for nothing else: its result may be another one with as many reads across racks.
        if again != owned and (
            group.protocol != "range" or _cross(cluster, racks, again) < _cross(cluster, racks, owned)
        ):
            self._world.violated("planned again, nothing moves", f"{owned} would become {again}")

    def settled(self, cluster: SimulatedCluster, group: Group | None) -> None:
        """All partitions are owned, once, and all that was written is processed and committed."""
        self._calm = True
        living = [each for each in self.members if not each.dead and not each.ended]
        if not living:
            return
        if group is None or group.state != STABLE:
            self._world.violated("the group settles", f"it is {None if group is None else group.state}")
            return
        owned: dict[Partition, str] = {}
        for member in living:
            if (state := member.unsettled()) is not None:
                self._world.violated("members settle", f"{member.name} is {state}")
                return
            for partition in member.consumer.assignment():
                if tuple(partition) in owned:
                    self._world.violated(
                        "one owner", f"{partition} is read by {owned[tuple(partition)]} and {member.name}"
                    )
                owned[tuple(partition)] = member.name
        for topic in {topic for member in living for topic in member.topics}:
            for partition in cluster.topics[topic]:
                key = (topic, partition.index)
                if key not in owned:
                    self._world.violated("all partitions are owned", f"{key} has no owner in the settled group")
                    return
                if self.processed_up_to(key) < partition.end:
                    self._world.violated(
                        "all records are processed", f"{key}: {self.processed_up_to(key)} of {partition.end}"
                    )
                    return
                offset = group.offsets.get(key)
                if living[0].options.commit != "listener" and (offset.offset if offset else 0) != partition.end:
                    self._world.violated("what is processed is committed", f"{key}: {offset} of {partition.end}")
                    return


def _cross(
    cluster: SimulatedCluster, racks: Mapping[str, str | None], assigned: Mapping[str, frozenset[Partition]]
) -> int:
    """Count the partitions that are assigned to a member without a replica in its rack."""
    near = {
        member_id: {node for node, broker in cluster.brokers.items() if broker.rack == rack}
        for member_id, rack in racks.items()
    }
    return sum(
        near[member_id].isdisjoint(cluster.topics[topic][index].replicas)
        for member_id, partitions in assigned.items()
        for topic, index in partitions
    )


@lru_cache(maxsize=4096)
def partitions_of(assignment: bytes) -> tuple[Partition, ...]:
    """Decode an assignment, with kafka-python and not with what is tested."""
    if not assignment:
        return ()
    return tuple(tuple(each) for each in ConsumerProtocolAssignment.decode(assignment).partitions())
