"""Metrics of consumers by OpenTelemetry's API, as its SDK collects them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint, Sum

from rackassign.clients.fetch_metrics import ConsumerView, RackTraffic, Traffic, set_view
from rackassign.errors import ConfigError
from rackassign.locality import Locality
from rackassign.monitoring.opentelemetry import OpenTelemetryMetrics

Points = dict[tuple[str, frozenset[tuple[str, object]]], float]


class Consumer:
    """An attached consumer of group g in rack b, which has read from rack a and from an unknown one."""

    def __init__(self, size: int) -> None:
        self.closed = False
        fetched = RackTraffic("b", {"t": {"a": Traffic(size, 1), None: Traffic(1, 1)}})
        set_view(self, ConsumerView("g", lambda: fetched, lambda _: Locality(1, 2, 0), lambda each: each.closed))
        self._fetched = fetched

    def locality(self) -> RackTraffic:
        return self._fetched


class Application:
    """The SDK of an application, with a reader that is asked."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader])
        self.metrics = OpenTelemetryMetrics(self.provider.get_meter("rackassign"))

    def collected(self) -> Points:
        """Return the value of each series."""
        data = self.reader.get_metrics_data()
        return {
            (metric.name, frozenset((point.attributes or {}).items())): point.value
            for resource in ([] if data is None else data.resource_metrics)
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
            if isinstance(point, NumberDataPoint)
        }


@pytest.fixture
def application() -> Iterator[Application]:
    made = Application()
    yield made
    made.provider.shutdown()


def read(rack: str, from_rack: str, locality: str) -> tuple[str, frozenset[tuple[str, object]]]:
    labels = {"group": "g", "rack": rack, "from_rack": from_rack, "locality": locality}
    return "rackassign.read", frozenset(labels.items())


def partitions(locality: str) -> tuple[str, frozenset[tuple[str, object]]]:
    return "rackassign.partitions", frozenset({"group": "g", "locality": locality}.items())


def test_consumers_of_a_group_are_summed_up(application: Application) -> None:
    first, second = Consumer(10), Consumer(5)
    for consumer in (first, second, first):
        application.metrics.add(consumer)
    assert application.collected() == {
        read("b", "a", "cross"): 15,
        read("b", "unknown", "unknown"): 2,
        partitions("local"): 2,
        partitions("cross"): 4,
        partitions("unknown"): 0,
    }


def test_the_sum_of_bytes_is_a_counter_in_bytes(application: Application) -> None:
    consumer = Consumer(10)
    application.metrics.add(consumer)
    data = application.reader.get_metrics_data()
    assert data is not None
    metrics = {each.name: each for each in data.resource_metrics[0].scope_metrics[0].metrics}
    bytes_ = metrics["rackassign.read"]
    assert isinstance(bytes_.data, Sum)
    assert (bytes_.unit, bytes_.data.is_monotonic) == ("By", True)
    assert metrics["rackassign.partitions"].unit == "{partition}"


def test_a_second_object_of_a_meter_exports_with_the_first_one(application: Application) -> None:
    other = OpenTelemetryMetrics(application.provider.get_meter("rackassign"))
    first, second = Consumer(10), Consumer(5)
    application.metrics.add(first)
    other.add(second)
    assert application.collected()[read("b", "a", "cross")] == 15


def test_a_consumer_must_count_and_have_a_group(application: Application) -> None:
    with pytest.raises(ConfigError, match="attach"):
        application.metrics.add(object())  # type: ignore[arg-type]


def test_without_an_sdk_nothing_is_collected_and_nothing_fails() -> None:
    metrics = OpenTelemetryMetrics()
    metrics.add(Consumer(10))
