"""What share of a topic is read at home, without a rack, with one bound late, and with splits that are pulled.

Pure: neither Spark nor Kafka. Partitions count alike, and Spark deals tasks to slots as they come: for `off` and
`executor` these are means over many runs, of which a single one with few partitions may be far off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rackassign.locality import Locality
from rackassign.model import Broker, Group, Member, Partition, Topology

_TOPIC = "topic"


@dataclass(frozen=True, slots=True)
class Executor:
    """A process of Spark's that reads.

    Args:
        host: Where it runs.
        process: What tells it from others there.
        rack: Its rack; None if it does not know.
        slots: How many tasks it was seen to run side by side, 1 or more.
        cut_off: Addresses of the driver that its tasks could not connect to.
    """

    host: str
    process: int
    rack: str | None
    slots: int
    cut_off: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExpectedLocality:
    """What part is read at home, from 0 to 1.

    Args:
        none: Without racks: from leaders.
        executor: With the rack of each executor, where brokers let followers be read.
        pull: With splits chosen by the executor's rack as well: the most that is possible with even load.
    """

    none: float
    executor: float
    pull: float


def shares(
    executors: Sequence[Executor], partitions: Sequence[Partition], racks: Mapping[int, str]
) -> ExpectedLocality:
    """Work out what is to be expected.

    Args:
        executors: All of them.
        partitions: Of what is read.
        racks: The rack of each broker that has one.
    """
    slots = sum(executor.slots for executor in executors)
    if not slots or not partitions:
        return ExpectedLocality(0.0, 0.0, 0.0)
    off = late = 0.0
    for executor in executors:
        if executor.rack is None:
            continue
        led = sum(racks.get(-1 if p.leader is None else p.leader) == executor.rack for p in partitions)
        near = sum(any(racks.get(replica) == executor.rack for replica in p.replicas) for p in partitions)
        off += executor.slots * led
        late += executor.slots * near
    whole = slots * len(partitions)
    return ExpectedLocality(off / whole, late / whole, _pulled(executors, partitions, racks))


def _pulled(executors: Sequence[Executor], partitions: Sequence[Partition], racks: Mapping[int, str]) -> float:
    """Solve it as a group whose members are the slots."""
    from rackassign.strategies import Options, plan_sticky  # noqa: PLC0415 - brings the solver

    brokers = tuple(Broker(broker, rack) for broker, rack in sorted(racks.items()))
    members = tuple(
        Member(f"{number}-{slot}", frozenset({_TOPIC}), executor.rack)
        for number, executor in enumerate(executors)
        for slot in range(executor.slots)
    )
    group = Group(Topology(brokers, {_TOPIC: tuple(partitions)}), members)
    return Locality.of(group, plan_sticky(group, Options())).local / len(partitions)
