"""Traffic of kafka-python's clients: fetch responses of consumers, and produce requests and queues of producers.

A consumer's locality is among its own metrics, for its reporters.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

from kafka.metrics import AnonMeasurable

from rackassign.clients.fetch_metrics import FetchedPartition, FetchMeter, Observer, Traffic, count_records
from rackassign.clients.kafka_python.internals.adapter import rack_of
from rackassign.clients.kafka_python.internals.attributes import Consumer
from rackassign.clients.write_metrics import WriteMeter
from rackassign.model import TopicPartition
from rackassign.text import WarnOnce, with_version

GROUP = "rackassign-locality-metrics"


class MetricGroup:
    """Adds metrics to a consumer; reads `_metrics`, which is None if metrics are disabled.

    `metrics()` returns names without their tags, so a name contains whatever distinguishes two metrics.
    """

    def __init__(self, consumer: Consumer, group: str, once: WarnOnce, what: str) -> None:
        self._metrics = getattr(consumer, "_metrics", None)
        self._group = group
        self._once = once
        # What is missing if kafka-python differs, for the warning.
        self._what = what

    def add(self, name: str, description: str, tags: Mapping[str, str], value: Callable[[], float]) -> Any:
        """Add a metric; return its name, None if there are no metrics."""
        if self._metrics is None:
            return None
        try:
            named: Any = self._metrics.metric_name(name, self._group, description, dict(tags))
            self._metrics.add_metric(named, AnonMeasurable(lambda _config, _now: value()))
        except Exception:  # noqa: BLE001 - a metric that cannot be shown is still counted
            self._once.warn(
                "metrics",
                "%s differs: %s not among its metrics",
                with_version("kafka-python"),
                self._what,
                exc_info=True,
            )
            return None
        return named

    def remove(self, named: Any) -> None:
        if self._metrics is not None:
            self._metrics.remove_metric(named)


class LocalityMetrics:
    """Publishes a meter of a consumer."""

    def __init__(self, consumer: Consumer, once: WarnOnce) -> None:
        self._group = MetricGroup(consumer, GROUP, once, "locality is")
        self._pairs: dict[tuple[str, str | None], list[Any]] = {}

    def publish(self, meter: FetchMeter) -> None:
        tags = {"rack": meter.rack or ""}

        def share() -> float:
            local = meter.locality().local_share()
            return float("nan") if local is None else local

        self._group.add("local-share", "share of the bytes fetched in the consumer's own rack, 0 to 1", tags, share)
        for kind in ("local", "cross", "unknown"):
            for i, unit in enumerate(("bytes", "records")):
                self._group.add(
                    f"{kind}-{unit}-total",
                    f"{unit} fetched, {kind}",
                    tags,
                    partial(_total, meter, kind, i),
                )

    def add_topic_rack_metric(self, meter: FetchMeter, topic: str, rack: str | None) -> None:
        tags = {"rack": meter.rack or "", "topic": topic, "from": rack or ""}
        named = [
            self._group.add(
                f"{unit}-of-{topic}-from-{rack or 'unknown'}-total",
                f"{unit} of {topic} fetched from rack {rack or 'unknown'}",
                tags,
                partial(_of_pair, meter, topic, rack, i),
            )
            for i, unit in enumerate(("bytes", "records"))
        ]
        self._pairs[topic, rack] = [name for name in named if name is not None]

    def withdraw_others(self, meter: FetchMeter, topics: Collection[str]) -> None:
        """Remove the traffic of all topics except these: a pattern subscription may match ever new topics."""
        for pair in meter.forget_pairs(topics):
            for name in self._pairs.pop(pair, ()):
                self._group.remove(name)


def _total(meter: FetchMeter, kind: str, index: int) -> float:
    amount: Traffic = getattr(meter.locality(), kind)()
    return amount[index]


def _of_pair(meter: FetchMeter, topic: str, rack: str | None, index: int) -> float:
    return meter.amount(topic, rack)[index]


def observe_fetches(consumer: Any, observer: Observer, once: WarnOnce, *, key: object) -> None:
    """Pass every fetch response to an observer, unless there is one for this key already.

    Shadows `_fetcher._handle_fetch_response`, which is looked up for each send.
    """
    fetcher = getattr(consumer, "_fetcher", None)
    observers: dict[object, Observer] | None = vars(fetcher).get("_rackassign") if fetcher is not None else None
    if observers is None:
        if not _show_fetches(fetcher, once):
            return
        observers = {}
    if key not in observers:
        # Replaced and not changed: the IO thread may be iterating over the old one.
        fetcher._rackassign = {**observers, key: observer}  # type: ignore[union-attr]


def _show_fetches(fetcher: Any, once: WarnOnce) -> bool:
    original = getattr(fetcher, "_handle_fetch_response", None)
    expected = ("node_id", "fetch_offsets", "send_time", "response")
    if original is None or tuple(inspect.signature(original).parameters) != expected:
        once.warn("fetches", "%s differs: fetches are not observed", with_version("kafka-python"))
        return False

    def handle_fetch_response(node_id: int, fetch_offsets: Any, send_time: float, response: Any) -> None:
        try:
            fetched = _fetched(response)
            for observe in fetcher._rackassign.values():
                observe(node_id, fetched)
        except Exception:  # noqa: BLE001 - a response that could not be observed must still be read
            once.warn(
                "fetches",
                "%s differs: a fetch response could not be observed",
                with_version("kafka-python"),
                exc_info=True,
            )
        original(node_id, fetch_offsets, send_time, response)

    fetcher._handle_fetch_response = handle_fetch_response
    return True


def _fetched(response: Any) -> list[FetchedPartition]:
    return [
        FetchedPartition(
            TopicPartition(topic.topic, partition.partition_index),
            len(partition.records or b""),
            count_records(partition.records or b""),
            # -1 means none.
            partition.preferred_read_replica if partition.preferred_read_replica >= 0 else None,
        )
        for topic in response.responses
        for partition in topic.partitions
    ]


def racks_of(producer: Any) -> tuple[Callable[[int], str | None], Callable[[], list[str | None]]]:
    """Return functions that return the rack of a broker, and those of all, in a producer's metadata; reads `_metadata`.

    They do not refer to the producer: the sender's thread sends what is left of one that was garbage-collected.
    """
    metadata = getattr(producer, "_metadata", None)
    return partial(rack_of, metadata), lambda: [] if metadata is None else [each.rack for each in metadata.brokers()]


def queue_lengths(producer: Any, once: WarnOnce) -> Callable[[TopicPartition], int] | None:
    """Return a function that returns how many batches of a partition are to be sent; None if it cannot be known.

    Reads `_accumulator._batches`, which has a queue for each partition.
    """
    queues = getattr(getattr(producer, "_accumulator", None), "_batches", None)
    if not isinstance(queues, dict):
        once.warn("queues", "%s differs: slow leaders get as many records", with_version("kafka-python"))
        return None
    return lambda partition: len(queues.get(partition, ()))


def count_writes(producer: Any, meter: WriteMeter, once: WarnOnce) -> None:
    """Count every produce request; shadows `_sender._produce_request`, which is looked up for each request."""
    sender = getattr(producer, "_sender", None)
    original = getattr(sender, "_produce_request", None)
    expected = ("node_id", "acks", "timeout", "batches")
    if original is None or tuple(inspect.signature(original).parameters) != expected:
        once.warn("writes", "%s differs: what is written is not counted", with_version("kafka-python"))
        return

    def produce_request(node_id: int, acks: Any, timeout: Any, batches: Any) -> Any:
        request = original(node_id, acks, timeout, batches)
        try:
            meter(node_id, _written(request))
        except Exception:  # noqa: BLE001 - a request that could not be counted must still be sent
            once.warn(
                "writes", "%s differs: a request could not be counted", with_version("kafka-python"), exc_info=True
            )
        return request

    sender._produce_request = produce_request  # type: ignore[union-attr]


def _written(request: Any) -> Iterator[tuple[TopicPartition, Traffic]]:
    for topic in request.topic_data:
        for partition in topic.partition_data:
            batches = partition.records
            yield TopicPartition(topic.name, partition.index), Traffic(len(batches), count_records(batches))
