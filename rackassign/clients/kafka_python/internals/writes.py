"""Produce requests of kafka-python's producers, observed as they are made, and the queues of their batches."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from rackassign.clients.fetch_metrics import Traffic, count_records
from rackassign.clients.kafka_python.internals.adapter import rack_of
from rackassign.clients.write_metrics import WriteMeter
from rackassign.model import TopicPartition
from rackassign.text import WarnOnce, with_version


def racks_of(producer: Any) -> Callable[[int], str | None]:
    """Return a function that returns the rack of a broker in a producer's metadata; reads `_metadata`.

    It does not refer to the producer: the sender's thread sends what is left of one that was garbage-collected.
    """
    return partial(rack_of, getattr(producer, "_metadata", None))


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
    """Count every produce request of a producer.

    Shadows `_sender._produce_request`, which the sender's thread looks up for each request.
    """
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
