"""Reading from followers, and what looks like a change of racks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import closing

from kafka import KafkaConsumer
from kafka import TopicPartition as HostPartition

from rackassign import FetchMeter, RackAwareCooperativeStickyAssignor, attach
from rackassign.clients.kafka_python import PATCHES
from rackassign.testing.harness import wait_until
from tests.helpers.kafka.consumers import covers
from tests.helpers.kafka.scenarios import BATCHES, FOLLOWER, LEADER, SOON, WATCHER, Naive, fill, read

from .environment import Row, ScenarioCluster

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


class TriggerCounter(logging.Handler):
    """Counts what the watch asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        del record
        self.count += 1


def watching(scene: ScenarioCluster) -> list[Row]:
    """Return how often racks seem to change, and how often a rebalance is asked for."""
    log, asked = logging.getLogger(WATCHER), TriggerCounter()
    log.addHandler(asked)
    log.setLevel(logging.INFO)
    replicas = [[1, 2], [2, 3], [3, 1]] * 2
    topic, group = scene.topic(replicas=replicas), scene.name()

    def member(rack: str) -> KafkaConsumer:
        strategy = [RackAwareCooperativeStickyAssignor(rack=rack, rack_monitor=SOON)]
        return scene.patched(
            topic, group_id=group, client_rack=rack, partition_assignment_strategy=strategy, metadata_max_age_ms=300
        )

    rows: list[Row] = []
    with (
        scene.consumers(*(lambda rack=rack: member(rack) for rack in "abc")) as members,
        closing(scene.admin()) as admin,
    ):

        def settled() -> bool:
            for each in members:
                each.poll(timeout_ms=20)
            return covers(members, topic, len(replicas))

        wait_until(settled, "three members")
        naive = Naive(members[0], topic)

        def until(condition: Callable[[], bool], what: str) -> None:
            wait_until(lambda: settled() and condition(), what)

        def note(what: str, changes: int, triggers: int) -> None:
            rows.append((what, f"{naive.changes - changes} changes seen", f"{asked.count - triggers} triggers"))

        before = naive.changes, asked.count
        scene.cluster.kill(3)
        until(lambda: naive.changes > before[0], "a broker missed")
        scene.cluster.start(3)
        until(lambda: naive.changes > before[0] + 1, "a broker back")
        note("a broker killed and started again", *before)
        before = naive.changes, asked.count
        away = {"a": [2, 3], "b": [3, 1], "c": [1, 2]}
        swapped = {place: away[rack] for rack, each in zip("abc", members, strict=True) for place in each.assignment()}
        admin.alter_partition_reassignments(swapped)
        until(lambda: asked.count > before[1], "a trigger")
        end = time.monotonic() + 3 * SOON.min_interval_s
        until(lambda: time.monotonic() > end, "time passed")
        note("every partition moved out of its reader's rack", *before)
    log.removeHandler(asked)
    return rows
