"""The consumer on aiokafka, and `attach`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from rackassign.clients.aiokafka import (
    RackAwareConsumer,
    RackAwareCooperativeStickyAssignor,
    RackAwareRangeAssignor,
    RackAwareStickyAssignor,
    attach,
)
from rackassign.clients.common.fetch_metrics import FetchLocality
from rackassign.errors import ConfigError


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
        assert consumer.locality() == FetchLocality("a", {})
        sender = consumer._client.send.__self__
        assert len(sender.observers) == 2
        assert attach(consumer) is consumer
        assert consumer._client.send.__self__ is sender
        assert len(sender.observers) == 2

    with_consumer(lambda: RackAwareConsumer("t", client_rack="a"), look)


def test_an_instance_keeps_its_rack_and_that_it_is_another_is_told(warnings: pytest.LogCaptureFixture) -> None:
    chosen = [RackAwareRangeAssignor(rack="b"), RackAwareCooperativeStickyAssignor, RangePartitionAssignor]

    def look(consumer: AIOKafkaConsumer) -> None:
        first, second, third = consumer._partition_assignment_strategy
        assert (first.rack, second.rack, third) == ("b", "a", RangePartitionAssignor)

    with_consumer(lambda: RackAwareConsumer("t", client_rack="a", partition_assignment_strategy=chosen), look)
    assert "the assignor's rack is 'b' but client_rack is 'a'" in warnings.text


def test_attach_takes_a_consumer_only() -> None:
    with pytest.raises(ConfigError, match="attach takes an AIOKafkaConsumer, got str"):
        attach("consumer")


def test_attach_tells_of_a_client_rack_that_is_missing(warnings: pytest.LogCaptureFixture) -> None:
    def make() -> AIOKafkaConsumer:
        return attach(AIOKafkaConsumer("t", partition_assignment_strategy=[RackAwareRangeAssignor(rack="a")]))

    with_consumer(make, nothing)
    assert "client_rack is not set, so everything is read from the leaders" in warnings.text


def test_no_rack_found_where_one_must_be_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "rackassign.clients.common.rack_config.detect_rack", lambda *, network: None if network else "x"
    )

    async def play() -> None:
        with pytest.raises(ConfigError, match='client_rack="auto" found no rack'):
            RackAwareConsumer("t", client_rack="auto")

    asyncio.run(play())


def test_before_0_14_only_leaders_are_near(monkeypatch: pytest.MonkeyPatch, warnings: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("rackassign.clients.aiokafka.consumer.FOLLOWS", False)

    def look(consumer: AIOKafkaConsumer) -> None:
        assert strategies(consumer) == [(RackAwareStickyAssignor, "a", "leader")]
        assert consumer.locality().rack == "a"

    with_consumer(lambda: RackAwareConsumer("t", client_rack="a"), look)
    assert not warnings.records
    chosen = [RackAwareRangeAssignor(rack="a")]
    make = lambda: RackAwareConsumer("t", client_rack="a", partition_assignment_strategy=chosen)  # noqa: E731
    with_consumer(make, nothing)
    assert "reads from leaders only, since client_rack came with 0.14: set locality='leader'" in warnings.text


def test_without_aiokafka_the_extra_is_named() -> None:
    code = "import sys; sys.modules['aiokafka'] = None; import rackassign.clients.aiokafka"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, text=True)
    assert "aiokafka is missing: pip install 'rackassign[aiokafka]'" in run.stderr
