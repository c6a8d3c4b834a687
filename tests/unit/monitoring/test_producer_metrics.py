"""Metrics of the producers of a process: sums that never sink, whatever becomes of a producer."""

from __future__ import annotations

import gc

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from prometheus_client import CollectorRegistry

from rackassign.clients.fetch_metrics import Traffic
from rackassign.clients.write_metrics import WriteMeter, meter_of, set_meter
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.monitoring.opentelemetry import OpenTelemetryProducerMetrics
from rackassign.monitoring.prometheus import ProducerMetrics
from tests.helpers.exposition import scraped

BYTES = "rackassign_written_bytes_total"


class Producer:
    """A producer with a meter; brokers 1 and 2 are in the racks a and b."""

    def __init__(self, rack: str | None = "b") -> None:
        racks = {1: "a", 2: "b"}
        set_meter(self, WriteMeter(rack, racks.get, racks.values))

    def write(self, broker: int, size: int, partition: int = 0, topic: str = "t") -> None:
        meter_of(self)(broker, [(TopicPartition(topic, partition), Traffic(size, 1))])


def written(metrics: ProducerMetrics) -> dict[tuple[str, ...], float]:
    """Return the bytes by the values of the labels, in the order of the labels' names."""
    return {
        tuple(value for _, value in labels): size for (name, labels), size in scraped(metrics).items() if name == BYTES
    }


def test_producers_are_summed_up_by_topic_and_racks() -> None:
    first, second, blind = Producer(), Producer(), Producer(None)
    metrics = ProducerMetrics(first)
    metrics.add(second)
    metrics.add(blind)
    metrics.add(first)
    first.write(1, 10)
    first.write(1, 5, partition=7)
    second.write(1, 100)
    second.write(2, 1, topic="u")
    second.write(3, 9)
    blind.write(1, 2)
    # locality, rack, to_rack, topic
    assert written(metrics) == {
        ("cross", "b", "a", "t"): 115,
        ("local", "b", "b", "u"): 1,
        ("unknown", "b", "unknown", "t"): 9,
        ("unknown", "unknown", "a", "t"): 2,
    }


@pytest.mark.parametrize("rack", ["d", "A"])
def test_what_a_producer_in_a_rack_without_brokers_writes_is_unknown_also_after_it_was_released(rack: str) -> None:
    producer: Producer | None = Producer(rack)
    metrics = ProducerMetrics(producer)
    assert producer is not None
    producer.write(1, 10)
    assert meter_of(producer).locality().unknown() == Traffic(10, 1)
    for _ in range(2):
        assert written(metrics) == {("unknown", rack, "a", "t"): 10}
        producer = None
        gc.collect()


def test_partitions_are_series_of_their_own_if_asked_for() -> None:
    producer = Producer()
    metrics = ProducerMetrics(producer, by_partition=True)
    producer.write(1, 10)
    producer.write(1, 5, partition=7)
    # locality, partition, rack, to_rack, topic
    assert written(metrics) == {("cross", "0", "b", "a", "t"): 10, ("cross", "7", "b", "a", "t"): 5}


def test_what_a_released_producer_has_written_stays_in_the_sum() -> None:
    producer, other = Producer(), Producer()
    metrics = ProducerMetrics(producer)
    metrics.add(other)
    producer.write(2, 10)
    other.write(2, 1)
    for _ in range(2):
        assert written(metrics) == {("local", "b", "b", "t"): 11}
        producer = other
        gc.collect()
    other.write(2, 4)
    assert written(metrics) == {("local", "b", "b", "t"): 15}


def test_what_is_sent_while_a_producer_is_released_counts() -> None:
    producer: Producer | None = Producer()
    metrics = ProducerMetrics(producer)
    # As the thread of kafka-python's sender, which has the meter until it ends.
    sender = meter_of(producer)
    producer = None
    gc.collect()
    assert written(metrics) == {}
    sender(2, [(TopicPartition("t", 0), Traffic(10, 1))])
    assert written(metrics) == {("local", "b", "b", "t"): 10}
    del sender
    gc.collect()
    assert written(metrics) == {("local", "b", "b", "t"): 10}


def test_what_counts_nothing_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match=r"not counted: object is no RackAwareProducer"):
        ProducerMetrics(object())
    producer = Producer()
    set_meter(producer, "statistics.interval.ms is not set")
    with pytest.raises(ConfigError, match=r"not counted: statistics.interval.ms is not set"):
        ProducerMetrics().add(producer)


def test_a_registry_refuses_a_second_object() -> None:
    registry = CollectorRegistry()
    registry.register(ProducerMetrics())
    with pytest.raises(ValueError, match="rackassign_written_bytes"):
        registry.register(ProducerMetrics())


def test_opentelemetry_gets_the_same_and_a_second_object_is_joined() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    producers = Producer(), Producer()
    for producer in producers:
        OpenTelemetryProducerMetrics(provider.get_meter("rackassign"), by_partition=True).add(producer)
        producer.write(1, 10, partition=3)
    with pytest.raises(ConfigError, match=r"this meter exports the labels .*partition.* already"):
        OpenTelemetryProducerMetrics(provider.get_meter("rackassign"))
    data = reader.get_metrics_data()
    assert data is not None
    (metric,) = data.resource_metrics[0].scope_metrics[0].metrics
    (point,) = metric.data.data_points
    assert isinstance(point, NumberDataPoint)
    labels = {"topic": "t", "partition": "3", "rack": "b", "to_rack": "a", "locality": "cross"}
    assert (metric.name, metric.unit, point.value, dict(point.attributes or {})) == (
        "rackassign.written",
        "By",
        20,
        labels,
    )
    provider.shutdown()
