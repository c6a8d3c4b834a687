"""Computes the expected local share of a topic for each rack binding: `none`, `executor` and `pull`.

This module uses neither Spark nor a Kafka client. All partitions have the same weight, and Spark assigns tasks to slots
in no particular order. So the shares for `none` and `executor` are means over many runs, from which a single run with
few partitions may differ considerably.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rackassign.locality import Locality
from rackassign.model import Broker, Group, Member, Partition, Topology

_TOPIC = "topic"


@dataclass(frozen=True, slots=True)
class Executor:
    """An executor of Spark.

    Args:
        host: The host on which it runs.
        process: The ID of a process that distinguishes it from other executors on the host.
        rack: Its rack; None if unknown.
        slots: The observed number of tasks that it runs at the same time, 1 or more.
        cut_off: Addresses of the driver to which its tasks could not connect.
    """

    host: str
    process: int
    rack: str | None
    slots: int
    cut_off: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExpectedLocality:
    """The expected local share for each rack binding, from 0 to 1.

    Args:
        none: The share without racks, where executors read from leaders.
        executor: The share with the rack of each executor, if brokers allow follower fetching.
        pull: The share if splits are chosen by the executor's rack as well: the highest one with balanced load.
    """

    none: float
    executor: float
    pull: float


def expected_locality(
    executors: Sequence[Executor], partitions: Sequence[Partition], racks: Mapping[int, str]
) -> ExpectedLocality:
    """Compute the expected local shares.

    Args:
        executors: All executors.
        partitions: The partitions to read.
        racks: The rack of each broker that has one.
    """
    slots = sum(executor.slots for executor in executors)
    if not slots or not partitions:
        return ExpectedLocality(0.0, 0.0, 0.0)
    none = executor_share = 0.0
    for executor in executors:
        if executor.rack is None:
            continue
        led = sum(racks.get(-1 if p.leader is None else p.leader) == executor.rack for p in partitions)
        near = sum(any(racks.get(replica) == executor.rack for replica in p.replicas) for p in partitions)
        none += executor.slots * led
        executor_share += executor.slots * near
    total = slots * len(partitions)
    return ExpectedLocality(none / total, executor_share / total, _pulled(executors, partitions, racks))


def _pulled(executors: Sequence[Executor], partitions: Sequence[Partition], racks: Mapping[int, str]) -> float:
    """Return the local share of an optimal assignment in which the slots are the members."""
    from rackassign.strategies import Options, plan_sticky  # noqa: PLC0415 - imports the solver

    brokers = tuple(Broker(broker, rack) for broker, rack in sorted(racks.items()))
    nowhere = "no rack" + "".join(sorted(set(racks.values())))
    members = tuple(
        # A rack of no broker: without one, a partition that could be local would count as well placed there.
        Member(f"{number}-{slot}", frozenset({_TOPIC}), executor.rack or nowhere)
        for number, executor in enumerate(executors)
        for slot in range(executor.slots)
    )
    group = Group(Topology(brokers, {_TOPIC: tuple(partitions)}), members)
    return Locality.of(group, plan_sticky(group, Options())).local / len(partitions)
