"""Groups of consumers that read a topic, first as they are and then with rackassign, and publish what they read."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import product
from typing import Any

from kafka import KafkaConsumer, KafkaProducer

from examples.pipeline.counters import Counter, Who
from rackassign import RackAwareConsumer, attach
from rackassign.errors import ClusterError

RACKS = ("a", "b", "c")
BEFORE, AFTER = "before", "after"
BAD = (b"no JSON", b'{"group": "billing"}', b'{"member": "x", "sequence": "first"}', b"\xff\xfe")

_SETTLE_S = 90.0
_EVERY_S = 1.0
_CONSUMER: dict[str, Any] = {
    "auto_offset_reset": "latest",
    "enable_auto_commit": False,
    "heartbeat_interval_ms": 300,
    "session_timeout_ms": 6000,
}


@dataclass(frozen=True, slots=True)
class Team:
    """A group with a consumer in each rack.

    Args:
        group: Its name.
        fetches_near: Whether its consumers have a `client_rack` before they have rackassign.
    """

    group: str
    fetches_near: bool

    def consumer(self, run: str, rack: str, topic: str, bootstrap: str) -> Any:  # noqa: ANN401 - kafka-python is untyped
        """Return one of its consumers, which counts what it reads."""
        told = {"bootstrap_servers": bootstrap, "group_id": self.group, **_CONSUMER}
        client_id = f"{self.group}-{run}-{rack}"
        if run == AFTER:
            return RackAwareConsumer(topic, client_id=client_id, client_rack=rack, **told)
        return attach(KafkaConsumer(topic, client_id=client_id, client_rack=rack if self.fetches_near else "", **told))


def reading(bootstrap: str, topic: str, counters: str, teams: Sequence[Team], run: str) -> Generator[float, None, None]:
    """Let groups read for as long as somebody asks, and publish what they read, once a second.

    Args:
        bootstrap: Of the cluster.
        topic: What they read.
        counters: The topic they publish to.
        teams: The groups.
        run: `BEFORE` or `AFTER`.

    Yields:
        Seconds since all groups had settled, each time they have published.

    Raises:
        ClusterError: The groups do not settle.
    """
    with ExitStack() as opened:
        producer = opened.enter_context(closing(KafkaProducer(bootstrap_servers=bootstrap)))
        members: list[tuple[Who, Any]] = []
        for team, rack in product(teams, RACKS):
            consumer = team.consumer(run, rack, topic, bootstrap)
            opened.callback(consumer.close)
            members.append((Who(team.group, run, f"{team.group}-{run}-{rack}", rack), consumer))
        consumers = [consumer for _, consumer in members]
        _settle(consumers, len(producer.partitions_for(topic)) * len(teams))
        said = [(who, Counter(who, _now(), consumer.locality()), consumer) for who, consumer in members]
        start = time.monotonic()
        while True:
            due = time.monotonic() + _EVERY_S
            while time.monotonic() < due:
                _poll(consumers)
            _publish(
                producer,
                counters,
                [
                    (who.member.encode(), counter.message(_now(), consumer.locality()))
                    for who, counter, consumer in said
                ],
            )
            yield time.monotonic() - start


def spoil(bootstrap: str, counters: str) -> int:
    """Publish what is not to be trusted: bad records, and a good one twice. Returns how many are bad."""
    with (
        closing(KafkaProducer(bootstrap_servers=bootstrap)) as producer,
        closing(
            KafkaConsumer(
                counters, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=60_000
            )
        ) as consumer,
    ):
        good = next(record for record in consumer if b'"bytes"' in record.value)
        _publish(producer, counters, [(good.key, value) for value in (*BAD, good.value)])
    return len(BAD)


def _publish(producer: KafkaProducer, topic: str, messages: Sequence[tuple[bytes, bytes]]) -> None:
    """Send messages, and wait until brokers have them."""
    for sent in [producer.send(topic, value, key=key) for key, value in messages]:
        sent.get(_SETTLE_S)


def _poll(consumers: Sequence[Any]) -> None:
    for consumer in consumers:
        consumer.poll(timeout_ms=20)


def _settle(consumers: Sequence[Any], partitions: int) -> None:
    """Poll until all partitions have an owner in each group."""
    deadline = time.monotonic() + _SETTLE_S
    while sum(len(consumer.assignment()) for consumer in consumers) != partitions:
        if time.monotonic() > deadline:
            raise ClusterError("the groups did not settle in time")
        _poll(consumers)


def _now() -> int:
    return time.time_ns() // 1_000_000
