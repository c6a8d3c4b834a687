"""What a group's leader does around the plan: from the bytes of a join to the bytes of its answer.

The objects are kafka-python's own, decoded from what a broker would send, so that the shares are those of a real
rebalance.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeAlias, TypeVar

from kafka.cluster import ClusterMetadata
from kafka.protocol.consumer import JoinGroupResponse
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafka.protocol.metadata import MetadataResponse

from rackassign.clients.kafka_python.assignor import NEWEST
from rackassign.clients.kafka_python.group import group_of
from rackassign.clients.kafka_python.host import make_readable
from rackassign.clients.once import Once
from rackassign.model import Group, Topology
from rackassign.strategies import plan_range
from rackassign.wire import Subscription, encode_subscription

METADATA_VERSION = 12

PLAN = "plan"

HostObject: TypeAlias = Any
"""kafka-python is untyped."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the way.

    Args:
        name: What is done.
        seconds: Median.
        of_plan: As a multiple of the plan's own time.
    """

    name: str
    seconds: float
    of_plan: float


def measure(group: Group, *, rounds: int, warmup: int) -> list[Stage]:
    """Time each part of the way, `rounds` times after `warmup`.

    Every round starts from bytes: strings and sets made by a decoder have no cached hash, as in a real join.
    """
    cluster = cluster_of(group.topology)
    joined = [
        (member.id, encode_subscription(Subscription(tuple(member.topics), rack=member.rack)))
        for member in group.members
    ]
    taken: dict[str, list[float]] = {}
    for _ in range(warmup):
        _one_round(cluster, joined, {})
    for _ in range(rounds):
        _one_round(cluster, joined, taken)
    medians = {name: median(seconds) for name, seconds in taken.items()}
    return [Stage(name, seconds, seconds / medians[PLAN]) for name, seconds in medians.items()]


def cluster_of(topology: Topology) -> HostObject:
    """Return kafka-python's view of a cluster, from a metadata response that has been over the wire."""
    response = MetadataResponse(
        throttle_time_ms=0,
        brokers=[
            MetadataResponse.MetadataResponseBroker(node_id=b.id, host="localhost", port=9092, rack=b.rack)
            for b in topology.brokers
        ],
        cluster_id="benchmark",
        controller_id=topology.brokers[0].id,
        topics=[
            MetadataResponse.MetadataResponseTopic(
                error_code=0,
                name=name,
                partitions=[
                    MetadataResponse.MetadataResponseTopic.MetadataResponsePartition(
                        error_code=0,
                        partition_index=i,
                        leader_id=partition.leader,
                        replica_nodes=list(partition.replicas),
                        isr_nodes=list(partition.replicas),
                        offline_replicas=[],
                    )
                    for i, partition in enumerate(partitions)
                ],
            )
            for name, partitions in topology.topics.items()
        ],
        version=METADATA_VERSION,
    )
    cluster = ClusterMetadata()
    received = response.encode(version=METADATA_VERSION)
    cluster.update_metadata(MetadataResponse.decode(received, version=METADATA_VERSION))
    return cluster


def _one_round(cluster: HostObject, joined: list[tuple[str, bytes]], taken: dict[str, list[float]]) -> None:
    def timed(name: str, work: Callable[[], _T]) -> _T:
        start = time.perf_counter()
        done = work()
        taken.setdefault(name, []).append(time.perf_counter() - start)
        return done

    members = [
        JoinGroupResponse.JoinGroupResponseMember(member_id=member, group_instance_id=None, metadata=metadata)
        for member, metadata in joined
    ]
    once = Once(logging.getLogger(__name__))
    whole = time.perf_counter()
    timed("check every subscription (remedy guard_members)", lambda: make_readable(members, once))
    timed("kafka-python decodes them", lambda: _decode(members))
    group = timed("build the Group", lambda: group_of(cluster, members))
    plan = timed(PLAN, lambda: plan_range(group))
    answers = timed(
        "build the assignments",
        lambda: [
            ConsumerProtocolAssignment(NEWEST, [(t, list(p)) for t, p in owned.items()], None)
            for owned in plan.assignment.values()
        ],
    )
    timed("kafka-python encodes them", lambda: [answer.encode() for answer in answers])
    taken.setdefault("all of it", []).append(time.perf_counter() - whole)


def _decode(members: list[HostObject]) -> None:
    for member in members:
        member.metadata = ConsumerProtocolSubscription.decode(member.metadata)
