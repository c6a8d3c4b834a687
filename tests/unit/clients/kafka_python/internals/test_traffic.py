"""Produce requests of kafka-python: counted, or left alone if the library is another one."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition as KafkaPythonPartition

from rackassign.clients.kafka_python.internals.traffic import count_writes, queue_lengths, racks_of
from rackassign.clients.write_metrics import WriteMeter
from rackassign.model import TopicPartition
from rackassign.text import WarnOnce


def request(**topics: list[bytes]) -> Any:
    """Return a request with the batches of each partition of each topic."""
    return SimpleNamespace(
        topic_data=[
            SimpleNamespace(
                name=name, partition_data=[SimpleNamespace(index=i, records=each) for i, each in enumerate(batches)]
            )
            for name, batches in topics.items()
        ]
    )


class Sender:
    def _produce_request(self, node_id: int, acks: Any, timeout: Any, batches: Any) -> Any:
        del node_id, acks, timeout
        return batches


def counting(sender: Any) -> WriteMeter:
    meter = WriteMeter("a", {1: "a", 2: "b"}.get)
    count_writes(SimpleNamespace(_sender=sender), meter, WarnOnce(logging.getLogger("rackassign.t")))
    return meter


def test_a_request_is_counted_by_topic_and_rack_and_passed_on() -> None:
    sender: Any = Sender()
    meter, made = counting(sender), request(t=[b"123", b"4"], u=[b"56"])
    assert sender._produce_request(2, 1, 2, made) is made
    sender._produce_request(1, 1, 2, made)
    traffic = meter.locality()
    assert {rack: amount.bytes for rack, amount in traffic.by_rack().items()} == {"a": 6, "b": 6}
    assert traffic.cross("t").bytes == 4


def test_the_racks_of_a_producer_outlive_it() -> None:
    brokers = {1: SimpleNamespace(rack="a")}
    metadata = SimpleNamespace(broker_metadata=brokers.get, brokers=brokers.values)
    rack_of, racks = racks_of(SimpleNamespace(_metadata=metadata))
    assert (rack_of(1), rack_of(2), racks()) == ("a", None, ["a"])
    assert racks_of(SimpleNamespace())[1]() == []


def test_a_request_that_cannot_be_counted_is_sent(warnings: pytest.LogCaptureFixture) -> None:
    sender: Any = Sender()
    meter, strange = counting(sender), object()
    assert [sender._produce_request(1, 1, 2, strange) for _ in range(2)] == [strange] * 2
    assert not meter.by_partition()
    assert len(warnings.records) == 1


@pytest.mark.parametrize("sender", [None, SimpleNamespace(), SimpleNamespace(_produce_request=lambda batches: batches)])
def test_a_sender_that_differs_is_left_alone(sender: Any, warnings: pytest.LogCaptureFixture) -> None:
    before = dict(vars(sender or SimpleNamespace()))
    counting(sender)
    assert vars(sender or SimpleNamespace()) == before
    assert [record.getMessage().split(": ", 1)[1] for record in warnings.records] == ["what is written is not counted"]


def test_queues_are_read_by_partition_and_without_them_it_is_reported(warnings: pytest.LogCaptureFixture) -> None:
    once = WarnOnce(logging.getLogger("rackassign.t"))
    shown = SimpleNamespace(_accumulator=SimpleNamespace(_batches={KafkaPythonPartition("t", 1): [1, 2]}))
    queued = queue_lengths(shown, once)
    assert queued is not None
    assert [queued(TopicPartition("t", number)) for number in range(3)] == [0, 2, 0]
    assert queue_lengths(SimpleNamespace(), once) is None
    assert "slow leaders get as many records" in warnings.text
