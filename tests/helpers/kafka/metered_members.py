"""Members of all clients, each metering what it reads with its own means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer
from kafka import KafkaConsumer

from rackassign import attach
from rackassign.clients.aiokafka import attach as attach_aio
from rackassign.clients.confluent import StatsMeter
from rackassign.clients.fetch_metrics import RackTraffic
from rackassign.testing.harness import AiokafkaMember, ConfluentMember, KafkaPythonMember, ThreadedMember
from tests.helpers.java.group_member import RANGE, JavaMember
from tests.helpers.kafka.consumers import PROPERTIES

RACKS = {1: "a", 2: "b", 3: "c"}
"""Of the brokers."""

_STATS_MS = 100
_POLL_MS = 100


@dataclass(frozen=True, slots=True)
class Amount:
    """Records and bytes read so far."""

    records: int
    bytes_from: Mapping[str | None, int]


@dataclass(frozen=True, slots=True)
class MeteredMember:
    """A member, its rack and its meter."""

    member: ThreadedMember | JavaMember
    # Where it is, whether it sends that or not.
    rack: str
    metered: Callable[[], Amount]

    def read(self) -> Amount:
        """Return what it has read, or raise what has ended it."""
        self.member.poll()
        return self.metered()


def kafka_python(make: Callable[[], KafkaConsumer], rack: str) -> MeteredMember:
    """Return any consumer of kafka-python."""
    member = KafkaPythonMember(lambda: attach(make()), poll_ms=_POLL_MS)
    return MeteredMember(member, rack, lambda: _amount(member.consumer and member.consumer.locality()))


def librdkafka(config: Mapping[str, Any], topics: Sequence[str], rack: str, *, sends_rack: bool) -> MeteredMember:
    """Return a consumer of confluent-kafka with librdkafka's own assignor."""
    meter = StatsMeter(rack, RACKS)

    def make() -> Consumer:
        metered = {"statistics.interval.ms": _STATS_MS, "stats_cb": meter}
        consumer = Consumer(
            {**config, **_client_rack(rack, sends_rack), **metered, "partition.assignment.strategy": "range"}
        )
        consumer.subscribe(list(topics))
        return consumer

    return MeteredMember(ConfluentMember(make, poll_ms=_POLL_MS), rack, lambda: _amount(meter.locality()))


def aiokafka(make: Callable[[], AIOKafkaConsumer], rack: str) -> MeteredMember:
    """Return a consumer of aiokafka."""
    member = AiokafkaMember(lambda: attach_aio(make()), poll_ms=_POLL_MS)
    return MeteredMember(member, rack, lambda: _amount(member.consumer and member.consumer.locality()))


def java(
    command: Sequence[str], config: Mapping[str, str], topics: Sequence[str], rack: str, *, sends_rack: bool
) -> MeteredMember:
    """Return Kafka's own consumer; it counts all that comes from a broker, responses without records too."""
    member = JavaMember(
        command, topics, {**config, **_client_rack(rack, sends_rack), "partition.assignment.strategy": RANGE}
    )

    def metered() -> Amount:
        incoming: dict[str | None, int] = {RACKS[broker]: size for broker, size in member.incoming().items()}
        return Amount(sum(member.records().values()), incoming)

    return MeteredMember(member, rack, metered)


def _client_rack(rack: str, sends_rack: bool) -> dict[str, str]:  # noqa: FBT001
    return {"client.rack": rack} if sends_rack else {}


def _amount(metered: RackTraffic | None) -> Amount:
    read = {} if metered is None else metered.by_rack()
    return Amount(sum(each.records for each in read.values()), {rack: each.bytes for rack, each in read.items()})


def properties(bootstrap: str, group: str, client_id: str) -> dict[str, str]:
    """Return what librdkafka's and Java's members are told alike."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": client_id,
        **PROPERTIES,
    }
