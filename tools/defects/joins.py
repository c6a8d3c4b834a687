"""Broken members, joins between two polls, what is kept while others join, claims that are not true."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from threading import Event, Thread

from kafka import KafkaConsumer, KafkaProducer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError

from rackassign import RackAwareCooperativeStickyAssignor, RackAwareRangeAssignor
from rackassign.testing.harness import wait_until
from rackassign.wire import Subscription, encode_subscription
from tests.helpers.kafka.consumers import covers, numbers, settled, together
from tests.helpers.kafka.scenarios import (
    HOST,
    OURS,
    VALID_SUBSCRIPTION,
    Kind,
    MalformedMetadataAssignor,
    ScenarioGroup,
    expelled_beside_a_joiner,
    unsubscribed,
)

from .environment import Row, ScenarioCluster, shown

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


def pauses(scene: ScenarioCluster) -> list[Row]:
    """Return the longest pause of a partition that its member keeps, when a third member joins."""

    def play(
        make: Callable[..., KafkaConsumer], strategy: Callable[[], object], work_s: float, *, commits: bool
    ) -> str:
        topic, group = scene.topic(6), scene.name()

        def member() -> KafkaConsumer:
            return make(topic, group_id=group, partition_assignment_strategy=[strategy()], auto_offset_reset="latest")

        sending = Event()

        def send() -> None:
            with closing(KafkaProducer(bootstrap_servers=scene.cluster.bootstrap)) as producer:
                i = 0
                while not sending.wait(0.002):
                    producer.send(topic, b"x", partition=i % 6)
                    i += 1

        with scene.consumers(member, member) as two:
            readers = [Reader(two[0], 0.0, commits=commits), Reader(two[1], work_s)]
            sender = Thread(target=send, daemon=True)
            for thread in (*readers, sender):
                thread.start()
            try:
                wait_until(lambda: covers(two, topic, 6), "two members")
                wait_until(
                    lambda: len(numbers(two[0])) == 3 and readers[0].gaps.keys() >= set(numbers(two[0])), "records read"
                )
                held = set(numbers(two[0]))
                readers[0].gaps.clear()
                with scene.consumers(member) as (third,):
                    readers.append(Reader(third, 0.0))
                    readers[-1].start()
                    everybody = [*two, third]
                    wait_until(lambda: covers(everybody, topic, 6) and len(numbers(third)) == 2, "three members")
                    kept = held & set(numbers(two[0]))
                    time.sleep(1.0)
                    gap = max(readers[0].gaps.get(p, 0.0) for p in kept)
                    readers[-1].over.set()
                    readers[-1].join()
            finally:
                sending.set()
                for reader in readers:
                    reader.over.set()
                for thread in (*readers, sender):
                    thread.join()
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
