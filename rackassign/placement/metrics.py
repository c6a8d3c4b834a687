"""Quality of a layout, computed independently of any placer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from rackassign.placement.layout import Layout

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
