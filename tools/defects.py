"""kafka-python's defects on real brokers, without and with the patches: what `make defects` shows.

The tests hold each defect where it bites, every time. Here nothing is held: the same situations as they come, counted.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from threading import Event, Thread
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as HostPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError

from benchmarks.tables import Sheet, show, write_markdown
from rackassign import FetchMeter, RackAwareCooperativeStickyAssignor, RackAwareRangeAssignor, attach
from rackassign.clients.kafka_python import PATCHES
from rackassign.testing import Cluster, LocalCluster, create_topic
from rackassign.testing.harness import Traffic, wait_until
from rackassign.wire import Subscription, encode_subscription
from tests.helpers.kafka.consumers import EXPIRING, covers, numbers, settled, together
from tests.helpers.kafka.scenarios import (
    BATCHES,
    FOLLOWER,
    HOST,
    LEADER,
    OURS,
    VALID_SUBSCRIPTION,
    Kind,
    MalformedMetadataAssignor,
    ScenarioGroup,
    expelled_beside_a_joiner,
    fill,
    read,
    unsubscribed,
)

Row = tuple[str, str, str]
"""A situation, how it goes with kafka-python alone, and how with us."""


@dataclass
class ScenarioCluster:
    """A cluster, and names that were not used before."""

    cluster: Cluster
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def name(self) -> str:
        return f"scene-{next(self._numbers)}"

    def topic(self, partitions: int = 0, *, replicas: Sequence[Sequence[int]] = ()) -> str:
        name = self.name()
        create_topic(self.cluster.bootstrap, name, replicas or [[1 + p % 3] for p in range(partitions)])
        return name

    @contextmanager
    def consumers(self, *makers: Callable[[], KafkaConsumer]) -> Iterator[list[KafkaConsumer]]:
        with ExitStack() as opened:
            made = []
            for make in makers:
                made.append(make())
                opened.callback(made[-1].close, timeout_ms=3000)
            yield made

    def admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(bootstrap_servers=self.cluster.bootstrap)

    def stock(self, *topics: str, **config: Any) -> KafkaConsumer:
        """Return a consumer as kafka-python has it."""
        return KafkaConsumer(*topics, bootstrap_servers=self.cluster.bootstrap, **{**EXPIRING, **config})

    def patched(self, *topics: str, **config: Any) -> KafkaConsumer:
        return attach(self.stock(*topics, **config))

    def without(self, patch: str) -> Callable[..., KafkaConsumer]:
        """Make consumers with all patches but this one, so that it is this defect that is seen and no other."""
        return lambda *topics, **config: attach(self.stock(*topics, **config), disable_patches=[patch])


def shown(values: Sequence[float], unit: str) -> str:
    """Write figures of several runs."""
    low, high = min(values), max(values)
    return f"{low:.2g} {unit}" if low == high else f"{low:.2g} to {high:.2g} {unit}"


WATCHED_S = 5.0
"""How long a scene is watched that may never come to its end."""

RUNS = 3

BAD = {
    "rack cut off": VALID_SUBSCRIPTION[:-2],
    "no bytes at all": b"",
    "topic not UTF-8": VALID_SUBSCRIPTION.replace(b"\0\1t", b"\0\1\xff"),
    "illegal topic name": encode_subscription(Subscription(("bad topic/!",))),
}


def broken_members(scene: ScenarioCluster) -> list[Row]:
    """Return what a leader does beside a member that sends broken bytes."""

    def play(make: Callable[..., KafkaConsumer], strategy: Callable[[], object], data: bytes) -> str:
        topic, group = scene.topic(4), scene.name()

        def good() -> KafkaConsumer:
            return make(topic, group_id=group, partition_assignment_strategy=[strategy()])

        with scene.consumers(good, good) as members:
            wait_until(settled(members[:1], topic, 4), "a leader")
            wait_until(settled(members, topic, 4), "two members")
            before = members[0].group_metadata().generation_id

            def bad() -> KafkaConsumer:
                strategy = [MalformedMetadataAssignor(data)]
                return scene.stock(topic, group_id=group, partition_assignment_strategy=strategy)

            with scene.consumers(bad) as (third,):
                raised, begun = 0, time.monotonic()
                while time.monotonic() - begun < WATCHED_S:
                    third.poll(timeout_ms=10)
                    for member in members:
                        try:
                            member.poll(timeout_ms=20)
                        except Exception:  # noqa: BLE001 - which one it is does not matter here
                            raised += 1
                    joined = third.group_metadata().generation_id > before
                    if joined and together(members, topic, 4):
                        return f"assigned after {time.monotonic() - begun:.1f} s"
                return f"no member assigned in {WATCHED_S:.0f} s, {raised} errors out of poll()"

    return [
        (
            f"a member sends: {what}",
            play(scene.without("tolerate_malformed_metadata"), RangePartitionAssignor, data),
            play(scene.patched, lambda: RackAwareRangeAssignor(rack="a"), data),
        )
        for what, data in BAD.items()
    ]


def joins_between_polls(scene: ScenarioCluster) -> list[Row]:
    """Return how long a lone consumer needs to its first assignment, by the rhythm of its loop."""

    def play(make: Callable[..., KafkaConsumer], poll_ms: int, work_s: float) -> str:
        topic = scene.topic(3)
        with scene.consumers(lambda: make(topic, group_id=scene.name())) as (consumer,):
            begun = time.monotonic()
            while time.monotonic() - begun < 2 * WATCHED_S:
                consumer.poll(timeout_ms=poll_ms)
                if covers([consumer], topic, 3):
                    return f"{time.monotonic() - begun:.1f} s"
                time.sleep(work_s)
            return f"never in {2 * WATCHED_S:.0f} s, {consumer.group_metadata().generation_id} generations"

    rhythms = [(0, 0.001), (0, 0.01), (0, 0.1), (0, 0.7), (10, 0.5), (100, 1.0), (1000, 1.0)]
    return [
        (f"poll({ms}), then {work:g} s of work", play(scene.stock, ms, work), play(scene.patched, ms, work))
        for ms, work in rhythms
    ]


def claims(scene: ScenarioCluster) -> list[Row]:
    """Return what partitions are left to nobody in a stable cooperative group."""

    def play(kind: Kind, name: str) -> str:
        unowned = []
        for _ in range(RUNS):
            stage = ScenarioGroup(scene.cluster.bootstrap, scene.name(), scene.topic)
            with closing(stage):
                outcome = (
                    expelled_beside_a_joiner(stage, kind, kind)
                    if name == "expelled"
                    else unsubscribed(stage, kind, kind, leaver_leads=False)
                )
                unowned.append(outcome.unowned)
        return f"{', '.join(map(str, unowned))} partitions unowned"

    return [
        (f"a member expelled beside a joiner, {RUNS} runs", play(HOST, "expelled"), play(OURS, "expelled")),
        (f"a follower unsubscribes a topic, {RUNS} runs", play(HOST, "unsubscribed"), play(OURS, "unsubscribed")),
    ]


class Reader(Thread):
    """Polls a consumer, and notes for each partition the longest time without a record.

    Args:
        consumer: Polled by nobody else.
        work_s: Between two polls.
        commits: Whether it commits after each poll, and waits for that.
    """

    def __init__(self, consumer: KafkaConsumer, work_s: float, *, commits: bool = False) -> None:
        super().__init__(daemon=True)
        self.consumer = consumer
        self.work_s = work_s
        self.commits = commits
        self.over = Event()
        self.gaps: dict[int, float] = {}
        self._last: dict[int, float] = {}

    def run(self) -> None:
        while not self.over.wait(self.work_s):
            for place in self.consumer.poll(timeout_ms=50):
                now = time.monotonic()
                before = self._last.get(place.partition, now)
                self.gaps[place.partition] = max(self.gaps.get(place.partition, 0.0), now - before)
                self._last[place.partition] = now
            if self.commits and self._last:
                # The host refuses while its group rebalances.
                with suppress(KafkaError):
                    self.consumer.commit()

    def stop(self) -> None:
        self.over.set()
        self.join()


def pauses(scene: ScenarioCluster) -> list[Row]:
    """Return the longest pause of a partition that its member keeps, when a third member joins."""

    def play(
        make: Callable[..., KafkaConsumer], strategy: Callable[[], object], work_s: float, *, commits: bool
    ) -> str:
        topic, group = scene.topic(6), scene.name()

        def member() -> KafkaConsumer:
            return make(topic, group_id=group, partition_assignment_strategy=[strategy()], auto_offset_reset="latest")

        traffic = Traffic(scene.cluster.client_config(), [topic], rate=500, tolerant=True)
        with traffic, scene.consumers(member, member) as two, ExitStack() as reading:

            def read_with(consumer: KafkaConsumer, work_s: float = 0.0, *, commits: bool = False) -> Reader:
                reader = Reader(consumer, work_s, commits=commits)
                reader.start()
                reading.callback(reader.stop)
                return reader

            first, _ = read_with(two[0], commits=commits), read_with(two[1], work_s)
            wait_until(lambda: covers(two, topic, 6), "two members")
            wait_until(lambda: len(numbers(two[0])) == 3 and first.gaps.keys() >= set(numbers(two[0])), "records read")
            held = set(numbers(two[0]))
            first.gaps.clear()
            with scene.consumers(member) as (third,):
                joining = read_with(third)
                wait_until(lambda: covers([*two, third], topic, 6) and len(numbers(third)) == 2, "three members")
                kept = held & set(numbers(two[0]))
                time.sleep(1.0)
                gap = max(first.gaps.get(p, 0.0) for p in kept)
                joining.stop()
        return shown([gap], "s") if kept else "nothing kept"

    ours = lambda: RackAwareCooperativeStickyAssignor(rack="a")  # noqa: E731
    return [
        (
            f"pause of kept partitions, {what}",
            play(scene.without("fetch_during_rebalance"), CooperativeStickyAssignor, work_s, commits=commits),
            play(scene.patched, ours, work_s, commits=commits),
        )
        for what, work_s, commits in (
            ("all members poll at once", 0.0, False),
            ("one works 1.5 s between polls", 1.5, False),
            ("the same, with commit() after each poll", 1.5, True),
        )
    ]


def partitions_added(scene: ScenarioCluster) -> list[Row]:
    """Return whether a consumer of short polls goes on after partitions were added to its topic."""

    def play(make: Callable[..., KafkaConsumer]) -> str:
        topic, group = scene.topic(2), scene.name()
        with scene.consumers(lambda: make(topic, group_id=group, metadata_max_age_ms=300)) as (consumer,):
            # With long polls, in which a join is not lost.
            wait_until(lambda: not consumer.poll(timeout_ms=1500) and covers([consumer], topic, 2), "two partitions")
            with closing(scene.admin()) as admin:
                admin.create_partitions({topic: {"count": 3, "assignments": [[1]]}})
            begun = time.monotonic()
            while time.monotonic() - begun < 2 * WATCHED_S:
                consumer.poll(timeout_ms=0)
                if covers([consumer], topic, 3):
                    return f"{time.monotonic() - begun:.1f} s"
                time.sleep(0.2)
            return f"never in {2 * WATCHED_S:.0f} s; state {consumer.group_metadata().state}"

    return [("poll(0), then 0.2 s of work, a partition is added", play(scene.stock), play(scene.patched))]


Make = Callable[[], KafkaConsumer]


def follower_consumer(scene: ScenarioCluster, topic: str, meter: FetchMeter, *, patched: bool) -> KafkaConsumer:
    """Return a reader in the follower's rack; without patches it is only counted."""
    off = [] if patched else [patch.name for patch in PATCHES]
    consumer = scene.stock(client_rack="a", group_id=None, max_partition_fetch_bytes=1)
    consumer.assign([HostPartition(topic, 0)])
    return attach(consumer, disable_patches=off, meter=meter)


def followers(scene: ScenarioCluster) -> list[Row]:
    """Return who is asked when a topic is read from a follower, and for how long nothing is read when it dies."""

    def answers(*, mended: bool) -> str:
        topic, meter = scene.topic(replicas=[[LEADER, FOLLOWER]]), FetchMeter()
        fill(scene.cluster, topic, BATCHES)
        begun = time.monotonic()
        with closing(follower_consumer(scene, topic, meter, patched=mended)) as consumer:
            read(consumer, BATCHES)
        asked = meter.responses_by_broker()
        return f"leader {asked[LEADER]}, follower {asked[FOLLOWER]}; {time.monotonic() - begun:.2f} s"

    def death(*, mended: bool) -> str:
        topic = scene.topic(replicas=[[LEADER, FOLLOWER]])
        fill(scene.cluster, topic, BATCHES)
        with closing(follower_consumer(scene, topic, FetchMeter(), patched=mended)) as consumer:
            read(consumer, 3)
            scene.cluster.kill(FOLLOWER)
            begun = time.monotonic()
            read(consumer, BATCHES - 3)
            needed = time.monotonic() - begun
        scene.cluster.start(FOLLOWER)
        scene.cluster.wait_ready()
        return f"{needed:.1f} s"

    return [
        (f"{BATCHES} batches from a follower: answers by", answers(mended=False), answers(mended=True)),
        ("the follower is killed: the rest is read in", death(mended=False), death(mended=True)),
    ]


SCENES: Mapping[str, tuple[str, Callable[[ScenarioCluster], list[Row]]]] = {
    "members": (
        "A member that sends malformed metadata (left: all patches but tolerate_malformed_metadata)",
        broken_members,
    ),
    "claims": ("Unowned partitions in a stable group", claims),
    "joins": ("Joins that complete between two polls", joins_between_polls),
    "added": ("Joins that a metadata change starts", partitions_added),
    "pauses": ("Cooperative rebalances (left: all patches but fetch_during_rebalance)", pauses),
    "followers": ("Fetching from followers", followers),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.defects", description=__doc__)
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=f"{', '.join(SCENES)}; all if left out")
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="the document to write the tables into")
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.scenes if name not in SCENES]
    if unknown:
        parser.error(f"no scene {', '.join(unknown)}; there are {', '.join(SCENES)}")
    # What kafka-python logs about its defects is not counted here.
    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)
    logging.getLogger("rackassign").setLevel(logging.ERROR)
    stock = f"kafka-python {version('kafka-python')}"
    sheets = []
    with LocalCluster(["a", "b", "c"]) as cluster:
        scene = ScenarioCluster(cluster)
        for name in chosen.scenes or SCENES:
            title, play = SCENES[name]
            sheets.append(Sheet(title, ("", stock, "rackassign"), play(scene)))
            show(sheets[-1:])
    if chosen.markdown is not None:
        write_markdown(chosen.markdown, "defects", sheets)


if __name__ == "__main__":
    main()
