"""Fallback assignments that can fail only if the client library does. A group gets one if planning failed."""

from __future__ import annotations

from collections.abc import Mapping

from rackassign.clients.common.adapter import PartitionList
from rackassign.clients.common.subscriptions import JoinMember
from rackassign.model import Partitions


def fallback_range(cluster: PartitionList, members: list[JoinMember]) -> dict[str, Partitions]:
    """Assign each topic in contiguous ranges, where the first members get one partition more."""
    return _assign_ranges(cluster, members, level=False)


def fallback_balanced(cluster: PartitionList, members: list[JoinMember]) -> dict[str, Partitions]:
    """Assign each topic in contiguous ranges, where the members with the lowest load get one partition more."""
    return _assign_ranges(cluster, members, level=True)


def exclude_claimed(target: Mapping[str, Partitions], members: list[JoinMember]) -> dict[str, Partitions]:
    """Return the target without partitions that other members claim, in any generation."""
    claimants: dict[tuple[str, int], set[str]] = {}
    for member in members:
        for topic, partitions in member.subscription.owned.items():
            for partition in partitions:
                claimants.setdefault((topic, partition), set()).add(member.id)
    return {
        member: {
            topic: tuple(p for p in partitions if claimants.get((topic, p), set()) <= {member})
            for topic, partitions in owned.items()
        }
        for member, owned in target.items()
    }


def _assign_ranges(cluster: PartitionList, members: list[JoinMember], *, level: bool) -> dict[str, Partitions]:
    target: dict[str, dict[str, tuple[int, ...]]] = {member.id: {} for member in members}
    load = dict.fromkeys(target, 0)
    subscribers: dict[str, list[JoinMember]] = {}
    for member in sorted(members, key=lambda m: (m.instance_id is None, m.instance_id or "", m.id)):
        for topic in dict.fromkeys(member.subscription.topics):
            subscribers.setdefault(topic, []).append(member)
    for topic in sorted(subscribers):
        partitions = sorted(cluster.partitions_for_topic(topic) or ())
        quota, extra = divmod(len(partitions), len(subscribers[topic]))
        start = 0
        of_topic = subscribers[topic]
        for index, member in enumerate(sorted(of_topic, key=lambda m: load[m.id]) if level else of_topic):
            end = start + quota + (index < extra)
            if end > start:
                target[member.id][topic] = tuple(partitions[start:end])
                load[member.id] += end - start
            start = end
    return {**target}
