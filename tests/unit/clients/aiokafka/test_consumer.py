"""The consumer on aiokafka, and `attach`."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

import rackassign
from rackassign.clients.aiokafka import (
    RackAwareConsumer,
    RackAwareCooperativeStickyAssignor,
    RackAwareRangeAssignor,
    RackAwareStickyAssignor,
    attach,
    internals,
)
from rackassign.clients.fetch_metrics import RackTraffic, view_of
from rackassign.errors import ConfigError
from rackassign.locality import Locality
from rackassign.model import TopicPartition
from rackassign.text import WarnOnce


def with_consumer(make: Callable[[], AIOKafkaConsumer], look: Callable[[AIOKafkaConsumer], None]) -> None:
    """Make a consumer on a loop, look at it and close it; it is never started."""

    async def play() -> None:
        consumer = make()
        try:
            look(consumer)
        finally:
            await consumer.stop()

    asyncio.run(play())


def nothing(_: AIOKafkaConsumer) -> None: ...


def strategies(consumer: AIOKafkaConsumer) -> list[tuple[Any, Any, Any]]:
    return [(type(each), each.rack, each.locality) for each in consumer._partition_assignment_strategy]


def test_a_rack_aware_consumer_has_it_all() -> None:
    def look(consumer: AIOKafkaConsumer) -> None:
        assert consumer._client_rack == "a"
        assert strategies(consumer) == [(RackAwareStickyAssignor, "a", "any-replica")]
        assert consumer.locality() == RackTraffic("a", {})
        sender = consumer._client.send.__self__
        assert len(sender.observers) == 2
        assert attach(consumer) is consumer
        assert consumer._client.send.__self__ is sender
        assert len(sender.observers) == 2

    with_consumer(lambda: RackAwareConsumer("t", client_rack="a"), look)


@pytest.mark.parametrize(("given", "first"), [({}, "aiokafka-"), ({"client_id": "app"}, "app")])
def test_a_zone_hint_is_in_the_client_id(given: dict[str, Any], first: str) -> None:
    def look(consumer: AIOKafkaConsumer) -> None:
        client_id: str = consumer._client._client_id
        assert client_id.startswith(first)
        assert client_id.endswith(",diskless_az=a")

    with_consumer(lambda: RackAwareConsumer("t", client_rack="a", zone_hint="inkless", **given), look)


def test_a_consumer_is_read_from_outside_until_it_was_stopped() -> None:
    made: list[AIOKafkaConsumer] = []

    def look(consumer: AIOKafkaConsumer) -> None:
        view = view_of(consumer)
        assert view is not None
        assert (view.group, view.locality(), view.is_closed(consumer)) == ("g", RackTraffic("a", {}), False)
        assert view.assigned_locality(consumer) == Locality(0, 0, 0)
        made.append(consumer)

    with_consumer(lambda: RackAwareConsumer("t", group_id="g", client_rack="a"), look)
    view = view_of(made[0])
    assert view is not None
    assert view.is_closed(made[0])


def test_an_aiokafka_without_the_flag_counts_as_open_and_that_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    once = WarnOnce(logging.getLogger("test"))
    for _ in range(2):
        assert not internals.is_closed(object(), once=once)
    assert len(caplog.records) == 1
    assert "metrics of a closed consumer stay" in caplog.text


def test_the_replica_that_is_read_is_the_one_the_leader_named_or_the_leader() -> None:
    named = {TopicPartition("t", 0): (2, 0.0)}
    leaders = {("t", 0): 1, ("t", 1): 3, ("t", 2): -1}
    cluster = SimpleNamespace(leader_for_partition=lambda tp: leaders.get(tuple(tp)))
    partitions = [TopicPartition("t", number) for number in range(4)]
    client = SimpleNamespace(cluster=cluster)
    consumer = SimpleNamespace(_client=client, _fetcher=SimpleNamespace(_preferred_read_replica=named))
    assert list(internals.read_brokers(consumer, partitions).values()) == [2, 3, None, None]
    # As before the consumer is started.
    consumer = SimpleNamespace(_client=client, _fetcher=None)
    assert list(internals.read_brokers(consumer, partitions).values()) == [1, 3, None, None]


def test_an_instance_keeps_its_rack_and_that_it_is_another_is_told(warnings: pytest.LogCaptureFixture) -> None:
    chosen = [RackAwareStickyAssignor(rack="b"), RackAwareCooperativeStickyAssignor, RangePartitionAssignor]

    def look(consumer: AIOKafkaConsumer) -> None:
        first, second, third = consumer._partition_assignment_strategy
        assert (first.rack, second.rack, third) == ("b", "a", RangePartitionAssignor)

    with_consumer(lambda: RackAwareConsumer("t", client_rack="a", partition_assignment_strategy=chosen), look)
    assert "the assignor's rack is 'b' but client_rack is 'a'" in warnings.text


class ByTopic(RackAwareStickyAssignor):
    """As for a framework that takes only classes."""

    def __init__(self) -> None:
        super().__init__(balance="topic")


@pytest.mark.parametrize("kind", [lambda *t, **options: attach(AIOKafkaConsumer(*t, **options)), RackAwareConsumer])
def test_a_class_without_a_rack_has_that_of_the_environment(
    kind: Callable[..., AIOKafkaConsumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RACKASSIGN_RACK", "a")

    def look(consumer: AIOKafkaConsumer) -> None:
        assert strategies(consumer) == [(ByTopic, "a", "any-replica")]

    with_consumer(lambda: kind("t", client_rack="a", partition_assignment_strategy=[ByTopic]), look)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ([RackAwareRangeAssignor, RangePartitionAssignor], "of each name there must be one assignor, got .* 'range'"),
        ([RackAwareStickyAssignor, ByTopic], "of each name there must be one assignor, got several of 'sticky'"),
        ([rackassign.RackAwareRangeAssignor], "RackAwareRangeAssignor .* import it from rackassign.clients.aiokafka"),
    ],
)
def test_assignors_that_would_break_the_group_are_refused(chosen: list[Any], message: str) -> None:
    """A broker that is sent a name twice lets no member into the group again, however healthy it was."""

    async def play() -> None:
        with pytest.raises(ConfigError, match=message):
            RackAwareConsumer("t", partition_assignment_strategy=chosen)
        consumer = AIOKafkaConsumer("t", partition_assignment_strategy=chosen)
        with pytest.raises(ConfigError, match=message):
            attach(consumer)
        await consumer.stop()

    asyncio.run(play())


def test_attach_takes_a_consumer_only() -> None:
    with pytest.raises(ConfigError, match="attach takes an AIOKafkaConsumer, got str"):
        attach("consumer")


def test_attach_tells_of_a_client_rack_that_is_missing(warnings: pytest.LogCaptureFixture) -> None:
    def make() -> AIOKafkaConsumer:
        return attach(AIOKafkaConsumer("t", partition_assignment_strategy=[RackAwareRangeAssignor(rack="a")]))

    with_consumer(make, nothing)
    assert "client_rack is not set, so everything is read from the leaders" in warnings.text


def test_no_rack_found_where_one_must_be_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackassign.assignor.member.detect_rack", lambda *, network: None if network else "x")

    async def play() -> None:
        with pytest.raises(ConfigError, match='client_rack="auto" found no rack'):
            RackAwareConsumer("t", client_rack="auto")

    asyncio.run(play())


def test_without_aiokafka_the_extra_is_named() -> None:
    code = "import sys; sys.modules['aiokafka'] = None; import rackassign.clients.aiokafka"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, text=True)
    assert "aiokafka is missing: pip install 'rackassign[aiokafka]'" in run.stderr
