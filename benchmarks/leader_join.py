"""Time of a group leader around the plan: from the bytes of a JoinGroup response to those of a SyncGroup request.

The objects are kafka-python's own, decoded from what a broker sends, and the assignor is the public one. So the shares
are those of a real rebalance.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeAlias, TypeVar

from kafka.cluster import ClusterMetadata
from kafka.protocol.consumer import JoinGroupResponse
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription
from kafka.protocol.metadata import MetadataResponse

from benchmarks.cases import Case
from benchmarks.results import Verdict
from benchmarks.tables import Sheet
from rackassign import RackAwareCooperativeStickyAssignor, RackAwareRangeAssignor, RackAwareStickyAssignor
from rackassign.assignor.subscriptions import decode_join
from rackassign.model import Member, Plan, Topology
from rackassign.text import WarnOnce
from rackassign.wire import Subscription, encode_subscription

METADATA_VERSION = 12

CHECK = "read every subscription (patch tolerate_malformed_metadata)"
DECODE = "kafka-python decodes what it needs of them"
PLAN = "plan"
ASSIGN = "the rest of assign(): group and answers"
ENCODE = "the answers' bytes"
ALL = "all of it"

HostObject: TypeAlias = Any
"""kafka-python is untyped."""

_T = TypeVar("_T")


class NotPlannedError(Exception):
    """The assignor answered without a plan, so its time says nothing."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the way."""

    name: str
    seconds: float
    of_plan: float


def measure(case: Case, *, rounds: int, warmup: int) -> list[Stage]:
    """Time each part of the way, `rounds` times after `warmup`.

    Every round starts from bytes: strings and sets made by a decoder have no cached hash, as in a real join.
    """
    group = case.shape.group(case.plan)
    cluster = cluster_of(group.topology)
    joined = [(member.id, joining(member)) for member in group.members]
    taken: dict[str, list[float]] = {}
    for _ in range(warmup):
        _one_round(case, cluster, joined, {})
    for _ in range(rounds):
        _one_round(case, cluster, joined, taken)
    medians = {name: median(seconds) for name, seconds in taken.items()}
    return [Stage(name, seconds, seconds / medians[PLAN]) for name, seconds in medians.items()]


def sheet(case: Case, stages: Sequence[Stage]) -> Sheet:
    """Show the stages."""
    rows = [(stage.name, f"{stage.seconds * 1e3:.2f}", f"{stage.of_plan:.2f}") for stage in stages]
    return Sheet(f"On a group's leader: {case}", ("stage", "ms", "times the plan"), rows)


def verdicts(case: Case, stages: Sequence[Stage]) -> Iterator[Verdict]:
    """Hold what is around the plan against the plan, where that is a solver's."""
    if case.strategy != "range":
        seconds = {stage.name: stage.seconds for stage in stages}
        around = seconds[ALL] - seconds[PLAN]
        yield Verdict(
            f"{case}: from bytes to bytes at most twice the plan",
            f"{around * 1e3:.1f} ms around {seconds[PLAN] * 1e3:.1f} ms",
            around <= seconds[PLAN],
        )


def joining(member: Member) -> bytes:
    """Return what a member of ours sends when it joins."""
    generation = -1 if member.generation is None else member.generation
    return encode_subscription(
        Subscription(tuple(member.topics), owned=member.owned, generation=generation, rack=member.rack)
    )


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
                        leader_id=-1 if partition.leader is None else partition.leader,
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


def _one_round(case: Case, cluster: HostObject, joined: list[tuple[str, bytes]], taken: dict[str, list[float]]) -> None:
    def timed(name: str, work: Callable[[], _T]) -> _T:
        start = time.perf_counter()
        done = work()
        taken.setdefault(name, []).append(time.perf_counter() - start)
        return done

    planned: list[float] = []

    def plan(*given: Any) -> Plan:
        start = time.perf_counter()
        made = strategy(*given)
        planned.append(time.perf_counter() - start)
        return made

    members = [
        JoinGroupResponse.JoinGroupResponseMember(member_id=member, group_instance_id=None, metadata=metadata)
        for member, metadata in joined
    ]
    assignor = _assignor(case)
    strategy: Callable[..., Plan] = assignor._planner.strategy
    assignor._planner.strategy = plan
    once = WarnOnce(logging.getLogger(__name__))
    whole = time.perf_counter()
    contexts: list[Any] = []
    timed(CHECK, lambda: contexts.append(decode_join(members, assignor, once)))
    (context,) = contexts
    timed(DECODE, lambda: _decode(context))
    start = time.perf_counter()
    answers = assignor.assign(cluster, context)
    assigned = time.perf_counter() - start
    if len(planned) != 1:
        raise NotPlannedError(str(case))
    taken.setdefault(PLAN, []).append(planned[0])
    taken.setdefault(ASSIGN, []).append(assigned - planned[0])
    timed(ENCODE, lambda: [answer.encode() for answer in answers.values()])
    taken.setdefault(ALL, []).append(time.perf_counter() - whole)


_KINDS: dict[str, Callable[..., HostObject]] = {
    kind.name: kind for kind in (RackAwareRangeAssignor, RackAwareStickyAssignor, RackAwareCooperativeStickyAssignor)
}


def _assignor(case: Case) -> HostObject:
    return _KINDS[case.strategy](None)


def _decode(members: list[HostObject]) -> None:
    for member in members:
        member.metadata = ConsumerProtocolSubscription.decode(member.metadata)
