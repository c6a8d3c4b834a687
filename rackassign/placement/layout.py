"""A cluster as placement uses it: brokers, the replica lists of topics, and the quality of a layout."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from rackassign import scenario
from rackassign.errors import InputError
from rackassign.model import Broker, TopicPartition, Topology
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
        fields = {"format": scenario.SCENARIO_FORMAT, "members": []} | value
        if isinstance(fields.get("brokers"), list):
            fields["brokers"] = [_without_weight(i, entry, weights) for i, entry in enumerate(fields["brokers"])]
        return cls.of(scenario.read_group(fields).topology, weights)

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

    def with_lists(self, lists: Mapping[TopicPartition, tuple[int, ...]]) -> Layout:
        """Return the layout with other replica lists of some partitions."""
        rows = {
            topic: [lists.get(TopicPartition(topic, number), row) for number, row in enumerate(self.topics[topic])]
            for topic in {tp.topic for tp in lists}
        }
        return self.with_topics(rows)

    def racks(self) -> dict[int, str | None]:
        """Return the rack of every broker by ID."""
        return {broker.id: broker.rack for broker in self.brokers}


def known_brokers(brokers: Iterable[Broker], topics: ReplicaLists) -> set[int]:
    """Return the brokers that are listed or have replicas: before Kafka 4.0, clusters list no offline brokers."""
    return {broker.id for broker in brokers} | {
        broker for lists in topics.values() for replicas in lists for broker in replicas
    }


def check_weight(path: str, weight: object) -> None:
    """Refuse anything but a number above 0."""
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


_Who = TypeVar("_Who", int, str | None)


@dataclass(frozen=True, slots=True)
class LayoutMetrics:
    """Quality of a layout.

    Loads are the largest ones relative to the fair load, by weight if there is any: 1.0 is even.

    Args:
        partitions: Number of partitions.
        replicas: Replicas of all of them that are placed on existing brokers.
        missing: Replicas on brokers that do not exist, or not placed.
        replicas_per_broker: Largest load of a broker.
        leaders_per_broker: Largest load of a broker with preferred leaders.
        leaders_per_topic: Largest load of a broker with leaders of one topic, for the topic where it is largest, beyond
            what integer numbers make unavoidable: 1.0 if no topic could be more even.
        replicas_per_rack: Largest load of a rack, relative to racks of equal load.
        leaders_per_rack: Largest load of a rack with preferred leaders.
        sharing: Partitions in fewer racks than possible.
        leaders_after_loss: Largest load with leaders after the loss of any one broker, once the next replicas have
            taken over, relative to the fair load of the remaining brokers.
        replicas_with_rack: Share of all replicas that is lost with the rack that has most.
        leaders_with_rack: Share of all preferred leaders that is lost with the rack that has most.
        gone_with_rack: Partitions with all replicas in one rack.
        moved: Replicas on brokers that did not have them before; None without a layout to compare to.
    """

    partitions: int
    replicas: int
    missing: int
    replicas_per_broker: float
    leaders_per_broker: float
    leaders_per_topic: float
    replicas_per_rack: float
    leaders_per_rack: float
    sharing: int
    leaders_after_loss: float
    replicas_with_rack: float
    leaders_with_rack: float
    gone_with_rack: int
    moved: int | None = None

    @classmethod
    def among(cls, layout: Layout, topics: Iterable[str], before: Layout | None = None) -> LayoutMetrics:
        """Compute metrics in which partitions are counted for some topics only; loads include all topics."""
        chosen = set(topics)
        part = replace(layout, topics={topic: rows for topic, rows in layout.topics.items() if topic in chosen})
        mine = cls.of(part, before)
        counts = ("partitions", "replicas", "missing", "sharing", "gone_with_rack", "moved", "leaders_per_topic")
        return replace(cls.of(layout, before), **{name: getattr(mine, name) for name in counts})

    @classmethod
    def of(cls, layout: Layout, before: Layout | None = None) -> LayoutMetrics:
        """Compute metrics of a layout, compared to an earlier one if given. Brokers without a rack form one rack."""
        racks = layout.racks()
        lists = [replicas for topic in sorted(layout.topics) for replicas in layout.topics[topic]]
        placed = [[broker for broker in replicas if broker in racks] for replicas in lists]
        weights = {broker: float(layout.weights.get(broker, 1)) for broker in racks}
        per_rack = dict.fromkeys(racks.values(), 1.0)
        replicas = Counter(broker for own in placed for broker in own)
        leaders = Counter(own[0] for own in placed if own)
        rack_replicas, rack_leaders = _by_rack(replicas, racks), _by_rack(leaders, racks)
        used = [{racks[broker] for broker in own} for own in placed]
        return cls(
            partitions=len(lists),
            replicas=replicas.total(),
            missing=sum(map(len, lists)) - replicas.total(),
            replicas_per_broker=_peak(replicas, weights),
            leaders_per_broker=_peak(leaders, weights),
            leaders_per_topic=max((_topic_peak(lists, weights) for lists in layout.topics.values()), default=1.0),
            replicas_per_rack=_peak(rack_replicas, per_rack),
            leaders_per_rack=_peak(rack_leaders, per_rack),
            sharing=sum(
                len(own_racks) < min(len(own), len(per_rack)) for own_racks, own in zip(used, placed, strict=True)
            ),
            leaders_after_loss=_after_loss(placed, leaders, weights),
            replicas_with_rack=_largest_share(rack_replicas),
            leaders_with_rack=_largest_share(rack_leaders),
            gone_with_rack=sum(len(own_racks) == 1 for own_racks in used),
            moved=None if before is None else moved(before, layout),
        )


def moved(before: Layout, after: Layout) -> int:
    """Count replicas on brokers that did not have them before."""
    count = 0
    for topic, lists in after.topics.items():
        old = before.topics.get(topic, ())
        for partition, replicas in enumerate(lists):
            had = old[partition] if partition < len(old) else ()
            count += sum(broker >= 0 and broker not in had for broker in replicas)
    return count


def _by_rack(counts: Mapping[int, int], racks: Mapping[int, str | None]) -> Counter[str | None]:
    found: Counter[str | None] = Counter()
    for broker, count in counts.items():
        found[racks[broker]] += count
    return found


def _peak(counts: Mapping[_Who, int], weights: Mapping[_Who, float]) -> float:
    total, capacity = sum(counts.values()), sum(weights.values())
    return (
        max((count / weights[who] for who, count in counts.items()), default=0.0) * capacity / total if total else 1.0
    )


def _topic_peak(lists: Iterable[tuple[int, ...]], weights: Mapping[int, float]) -> float:
    leaders = Counter(replicas[0] for replicas in lists if replicas and replicas[0] in weights)
    if not leaders:
        return 1.0
    share = leaders.total() / sum(weights.values())
    return max(count / -(-share * weights[broker] // 1) for broker, count in leaders.items())


def _largest_share(counts: Mapping[str | None, int]) -> float:
    return max(counts.values(), default=0) / max(1, sum(counts.values()))


def _after_loss(placed: list[list[int]], leaders: Mapping[int, int], weights: Mapping[int, float]) -> float:
    taken: dict[int, Counter[int]] = {}
    for own in placed:
        if len(own) > 1:
            taken.setdefault(own[0], Counter())[own[1]] += 1
    worst = 1.0
    for lost, more in sorted(taken.items()):
        after = Counter({broker: count for broker, count in leaders.items() if broker != lost})
        after.update(more)
        worst = max(worst, _peak(after, {broker: w for broker, w in weights.items() if broker != lost}))
    return worst
