"""Metrics of the consumers of a process: sums by group that never sink, and series that go."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from rackassign.clients.fetch_metrics import (
    ConsumerView,
    FetchedPartition,
    FetchMeter,
    RackTraffic,
    Traffic,
    set_view,
)
from rackassign.errors import ConfigError
from rackassign.locality import Locality
from rackassign.model import TopicPartition
from rackassign.monitoring.prometheus import ConsumerMetrics
from tests.helpers.exposition import exposed, of, registry_of, scraped

BYTES = "rackassign_read_bytes_total"


class Counting:
    """A consumer that was not attached: all that is known of it is what it returns."""

    config: Mapping[str, Any] = {"group_id": "g"}

    def locality(self) -> RackTraffic:
        return RackTraffic("b", {"t": {"a": Traffic(7, 1), None: Traffic(1, 1)}, "u": {"a": Traffic(3, 1)}})


class Consumer:
    """An attached consumer; `read` counts bytes of one partition from rack a. Brokers are in the racks a and b."""

    def __init__(self, group: str | None = "g", rack: str = "b") -> None:
        racks = {1: "a", 2: "b"}
        self.meter = FetchMeter(rack, racks.get, racks=racks.values)
        self.closed = False
        self.error: Exception | None = None

        def assigned(consumer: Consumer) -> Locality:
            if consumer.error is not None:
                raise consumer.error
            return Locality(1, 2, 0)

        set_view(self, ConsumerView(group, self._metered(), assigned, lambda consumer: consumer.closed))

    def _metered(self) -> Callable[[], RackTraffic]:
        meter, me = self.meter, weakref.ref(self)

        def locality() -> RackTraffic:
            consumer = me()
            if consumer is not None and consumer.error is not None:
                raise consumer.error
            return meter.locality()

        return locality

    def locality(self) -> RackTraffic:
        return self.meter.locality()

    def read(self, size: int) -> Consumer:
        self.meter(1, [FetchedPartition(TopicPartition("t", 0), size, 1)])
        return self


def crossed(found: Mapping[Any, float], group: str = "g") -> float:
    return of(found, BYTES, group=group, rack="b", from_rack="a", locality="cross")


def groups(found: Mapping[Any, float]) -> set[str]:
    return {dict(labels)["group"] for _, labels in found}


def test_a_consumer_is_scraped_by_the_names_of_a_report() -> None:
    consumer = Counting()
    found = scraped(ConsumerMetrics(consumer))
    assert len(found) == 2
    assert of(found, BYTES, group="g", rack="b", from_rack="a", locality="cross") == 10.0
    assert of(found, BYTES, group="g", rack="b", from_rack="unknown", locality="unknown") == 1.0


def test_what_a_consumer_in_a_rack_without_brokers_reads_is_unknown() -> None:
    known, foreign = Consumer().read(1), Consumer(rack="d").read(10)
    metrics = ConsumerMetrics(known)
    metrics.add(foreign)
    found = scraped(metrics)
    assert of(found, BYTES, group="g", rack="d", from_rack="a", locality="unknown") == 10.0
    assert crossed(found) == 1.0


def test_a_consumer_must_count_and_have_a_group() -> None:
    with pytest.raises(ConfigError, match="attach"):
        ConsumerMetrics(object())  # type: ignore[arg-type]
    nameless, alone = Counting(), Consumer(group=None)
    nameless.config = {}
    for consumer in (nameless, alone.read(1)):
        with pytest.raises(ConfigError, match="group"):
            ConsumerMetrics(consumer)
        assert groups(scraped(ConsumerMetrics(consumer, "h"))) == {"h"}


def test_consumers_of_a_group_are_one_set_of_series() -> None:
    metrics = ConsumerMetrics()
    registry = registry_of(metrics)
    first, second, other = Consumer().read(10), Consumer().read(5), Consumer("h").read(3)
    for consumer in (first, second, other, first):
        metrics.add(consumer)
    found = exposed(registry)
    assert (crossed(found), crossed(found, "h")) == (15, 3)
    assert of(found, "rackassign_partitions", group="g", locality="cross") == 4
    assert of(found, "rackassign_partitions", group="g", locality="local") == 2
    assert of(found, "rackassign_partitions", group="h", locality="cross") == 2


def test_what_a_closed_consumer_has_read_stays_until_the_last_one_of_its_group_closes() -> None:
    metrics = ConsumerMetrics()
    registry = registry_of(metrics)
    first, second, other = Consumer().read(10), Consumer().read(5), Consumer("h").read(3)
    for consumer in (first, second, other):
        metrics.add(consumer)
    first.read(1)
    first.closed = True
    second.read(2)
    for _ in range(2):
        found = exposed(registry)
        assert crossed(found) == 18
        assert of(found, "rackassign_partitions", group="g", locality="cross") == 2
    second.closed = True
    assert groups(exposed(registry)) == {"h"}
    metrics.add(Consumer("g").read(4))
    gc.collect()
    assert groups(exposed(registry)) == {"h"}
    again = Consumer().read(4)
    metrics.add(again)
    assert crossed(exposed(registry)) == 4


def test_a_group_that_was_without_consumers_between_two_scrapes_begins_anew() -> None:
    metrics = ConsumerMetrics()
    first = Consumer().read(10)
    metrics.add(first)
    first.closed = True
    second = Consumer().read(1)
    metrics.add(second)
    assert crossed(scraped(metrics)) == 1


def test_consumers_are_not_kept_and_count_without_any_scrape_whether_they_were_closed_or_not() -> None:
    metrics = ConsumerMetrics()
    stays = Consumer().read(1)
    metrics.add(stays)
    for number in range(100):
        consumer = Consumer().read(1)
        metrics.add(consumer)
        consumer.closed = number % 2 == 0
    del consumer
    gc.collect()
    assert [each for each in gc.get_objects() if isinstance(each, Consumer)] == [stays]
    assert crossed(scraped(metrics)) == 101


def test_a_consumer_that_cannot_be_read_is_left_out_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    metrics = ConsumerMetrics()
    registry = registry_of(metrics)
    broken, beside, alone = Consumer().read(10), Consumer().read(5), Consumer("h").read(1)
    for consumer in (broken, beside, alone):
        metrics.add(consumer)
    assert crossed(exposed(registry)) == 15
    broken.read(1)
    broken.error = alone.error = OSError("broken")
    for _ in range(2):
        found = exposed(registry)
        # The sum of a group does not sink because one consumer cannot be read.
        assert crossed(found) == 15
        assert of(found, "rackassign_partitions", group="g", locality="cross") == 2
        assert groups(found) == {"g"}
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert "a consumer of group g cannot be read" in caplog.text
    broken.error = None
    assert crossed(exposed(registry)) == 16


def test_a_consumer_that_raises_because_it_was_closed_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    metrics = ConsumerMetrics()
    beside, late = Consumer().read(5), Consumer()
    metrics.add(beside)
    asked = 0

    def closed(_: Consumer) -> bool:
        # It closes between the look at it and the read.
        nonlocal asked
        asked += 1
        return asked > 1

    def closing() -> RackTraffic:
        raise RuntimeError("closed")

    set_view(late, ConsumerView("g", closing, lambda _: Locality(0, 0, 0), closed))
    metrics.add(late)
    assert crossed(scraped(metrics)) == 5
    assert crossed(scraped(metrics)) == 5
    assert not caplog.records


def test_a_registry_refuses_a_second_object() -> None:
    registry = CollectorRegistry()
    registry.register(ConsumerMetrics(Consumer()))
    with pytest.raises(ValueError, match="rackassign_read_bytes"):
        registry.register(ConsumerMetrics(Consumer()))


def test_one_family_can_be_scraped_alone() -> None:
    consumer = Consumer().read(1)
    restricted = registry_of(ConsumerMetrics(consumer)).restricted_registry(["rackassign_partitions"])
    assert [family.name for family in restricted.collect()] == ["rackassign_partitions"]


def test_consumers_come_and_go_while_others_are_scraped() -> None:
    metrics = ConsumerMetrics()
    registry = registry_of(metrics)
    stays = Consumer().read(1)
    metrics.add(stays)
    errors: list[BaseException] = []
    totals: list[float] = []
    over = threading.Event()

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - shown by the test
                errors.append(error)

        return run

    def scrape() -> None:
        while not over.is_set():
            totals.append(crossed(exposed(registry)))

    def churn() -> None:
        for _ in range(200):
            consumer = Consumer()
            metrics.add(consumer)
            consumer.read(1)
            consumer.closed = True

    scraping = threading.Thread(target=guarded(scrape))
    churning = [threading.Thread(target=guarded(churn)) for _ in range(4)]
    for thread in (scraping, *churning):
        thread.start()
    for thread in churning:
        thread.join(60)
    over.set()
    scraping.join(60)
    assert not errors
    assert totals == sorted(totals)
    assert crossed(exposed(registry)) == 801
