"""A cluster as placement uses it: brokers, and the replica lists of topics."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rackassign import scenario
from rackassign.errors import InputError
from rackassign.model import Broker, Topology
from rackassign.text import short_repr

ReplicaLists = Mapping[str, tuple[tuple[int, ...], ...]]
"""For each topic, broker IDs by partition, preferred leader first. An ID below 0 is a replica that is not placed."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Brokers, and the replica lists of topics.

    Args:
        brokers: All registered brokers, with distinct IDs.
        topics: Replica lists; an ID without a broker is a lost replica.
        weights: For some brokers the load that they are to carry relative to others, above 0; 1 for the rest.
    """

    brokers: tuple[Broker, ...]
    topics: ReplicaLists = field(default_factory=dict)
    weights: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        Topology(self.brokers, {})
        known = {broker.id for broker in self.brokers}
        for broker, weight in self.weights.items():
            check_weight(f"weights.{broker}", weight)
            if broker not in known:
                raise InputError(f"weights.{broker}", "the broker does not exist")
        for topic, lists in self.topics.items():
            for partition, replicas in enumerate(lists):
                for i, replica in enumerate(replicas):
                    if type(replica) is not int:
                        path = f"topics.{topic}[{partition}][{i}]"
                        raise InputError(path, f"expected an integer, got {short_repr(replica)}")

    @classmethod
    def of(cls, topology: Topology, weights: Mapping[int, float] | None = None) -> Layout:
        """Return the layout of a topology; a replica that is listed twice counts once."""
        topics = {
            topic: tuple(tuple(dict.fromkeys(partition.replicas)) for partition in partitions)
            for topic, partitions in topology.topics.items()
        }
        return cls(topology.brokers, topics, weights or {})

    @classmethod
    def read(cls, value: Any) -> Layout:  # noqa: ANN401 - parsed JSON; what it is gets checked
        """Return the layout of parsed JSON: `brokers` and `topics` as in a `rackassign/1` scenario.

        A broker may have a `weight`. A whole scenario is accepted as well; its group is ignored.

        Raises:
            InputError: A field does not have this format; the message names it.
        """
        if not isinstance(value, dict):
            raise InputError("", f"expected an object, got {short_repr(value)}")
        weights: dict[int, float] = {}
        found = {"format": scenario.SCENARIO_FORMAT, "members": []} | value
        if isinstance(found.get("brokers"), list):
            found["brokers"] = [_without_weight(i, entry, weights) for i, entry in enumerate(found["brokers"])]
        return cls.of(scenario.read_group(found).topology, weights)

    def to_json(self) -> dict[str, Any]:
        """Return the layout as JSON that `read` accepts."""
        brokers = [
            {"id": broker.id, "rack": broker.rack}
            | ({"fenced": True} if broker.fenced else {})
            | ({"weight": self.weights[broker.id]} if broker.id in self.weights else {})
            for broker in self.brokers
        ]
        topics = {topic: [list(replicas) for replicas in lists] for topic, lists in self.topics.items()}
        return {"format": scenario.SCENARIO_FORMAT, "brokers": brokers, "topics": topics}

    def with_topics(self, topics: Mapping[str, Iterable[Sequence[int]]]) -> Layout:
        """Return the layout with other replica lists; topics that are not given keep theirs."""
        lists = {topic: tuple(tuple(replicas) for replicas in partitions) for topic, partitions in topics.items()}
        return replace(self, topics={**self.topics, **lists})

    def racks(self) -> dict[int, str | None]:
        """Return the rack of every broker by ID."""
        return {broker.id: broker.rack for broker in self.brokers}


def known_brokers(brokers: Iterable[Broker], topics: ReplicaLists) -> set[int]:
    """Return the brokers that are listed or have replicas: before Kafka 4.0, clusters list no offline brokers."""
    return {broker.id for broker in brokers} | {
        broker for lists in topics.values() for replicas in lists for broker in replicas
    }


def check_weight(path: str, weight: object) -> None:
    """Refuse anything but a number above 0.

    Raises:
        InputError: The weight is no such number.
    """
    if isinstance(weight, bool) or not isinstance(weight, (int, float)):
        raise InputError(path, f"expected a number, got {short_repr(weight)}")
    # A comparison, since an integer may be too large for a float.
    if not 0 < weight <= sys.float_info.max:
        raise InputError(path, f"expected a finite number above 0, got {short_repr(weight)}")


def _without_weight(index: int, entry: Any, weights: dict[int, float]) -> Any:  # noqa: ANN401 - parsed JSON
    """Remove the weight from a broker of a scenario; other errors in it are left to the scenario's own checks."""
    if not isinstance(entry, dict) or "weight" not in entry:
        return entry
    rest = {key: found for key, found in entry.items() if key != "weight"}
    check_weight(f"brokers[{index}].weight", entry["weight"])
    if type(rest.get("id")) is int:
        weights[rest["id"]] = entry["weight"]
    return rest
