"""Members of all clients, each in a thread or process of its own, each metering what it reads with its own means."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, KafkaException
from kafka import KafkaConsumer

from rackassign import attach
from rackassign.clients.aiokafka import attach as attach_aio
from rackassign.clients.common.fetch_metrics import FetchLocality
from rackassign.clients.confluent import StatsMeter
from tests.helpers.java.group_member import RANGE, JavaMember
from tests.helpers.kafka.consumers import CONSUMER
from tests.helpers.kafka.waiting import PATIENCE_S

if TYPE_CHECKING:
    from typing_extensions import Self

RACKS = {1: "a", 2: "b", 3: "c"}
"""Of the brokers."""

_STATS_MS = 100


class MemberHarness(ABC):
    """A member as long as the `with` block lasts.

    Args:
        rack: Where it stands.
        tells: Whether it knows that, and sends it.
    """

    def __init__(self, rack: str, *, tells: bool) -> None:
        self.rack = rack
        self.tells = tells

    @abstractmethod
    def __enter__(self) -> Self:
        """Join."""

    @abstractmethod
    def __exit__(self, *_: object) -> None:
        """Leave."""

    @abstractmethod
    def records(self) -> int:
        """Return how many records it has read, or raise what has ended it."""

    @abstractmethod
    def bytes_from(self) -> Mapping[str | None, int]:
        """Return the bytes it has read, by the rack of the brokers."""


class _Threaded(MemberHarness):
    """A member that a thread of ours polls."""

    def __init__(self, rack: str, *, tells: bool) -> None:
        super().__init__(rack, tells=tells)
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._live, name="animal", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "a consumer that does not close"

    def _live(self) -> None:
        try:
            self._poll()
        except BaseException as error:  # noqa: BLE001 - raised again by records(), on the test's thread
            self._error = error

    @abstractmethod
    def _poll(self) -> None:
        """Poll until it is over."""

    @abstractmethod
    def _locality(self) -> FetchLocality | None:
        """Return what its meter says, once there is one."""

    def records(self) -> int:
        if self._error is not None:
            raise self._error
        return sum(amount.records for amount in self._by_rack().values())

    def bytes_from(self) -> Mapping[str | None, int]:
        return {rack: amount.bytes for rack, amount in self._by_rack().items()}

    def _by_rack(self) -> Mapping[str | None, Any]:
        metered = self._locality()
        return {} if metered is None else metered.by_rack()


class KafkaPython(_Threaded):
    """Any consumer of kafka-python."""

    def __init__(self, make: Callable[[], KafkaConsumer], rack: str, *, tells: bool) -> None:
        super().__init__(rack, tells=tells)
        self._make = make
        self._consumer: Any = None

    def _poll(self) -> None:
        with closing(self._make()) as consumer:
            self._consumer = attach(consumer)
            while not self._over.is_set():
                consumer.poll(timeout_ms=100)

    def _locality(self) -> FetchLocality | None:
        return None if self._consumer is None else self._consumer.locality()


class Librdkafka(_Threaded):
    """A consumer of confluent-kafka with librdkafka's own assignor."""

    def __init__(self, config: Mapping[str, Any], topics: Sequence[str], rack: str, *, tells: bool) -> None:
        super().__init__(rack, tells=tells)
        self._meter = StatsMeter(rack, RACKS)
        near = {"client.rack": rack} if tells else {}
        metered = {"statistics.interval.ms": _STATS_MS, "stats_cb": self._meter}
        self._config = {**config, **near, **metered, "partition.assignment.strategy": "range"}
        self._topics = list(topics)

    def _poll(self) -> None:
        with closing(Consumer(self._config)) as consumer:
            consumer.subscribe(self._topics)
            while not self._over.is_set():
                for message in consumer.consume(500, timeout=0.1):
                    error = message.error()
                    if error is not None:
                        raise KafkaException(error)

    def _locality(self) -> FetchLocality | None:
        return self._meter.locality()


class Aiokafka(_Threaded):
    """A consumer of aiokafka on an event loop of its own."""

    def __init__(self, make: Callable[[], AIOKafkaConsumer], rack: str, *, tells: bool) -> None:
        super().__init__(rack, tells=tells)
        self._make = make
        self._consumer: Any = None

    def _poll(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        consumer = self._make()
        self._consumer = attach_aio(consumer)
        await consumer.start()
        try:
            while not self._over.is_set():
                await consumer.getmany(timeout_ms=100)
        finally:
            await consumer.stop()

    def _locality(self) -> FetchLocality | None:
        return None if self._consumer is None else self._consumer.locality()


class Java(MemberHarness):
    """Kafka's own consumer; what it counts is all that comes from a broker, answers without records too."""

    def __init__(
        self, command: Sequence[str], config: Mapping[str, str], topics: Sequence[str], rack: str, *, tells: bool
    ) -> None:
        super().__init__(rack, tells=tells)
        near = {"client.rack": rack} if tells else {}
        self._member = JavaMember(command, topics, {**config, **near, "partition.assignment.strategy": RANGE})

    def __enter__(self) -> Self:
        self._member.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._member.__exit__(None, *error[1:])

    def records(self) -> int:
        self._member.poll()
        return sum(self._member.records().values())

    def bytes_from(self) -> Mapping[str | None, int]:
        return {RACKS[broker]: size for broker, size in self._member.incoming().items()}


UNHURRIED: dict[str, Any] = {**CONSUMER, "session_timeout_ms": 45_000, "max_poll_interval_ms": 300_000}
"""For members whose bytes are counted: whoever is put out of the group on a busy machine is read for once more."""


def properties(bootstrap: str, group: str, client_id: str) -> dict[str, str]:
    """Return what librdkafka's and Java's members are told alike."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": client_id,
        "auto.offset.reset": CONSUMER["auto_offset_reset"],
        "enable.auto.commit": "false",
        "heartbeat.interval.ms": str(CONSUMER["heartbeat_interval_ms"]),
        "session.timeout.ms": str(UNHURRIED["session_timeout_ms"]),
    }
