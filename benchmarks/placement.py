"""Where replicas go: the controller, AdminUtils and the exact placer, side by side: `python -m benchmarks.placement`.

All figures are ratios to the fair load, or counts; they do not depend on the machine, only seconds do.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.tables import Sheet, show, write_markdown
from rackassign.model import Broker
from rackassign.placement import Layout, LayoutMetrics, Placement, PlacementConstraints, load_placer, rebalance
from rackassign.placement.optimal_placer import rebalance_leaders

SEED = 2026
SEEDS = 5

NEW = (
    "racks, topics x partitions",
    "placer",
    "replicas",
    "leaders",
    "of a topic",
    "by rack",
    "after a loss",
    "sharing",
)
MOVED = ("task", "moved anew", "replicas", "moved", "least", "replicas", "leaders", "proven", "s")
IN_PLACE = (
    "racks, topics x partitions",
    "who is next",
    "of a topic",
    "then",
    "leaders",
    "then",
    "after a loss",
    "then",
    "lists changed",
    "leaders changed",
    "proven",
    "s",
)
NEAR = ("replicas, readers", "first", "near before", "near", "moved", "replicas", "leaders", "proven", "s")
LARGE = ("partitions x brokers, topics", "moved", "least", "replicas", "leaders", "after a loss", "proven", "s")

PLACERS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "controller": ("striped", {}),
    "AdminUtils": ("kafka", {}),
    "optimal": ("optimal", {}),
    "optimal, leaders by rack": ("optimal", {"leaders": "rack"}),
    "optimal, leaders mixed": ("optimal", {"leaders": "mixed"}),
}


@dataclass(frozen=True, slots=True)
class Work:
    """Topics to place."""

    sizes: tuple[int, ...]
    topics: int
    partitions: int
    replicas: int

    @property
    def name(self) -> str:
        racks = "/".join(map(str, self.sizes))
        return f"{racks}, {self.topics} x {self.partitions} RF {self.replicas}"


WORKS = (
    Work((3, 3, 3), 1, 9, 3),
    Work((3, 3, 3), 50, 9, 3),
    Work((2, 2, 2), 100, 3, 3),
    Work((3, 3, 3, 3), 200, 1, 3),
    Work((3, 2, 1), 1, 60, 2),
    Work((3, 2, 1), 1, 60, 3),
    Work((10, 10, 1), 1, 63, 2),
    Work((5, 3), 1, 64, 3),
    Work((5, 3), 1, 64, 4),
)


def brokers_in(*sizes: int) -> tuple[Broker, ...]:
    racks = [chr(ord("a") + rack) for rack, size in enumerate(sizes) for _ in range(size)]
    return tuple(Broker(number, rack) for number, rack in enumerate(racks, 1))


def placed(work: Work, placer: str, seed: int) -> LayoutMetrics:
    """Place topic after topic, as they are created; the exact placer sees what is there."""
    name, configs = PLACERS[placer]
    layout = Layout(brokers_in(*work.sizes))
    if name == "optimal":
        topics = {f"t{number:04d}": ((),) * work.partitions for number in range(work.topics)}
        rules = PlacementConstraints.of(configs)
        found = rebalance(layout.with_topics(topics), rules, replication_factor=work.replicas)
        return LayoutMetrics.of(layout.with_topics(found.topics))
    lists = {
        f"t{number:04d}": load_placer(name, {"seed": seed * 100_003 + number}).place(
            0, work.partitions, work.replicas, layout.brokers
        )
        for number in range(work.topics)
    }
    return LayoutMetrics.of(layout.with_topics(lists))


def quality_rows(seeds: int) -> Iterator[tuple[str, ...]]:
    for work in WORKS:
        for placer in PLACERS:
            drawn = [placed(work, placer, seed) for seed in range(seeds if "optimal" not in placer else 1)]
            middle = [
                statistics.median(getattr(quality, field) for quality in drawn)
                for field in (
                    "replicas_per_broker",
                    "leaders_per_broker",
                    "leaders_per_topic",
                    "leaders_per_rack",
                    "leaders_after_loss",
                )
            ]
            yield (work.name, placer, *(f"{figure:.2f}" for figure in middle), str(max(q.sharing for q in drawn)))


def rack_blind(brokers: tuple[Broker, ...], partitions: int, replicas: int, seed: int, topics: int = 1) -> Layout:
    rng = random.Random(seed)
    ids = [broker.id for broker in brokers]
    size = partitions // topics
    return Layout(
        brokers,
        {f"t{topic:04d}": tuple(tuple(rng.sample(ids, replicas)) for _ in range(size)) for topic in range(topics)},
    )


@dataclass(frozen=True, slots=True)
class Solved:
    """A task and its answer."""

    before: Layout
    placement: Placement
    quality: LayoutMetrics
    seconds: float

    @classmethod
    def of(cls, before: Layout, solve: Callable[..., Placement] = rebalance, **options: Any) -> Solved:
        started = time.perf_counter()
        placement = solve(before, **options)
        seconds = time.perf_counter() - started
        return cls(before, placement, LayoutMetrics.of(before.with_topics(placement.topics), before), seconds)

    @property
    def certainty(self) -> str:
        return "yes" if self.placement.proven else "; ".join(self.placement.notes)

    def changed(self, depth: int | None = None) -> str:
        """Which share of the lists is not what it was, or not as far as this."""
        pairs = [
            pair
            for topic, lists in self.before.topics.items()
            for pair in zip(lists, self.placement.topics[topic], strict=True)
        ]
        return f"{sum(old[:depth] != new[:depth] for old, new in pairs) / len(pairs):.0%} of {len(pairs):,}"


def anew(before: Layout, replicas: int) -> LayoutMetrics:
    """What `kafka-reassign-partitions --generate` gives."""
    lists = {
        topic: load_placer("kafka").place(0, len(partitions), replicas, before.brokers)
        for topic, partitions in before.topics.items()
    }
    return LayoutMetrics.of(before.with_topics(lists), before)


def movement_rows(seed: int) -> Iterator[tuple[str, ...]]:
    nine = brokers_in(3, 3, 3)
    blind = rack_blind(nine, 600, 3, seed)
    good = rebalance(blind).topics
    single = rebalance(rack_blind(nine, 600, 1, seed), PlacementConstraints(coverage="even")).topics
    tasks: list[tuple[str, Callable[[], Solved], int]] = [
        ("rack-blind on 3/3/3 to distinct racks", lambda: Solved.of(blind), 3),
        ("new rack d with 3 brokers", lambda: Solved.of(Layout(brokers_in(3, 3, 3, 3), good)), 3),
        ("one of 9 brokers gone", lambda: Solved.of(Layout(nine[:-1], good)), 3),
        ("RF 1 to 3", lambda: Solved.of(Layout(nine, single), replication_factor=3), 3),
        ("nothing to do", lambda: Solved.of(Layout(nine, good)), 3),
    ]
    for name, solve, replicas in tasks:
        solved = solve()
        other = anew(solved.before, replicas)
        yield (
            name,
            str(other.moved),
            f"{other.replicas_per_broker:.2f}",
            str(solved.placement.moved),
            str(solved.placement.lower_bound),
            f"{solved.quality.replicas_per_broker:.2f}",
            f"{solved.quality.leaders_per_broker:.2f}",
            solved.certainty,
            f"{solved.seconds:.2f}",
        )


def as_the_controller_does(brokers: tuple[Broker, ...], sizes: list[int], seed: int) -> Layout:
    lists = {
        f"t{number:04d}": load_placer("striped", {"seed": seed + number}).place(0, size, 3, brokers)
        for number, size in enumerate(sizes)
    }
    return Layout(brokers).with_topics(lists)


def in_place_rows(seed: int) -> Iterator[tuple[str, ...]]:
    """Leaders that resonate with racks are evened without moving data."""
    nine = brokers_in(3, 3, 3)
    one_each = [9, 12, 18, 30, 60, 90]
    layouts = {
        "3/3/3, 50 x 9": as_the_controller_does(nine, [9] * 50, seed),
        "3/3/3, one of each of " + ", ".join(map(str, one_each)): as_the_controller_does(nine, one_each, seed),
        "3/3/3, 10 x 60, rack-blind": rack_blind(nine, 600, 3, seed, 10),
        "10/10/10, 1000 x 10, rack-blind": rack_blind(brokers_in(10, 10, 10), 10_000, 3, seed, 1000),
    }
    for name, before in layouts.items():
        old = LayoutMetrics.of(before)
        for keep in (True, False):
            solved = Solved.of(before, rebalance_leaders, keep_seconds=keep)
            new = solved.quality
            yield (
                name,
                "kept" if keep else "even",
                f"{old.leaders_per_topic:.2f}",
                f"{new.leaders_per_topic:.2f}",
                f"{old.leaders_per_broker:.2f}",
                f"{new.leaders_per_broker:.2f}",
                f"{old.leaders_after_loss:.2f}",
                f"{new.leaders_after_loss:.2f}",
                solved.changed(),
                solved.changed(1),
                solved.certainty,
                f"{solved.seconds:.2f}",
            )


def near(layout: Layout, readers: Mapping[str, float]) -> str:
    """How much of what is read has a replica in the reader's rack."""
    racks = layout.racks()
    held = [{racks[broker] for broker in replicas} for lists in layout.topics.values() for replicas in lists]
    found = sum(weight * sum(rack in own for own in held) for rack, weight in readers.items())
    return f"{found / (len(held) * sum(readers.values())):.0%}"


def near_rows(seed: int) -> Iterator[tuple[str, ...]]:
    """Replicas are brought to where a group reads, while the fourth broker of each rack is new and has none."""
    twelve, new = brokers_in(4, 4, 4), frozenset({4, 8, 12})
    old = tuple(broker for broker in twelve if broker.id not in new)
    for replicas in (1, 2):
        before = Layout(
            twelve, rebalance(rack_blind(old, 600, replicas, seed), PlacementConstraints(coverage="even")).topics
        )
        for readers in ({"a": 1.0, "b": 1.0}, {"a": 3.0, "b": 1.0, "c": 1.0}):
            for first in ("moves", "balance", "coverage"):
                solved = Solved.of(before, rules=PlacementConstraints.of({"coverage": readers, "first": first}))
                yield (
                    f"RF {replicas}, " + " ".join(f"{rack}:{weight:g}" for rack, weight in readers.items()),
                    first,
                    near(before, readers),
                    near(before.with_topics(solved.placement.topics), readers),
                    str(solved.placement.moved),
                    f"{solved.quality.replicas_per_broker:.2f}",
                    f"{solved.quality.leaders_per_broker:.2f}",
                    solved.certainty,
                    f"{solved.seconds:.2f}",
                )


def scale_rows(seed: int) -> Iterator[tuple[str, ...]]:
    for sizes, topics in (((2, 2, 2), 1), ((10, 10, 10), 1), ((10, 10, 10), 1000)):
        solved = Solved.of(rack_blind(brokers_in(*sizes), 10_000, 3, seed, topics))
        yield (
            f"10,000 x {sum(sizes)}, {topics}",
            str(solved.placement.moved),
            str(solved.placement.lower_bound),
            f"{solved.quality.replicas_per_broker:.3f}",
            f"{solved.quality.leaders_per_broker:.3f}",
            f"{solved.quality.leaders_after_loss:.3f}",
            solved.certainty,
            f"{solved.seconds:.1f}",
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.placement", description=__doc__)
    parser.add_argument("--seed", type=int, default=SEED, help="of layouts that are rack-blind (%(default)s)")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of placers that draw: their median (%(default)s)")
    parser.add_argument("--no-scale", action="store_true", help="without 10,000 partitions")
    parser.add_argument("--json", metavar="FILE", type=Path, help="for machines")
    parser.add_argument(
        "--markdown", metavar="FILE", type=Path, help="the document to write the tables into, between its marks"
    )
    options = parser.parse_args()
    sheets = [
        Sheet("New topics: largest load, relative to the fair one", NEW, list(quality_rows(options.seeds))),
        Sheet("600 partitions put right: replicas moved", MOVED, list(movement_rows(options.seed))),
        Sheet("Leaders evened in place, no data moved", IN_PLACE, list(in_place_rows(options.seed))),
        Sheet(
            "600 partitions brought to their readers; three of twelve brokers are new",
            NEAR,
            list(near_rows(options.seed)),
        ),
    ]
    if not options.no_scale:
        sheets.append(Sheet("10,000 rack-blind partitions of RF 3 put right", LARGE, list(scale_rows(options.seed))))
    show(sheets)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(sheet) for sheet in sheets], indent=1), encoding="utf-8")
    if options.markdown is not None:
        write_markdown(options.markdown, "placement", sheets)


if __name__ == "__main__":
    main()
