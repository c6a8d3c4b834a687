"""What an assignor knows of its member: topics that it subscribes to and does not read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rackassign.assignor.member import MemberContext
from rackassign.model import Broker, Group, Member, Partition, Topology
from rackassign.strategies import Options, plan_sticky

BROKERS = tuple(Broker(i, rack) for i, rack in enumerate("abc"))
READ = tuple(Partition((i,), i) for i in range(3))
CHANGELOG = tuple(Partition(((i + 1) % 3,), (i + 1) % 3) for i in range(3))


def context(unread: frozenset[str] = frozenset()) -> MemberContext:
    topology = Topology(BROKERS, {"orders": READ, "changelog": CHANGELOG})
    adapter: Any = SimpleNamespace(topology=lambda _cluster, _topics: topology)
    member = MemberContext(adapter, "tests", rack="a", locality="any-replica", name="sticky")
    member.unread_topics = unread
    return member


def local(topology: Topology) -> int:
    """Return how many partitions of `orders` a co-partitioned group reads locally."""
    topics = frozenset(topology.topics)
    members = tuple(Member(f"m-{rack}", topics, rack=rack) for rack in "cab")
    plan = plan_sticky(Group(topology, members, copartition=(("orders", "changelog"),)), Options())
    assert all(given["orders"] == given["changelog"] for given in plan.assignment.values())
    return sum(f"m-{'abc'[p]}" == member for member, given in plan.assignment.items() for p in given["orders"])


def test_replicas_of_topics_that_are_not_read_do_not_count() -> None:
    assert local(context(frozenset({"changelog"})).topology(None, [])) == 3


def test_topics_that_are_read_keep_their_replicas() -> None:
    found = context(frozenset({"another"})).topology(None, [])
    assert found.topics == {"orders": READ, "changelog": CHANGELOG}
    unread = context(frozenset({"changelog"})).topology(None, [])
    assert unread.topics["orders"] == READ
    assert len(unread.topics["changelog"]) == 3
    assert all(not partition.replicas for partition in unread.topics["changelog"])
