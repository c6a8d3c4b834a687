"""The producer on aiokafka, on metadata of its own client, without brokers."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.protocol.metadata import MetadataResponse_v1 as MetadataResponse

from rackassign.clients.aiokafka import RackAwareProducer, internals
from rackassign.clients.fetch_metrics import Traffic
from rackassign.clients.write_metrics import WriteMeter, meter_of
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.text import WarnOnce

LEADERS = [1, 1, 2, 3, -1]
"""Leaders of the partitions of topic t; brokers 1, 2 and 3 are in the racks a, b and c."""


def with_producer(look: Callable[[Any], None], leaders: list[int] | None = None, **configs: Any) -> None:
    """Make a producer that is never started, with these metadata, and look at it."""

    async def play() -> None:
        producer = RackAwareProducer(**configs)
        try:
            refresh(producer, LEADERS if leaders is None else leaders)
            look(producer)
        finally:
            producer._sender._sender_task = None
            await producer.client.close()
            producer._closed = True

    asyncio.run(play())


def refresh(producer: Any, leaders: list[int]) -> None:
    rows = [(0, number, leader, [1, 2, 3], [1, 2, 3]) for number, leader in enumerate(leaders)]
    brokers = [(number, "h", 9092, rack) for number, rack in ((1, "a"), (2, "b"), (3, "c"))]
    producer.client.cluster.update_metadata(MetadataResponse(brokers, 1, [(0, "t", False, rows)]))


def partition(producer: Any, size: int | None = 80, key: bytes | None = None, given: int | None = None) -> int:
    """Return the partition of a record of 100 bytes, or of another size and 20; None for a whole batch."""
    chosen: int = producer._partition("t", given, key, None, key, None if size is None else bytes(size))
    return chosen


def test_a_partition_in_the_rack_is_kept_for_the_bytes_of_a_batch() -> None:
    def look(producer: Any) -> None:
        batches = [{partition(producer) for _ in range(10)} for _ in range(6)]
        assert batches in ([{0}, {1}] * 3, [{1}, {0}] * 3)
        # Batches of the application are complete.
        first = partition(producer, None)
        assert [partition(producer, None) for _ in range(3)] == [1 - first, first, 1 - first]
        assert partition(producer) == first

    with_producer(look, client_rack="a", max_batch_size=1000)


def test_keys_and_partitions_are_left_to_aiokafka() -> None:
    keys = [b"%d" % number for number in range(30)]

    def look(producer: Any) -> None:
        default, every = DefaultPartitioner(), list(range(5))
        assert [partition(producer, key=key) for key in keys] == [default(key, every, every) for key in keys]
        assert partition(producer, given=3) == 3
        with pytest.raises(AssertionError, match="Unrecognized partition"):
            partition(producer, given=5)

    with_producer(look, client_rack="a")
    with_producer(lambda producer: check(partition(producer, key=b"k") == 4), partitioner=lambda *_: 4, client_rack="a")


def check(true: bool) -> None:  # noqa: FBT001 - one argument is all it is
    assert true


def test_another_aiokafka_produces_as_before_and_that_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(AIOKafkaProducer, "_partition", lambda *_: 3)
    with_producer(lambda producer: check(producer._partition("t", None) == 3), client_rack="a")
    (message,) = caplog.messages
    assert message.startswith("aiokafka ")
    assert message.endswith(" differs: records go to leaders in all racks")


def test_the_rack_is_that_of_the_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACKASSIGN_RACK", "b")
    with_producer(lambda producer: check(partition(producer) == 2))
    with pytest.raises(ConfigError, match="client_rack"):
        with_producer(lambda _: None, client_rack=7)


@pytest.mark.parametrize(("given", "first"), [({}, "aiokafka-producer"), ({"client_id": "app"}, "app")])
def test_a_zone_hint_is_in_the_client_id(given: dict[str, Any], first: str) -> None:
    def look(producer: Any) -> None:
        assert producer.client._client_id == f"{first},diskless_az=a"

    with_producer(look, client_rack="a", zone_hint="inkless", **given)


@pytest.mark.parametrize("kind", [AIOKafkaProducer, RackAwareProducer])
def test_a_producer_that_was_dropped_is_gone_at_once(kind: Any) -> None:
    async def play() -> list[weakref.ref[Any]]:
        producer = kind()
        producer._closed = True
        return [weakref.ref(each) for each in (producer, producer.client)]

    gc.disable()
    try:
        assert [ref() for ref in asyncio.run(play())] == [None, None]
    finally:
        gc.enable()


def test_a_producer_that_sends_in_another_way_is_not_counted(warnings: pytest.LogCaptureFixture) -> None:
    meter, once = WriteMeter("a", {1: "a"}.get), WarnOnce(logging.getLogger("rackassign.t"))
    internals.count_writes(SimpleNamespace(client=SimpleNamespace()), meter, once)
    assert "what is written is not counted" in warnings.text


@pytest.mark.parametrize(
    ("request_", "counted"),
    [
        pytest.param(SimpleNamespace(API_KEY=0, _topics=[("t", [(0, b"123"), (1, b"4")])]), 4, id="two partitions"),
        pytest.param(SimpleNamespace(API_KEY=3, _topics=["t"]), 0, id="another request"),
        pytest.param(SimpleNamespace(API_KEY=0, _topics=None), 0, id="another format"),
    ],
)
def test_requests_are_counted_once_a_broker_has_responded(request_: Any, counted: int) -> None:
    meter, once = WriteMeter("b", {1: "a"}.get), WarnOnce(logging.getLogger("rackassign.t"))
    failing = [KafkaError()]

    class Client:
        async def send(self, node_id: int, request: Any, *, group: int = 0) -> str:
            del node_id, request, group
            if failing:
                raise failing.pop()
            return "response"

    async def send() -> None:
        producer = SimpleNamespace(client=Client())
        internals.count_writes(producer, meter, once)
        with pytest.raises(KafkaError):
            await producer.client.send(1, request_)
        assert await producer.client.send(1, request_, group=1) == "response"

    asyncio.run(send())
    assert meter.locality().cross().bytes == counted


def test_what_a_producer_in_a_rack_without_brokers_writes_is_unknown() -> None:
    def look(producer: Any) -> None:
        meter_of(producer)(1, [(TopicPartition("t", 0), Traffic(10, 1))])
        assert (producer.locality().unknown(), producer.locality().cross()) == (Traffic(10, 1), Traffic())

    with_producer(look, client_rack="d")
