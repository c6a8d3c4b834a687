"""The examples with state on real brokers: whichever members are killed, the result is that of the input."""

from __future__ import annotations

import json
import random
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event
from typing import NamedTuple

import pytest
from kafka import KafkaProducer

from examples import deduplicate, join_orders, windowed_count
from rackassign.stateful._stores import AnyStore
from rackassign.testing import Cluster
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.example_members import Ends, Members, example, records, state_of
from tests.helpers.stateful_results import (
    HOUR_MS,
    MINUTE_MS,
    Result,
    differences,
    expected_deduplication,
    expected_join,
    expected_windows,
    read,
)

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.release]

SPREAD = [[1, 2], [2, 3], [3, 1], [1, 3]]
PARTITIONS = len(SPREAD)
START_MS = 1_700_000_000_000
KEPT = {"retention.ms": "-1"}
"""Timestamps of the past are over at once for brokers."""
LEAST, MOST, PER_S, LATER_PER_S = 8_000, 110_000, 200, 40
"""How many records are written: at least so many, and then, more slowly, until all faults are over. On a busy machine
that takes long, and without records there are no commits to be waited for."""
STEP_MS = 700
"""Between two of them: the longest run is one of 21.4 hours, after which nothing has expired yet."""
WRITTEN_S = 600.0
THREE = ("ax", "bx", "cx")


class Given(NamedTuple):
    """A record to be written."""

    topic: str
    key: str
    value: bytes
    timestamp_ms: int


def write(bootstrap: str, given: Iterable[Given], enough: Event) -> int:
    """Write records until it is enough, each where its key belongs; return how many."""
    count, began = 0, time.monotonic()
    with closing(KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=5)) as producer:
        for count, each in enumerate(given, 1):
            partition = zlib.crc32(each.key.encode()) % PARTITIONS
            producer.send(each.topic, each.value, each.key.encode(), None, partition, each.timestamp_ms)
            if count >= LEAST and enough.is_set():
                break
            due_s = min(count, LEAST) / PER_S + max(0, count - LEAST) / LATER_PER_S
            time.sleep(max(0.0, began + due_s - time.monotonic()))
    return count


class Run(NamedTuple):
    """A group that runs an example, and its input."""

    bootstrap: str
    topics: tuple[str, ...]
    changelog: str
    members: Members
    ends: Ends

    def beside_faults(self, given: Iterable[Given], seed: int) -> int:
        """Have records processed that are written meanwhile, by members that are killed; return their number."""
        enough = Event()
        with ThreadPoolExecutor(1) as pool:
            self.members.start(*THREE)
            written = pool.submit(write, self.bootstrap, given, enough)
            try:
                self.ends.wait_for_commits(all_partitions=True)
                self._faults(random.Random(seed))
            finally:
                enough.set()
            count = written.result(WRITTEN_S)
        self.ends.wait_for_the_end()
        return count

    def _faults(self, dice: random.Random) -> None:
        for number in (1, 2, 3, 1):
            names = dice.sample(THREE, number)
            # Somewhere within an interval of commits.
            time.sleep(2 * dice.random())
            self.members.kill(*names)
            if number < len(THREE):
                # Also of those whose member was killed.
                self.ends.wait_for_commits(all_partitions=True)
            self.members.start(*names)
            self.ends.wait_for_commits()

    def content(self, *stores: AnyStore) -> dict[int, Result]:
        return {
            partition: read(state_of(self.bootstrap, self.changelog, partition), *stores)
            for partition in range(PARTITIONS)
        }


Begun = Callable[..., Run]


@pytest.fixture
def begun(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str], tmp_path: Path
) -> Iterator[Begun]:
    with ExitStack() as opened:

        def make(module: str, *options: str) -> Run:
            """Return a run of an example; a topic for each option, or one as an argument."""
            group, topics = unique_name(), sorted(make_topic(replicas=SPREAD, config=KEPT) for _ in options or ("",))
            named = [word for pair in zip(options, topics, strict=True) for word in pair] if options else topics
            members = Members(example(module, [rack_cluster.bootstrap, *named, "--group", group], tmp_path), tmp_path)
            opened.callback(members.close)
            changelog = f"{group}-{'-'.join(topics)}-changelog"
            ends = opened.enter_context(closing(Ends(rack_cluster.bootstrap, topics, changelog, PARTITIONS)))
            return Run(rack_cluster.bootstrap, tuple(topics), changelog, members, ends)

        yield make


def test_each_order_is_joined_once_or_reported_as_unpaid(begun: Begun) -> None:
    run = begun("examples.join_orders", "--orders", "--payments")
    orders, payments = run.topics
    count = run.beside_faults(purchases(orders, payments, random.Random(1)), 11)
    # Once all are processed, the time of the stream passes that of all orders.
    write(run.bootstrap, [Given(orders, key, b"{}", START_MS + 22 * HOUR_MS) for key in one_key_each()], Event())
    run.ends.wait_for_the_end()
    run.members.end()
    given = [[records(run.bootstrap, topic, p) for topic in run.topics] for p in range(PARTITIONS)]
    expected = {partition: expected_join(*both) for partition, both in enumerate(given)}
    for each in expected.values():
        # Their own time has not come.
        each["unpaid"] = {key: row for key, row in each["unpaid"].items() if not key.startswith(b"last-")}
    assert sum(len(log) for both in given for log in both) >= count + PARTITIONS
    assert all(len(each["joined"]) > 500 and len(each["unpaid"]) > 50 for each in expected.values())
    assert differences(run.content(join_orders.joined, join_orders.unpaid, join_orders.totals), expected) == []


def purchases(orders: str, payments: str, dice: random.Random) -> Iterator[Given]:
    """Yield orders and their payments, some of them twice, late, or not at all."""
    pending: list[Given] = []
    for number in range(MOST // 2):
        at_ms = START_MS + number * 2 * STEP_MS
        value = json.dumps({"amount": dice.randrange(1000)}).encode()
        order = Given(orders, f"order-{number}", value, at_ms)
        yield order
        if dice.random() < 0.03:
            yield order
        payment = Given(payments, order.key, value, at_ms + dice.choice([-1, 0, 1, 5, 14, 15, 16, 30]) * MINUTE_MS)
        pending += [payment] * dice.choice([0, 1, 1, 1, 1, 2])
        while len(pending) > 50:
            yield pending.pop(dice.randrange(len(pending)))
    yield from pending


def test_each_id_passes_once_an_hour(begun: Begun) -> None:
    run = begun("examples.deduplicate")
    count = run.beside_faults(events(run.topics[0], 1500, random.Random(2)), 12)
    run.members.end()
    expected = {p: expected_deduplication(records(run.bootstrap, run.topics[0], p)) for p in range(PARTITIONS)}
    assert sum(sum(each["totals"].values()) for each in expected.values()) >= count
    assert all(min(each["totals"].values()) > 100 for each in expected.values())
    assert differences(run.content(deduplicate.passed, deduplicate.totals), expected) == []


def test_each_window_has_its_count(begun: Begun) -> None:
    run = begun("examples.windowed_count")
    count = run.beside_faults(events(run.topics[0], 40, random.Random(3)), 13)
    run.members.end()
    expected = {p: expected_windows(records(run.bootstrap, run.topics[0], p)) for p in range(PARTITIONS)}
    assert sum(sum(values.values()) for each in expected.values() for values in each.values()) >= count
    assert all(len(each["closed"]) > 100 and each["counts"] and each["late"] for each in expected.values())
    stores = windowed_count.closed, windowed_count.counts, windowed_count.late
    assert differences(run.content(*stores), expected) == []


def events(topic: str, keys: int, dice: random.Random) -> Iterator[Given]:
    """Yield records with some keys, some of them late."""
    for number in range(MOST):
        at_ms = START_MS + number * STEP_MS
        late_ms = dice.choice([0] * 9 + [20_000] * 9 + [10 * MINUTE_MS])
        yield Given(topic, f"key-{dice.randrange(keys)}", b"", at_ms - late_ms)


def one_key_each() -> list[str]:
    """Return a key of each partition."""
    found: dict[int, str] = {}
    for number in range(100):
        found.setdefault(zlib.crc32(f"last-{number}".encode()) % PARTITIONS, f"last-{number}")
    assert len(found) == PARTITIONS
    return list(found.values())
