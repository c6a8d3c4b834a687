"""What an exception keeps from being returned is read again."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError
from confluent_kafka import TopicPartition as Offset

from rackassign.clients.confluent.delivery import Delivery
from rackassign.clients.confluent.user_callbacks import UserCallbacks
from tests.helpers.fakes.confluent import ONE, TWO, ConsumerHarness, message


class Taking:
    """librdkafka: gives out records by number of the call, and frees them if the call ends with an exception."""

    def __init__(self, group: ConsumerHarness, *batches: list[Any] | BaseException) -> None:
        self.group, self.batches = group, list(batches)
        self.waits: list[float] = []
        group.source.poll = self.poll  # type: ignore[attr-defined]
        group.source.consume = self.consume  # type: ignore[attr-defined]

    def consume(self, most: int, wait_s: float) -> list[Any]:
        self.waits.append(wait_s)
        batch = self.batches.pop(0) if self.batches else []
        records = batch.args[0] if isinstance(batch, BaseException) else batch
        assert len(records) <= most
        for place, offset in records:
            self.group.source.delivered[place] = offset + 1
        if isinstance(batch, BaseException):
            raise batch
        return [message(place, offset) for place, offset in records]

    def poll(self, wait_s: float) -> Any:
        return next(iter(self.consume(1, wait_s)), None)


@pytest.fixture
def group() -> ConsumerHarness:
    group = ConsumerHarness()
    group.give(ONE, TWO)
    return group


def delivery(group: ConsumerHarness) -> Delivery:
    return Delivery(group.reader, group.stalls, UserCallbacks())


def positions(group: ConsumerHarness) -> dict[Any, int]:
    return {(each.topic, each.partition): each.offset for each in group.reader.positions([ONE, TWO])}


def test_a_record_that_ended_an_interrupted_wait_is_read_again(group: ConsumerHarness) -> None:
    delivered = delivery(group)
    Taking(group, [(ONE, 4)], [], KeyboardInterrupt([(ONE, 5)]))
    taken = delivered.poll(1)
    assert taken is not None
    assert taken.offset() == 4
    with pytest.raises(KeyboardInterrupt):
        delivered.poll(1)
    assert group.source.reading == {ONE: 5, TWO: OFFSET_BEGINNING}
    # A commit is one of what was returned.
    assert positions(group) == {ONE: 5}


def test_a_partition_of_which_nothing_was_read_begins_again_where_it_began(group: ConsumerHarness) -> None:
    Taking(group, [], RuntimeError([(TWO, 0)]))
    with pytest.raises(RuntimeError):
        delivery(group).poll(1)
    assert group.source.reading == {ONE: OFFSET_BEGINNING, TWO: OFFSET_BEGINNING}
    assert positions(group) == {}


def test_of_a_batch_all_that_was_taken_is_read_again(group: ConsumerHarness) -> None:
    delivered = delivery(group)
    taking = Taking(group, [(ONE, 7)], [(ONE, 8)], [(TWO, 3), (ONE, 9)], [], KeyboardInterrupt([(ONE, 10)]))
    assert [each.offset() for each in delivered.consume([], 1, 1)] == [7]
    held = delivered.consume([], 10, 1)
    assert [each.offset() for each in held] == [8, 3, 9]
    with pytest.raises(KeyboardInterrupt):
        delivered.consume(held, 10, 1)
    assert group.source.reading == {ONE: 8, TWO: 3}
    assert positions(group) == {ONE: 8, TWO: 3}
    assert taking.waits == [0, 0, 1, 0, 1]


def test_what_was_sought_in_between_is_not_taken_back(group: ConsumerHarness) -> None:
    delivered = delivery(group)
    Taking(group, [], [], [], KeyboardInterrupt([]))
    assert delivered.poll(1) is None
    group.source.delivered.clear()
    group.reader.seek(Offset(*ONE, 90))
    with pytest.raises(KeyboardInterrupt):
        delivered.poll(1)
    assert group.source.reading == {ONE: 90, TWO: OFFSET_BEGINNING}


def test_the_exception_stays_if_librdkafka_refuses_to_begin_again(
    group: ConsumerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    Taking(group, [], KeyboardInterrupt([(ONE, 5)]))
    group.source.failing = {"incremental_unassign": KafkaError._FAIL}
    with pytest.raises(KeyboardInterrupt):
        delivery(group).poll(1)
    assert "records that it had taken may be skipped" in caplog.text
