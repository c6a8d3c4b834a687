"""What an exception keeps from being returned is read again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError
from confluent_kafka import TopicPartition as Offset

from rackassign.clients.confluent.delivery import Delivery
from rackassign.clients.confluent.fetcher import UserCallbacks
from tests.helpers.fakes.confluent import ONE, TWO, ConsumerHarness, message


class Taking:
    """librdkafka: gives out records by number of the call, and frees them if the call ends with an exception."""

    def __init__(self, group: ConsumerHarness, *batches: list[Any] | BaseException) -> None:
        self.group, self.batches = group, list(batches)
        group.source.poll = self.poll  # type: ignore[attr-defined]
        group.source.consume = self.consume  # type: ignore[attr-defined]

    def consume(self, most: int, _wait_s: float) -> list[Any]:
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


class Calls:
    """The calls of a consumer, as it makes them."""

    def __init__(self, group: ConsumerHarness) -> None:
        self.delivery = Delivery(group.reader, group.stalls, UserCallbacks(), group.member.lost)

    def poll(self, failing: BaseException | None = None) -> int | None:
        """Return the offset of a record; or fail, after it was taken."""
        with self._call():
            taken = self.delivery.poll(1)
            if failing is not None:
                raise failing
        return None if taken is None else taken.offset()

    def consume(self, most: int, times: int = 1) -> list[Any]:
        held: list[Any] = []
        with self._call():
            for _ in range(times):
                held = self.delivery.consume(held, most, 1)
        return held

    @contextmanager
    def _call(self) -> Iterator[None]:
        self.delivery.begin()
        try:
            yield
        except BaseException:
            self.delivery.put_back()
            raise


def offsets(records: list[Any]) -> list[int]:
    return [each.offset() for each in records]


def positions(group: ConsumerHarness) -> dict[Any, int]:
    return {(each.topic, each.partition): each.offset for each in group.reader.positions([ONE, TWO])}


def test_a_record_that_ended_an_interrupted_wait_is_read_again(group: ConsumerHarness) -> None:
    calls = Calls(group)
    Taking(group, [(ONE, 4)], [], KeyboardInterrupt([(ONE, 5)]))
    assert calls.poll() == 4
    assert calls.poll() is None
    with pytest.raises(KeyboardInterrupt):
        calls.poll()
    assert group.source.reading == {ONE: 5, TWO: OFFSET_BEGINNING}
    # A commit is one of what was returned.
    assert positions(group) == {ONE: 5}


def test_so_is_one_of_a_busy_topic_at_which_nothing_waits(group: ConsumerHarness) -> None:
    calls = Calls(group)
    Taking(group, [(ONE, 4)], [(TWO, 8)], KeyboardInterrupt([(ONE, 5)]))
    assert [calls.poll(), calls.poll()] == [4, 8]
    with pytest.raises(KeyboardInterrupt):
        calls.poll()
    assert group.source.reading == {ONE: 5, TWO: OFFSET_BEGINNING}
    assert positions(group) == {ONE: 5, TWO: 9}


def test_so_is_one_with_which_librdkafka_has_returned(group: ConsumerHarness) -> None:
    calls = Calls(group)
    Taking(group, [(ONE, 4)], [(ONE, 5)])
    assert calls.poll() == 4
    with pytest.raises(KeyboardInterrupt):
        calls.poll(KeyboardInterrupt())
    assert group.source.reading == {ONE: 5, TWO: OFFSET_BEGINNING}


def test_an_exception_before_anything_is_taken_changes_nothing(group: ConsumerHarness) -> None:
    calls = Calls(group)
    Taking(group, [(ONE, 4)], [(ONE, 5)])
    assert calls.poll() == 4
    calls.delivery.begin()
    calls.delivery.put_back()
    assert calls.poll() == 5
    # Nor does one after a rebalance that this has not seen yet.
    calls.delivery.begin()
    group.give(ONE)
    calls.delivery.put_back()
    assert group.source.reading == {ONE: OFFSET_BEGINNING}
    assert positions(group) == {ONE: 6}


def test_a_partition_of_which_nothing_was_read_begins_again_where_it_began(group: ConsumerHarness) -> None:
    Taking(group, RuntimeError([(TWO, 0)]))
    with pytest.raises(RuntimeError):
        Calls(group).poll()
    assert group.source.reading == {ONE: OFFSET_BEGINNING, TWO: OFFSET_BEGINNING}
    assert positions(group) == {}


@pytest.mark.parametrize("before", [[7], [5, 6, 7]])
def test_of_a_batch_all_that_was_taken_is_read_again(group: ConsumerHarness, before: list[int]) -> None:
    """After a few records before it, and after more than there are partitions."""
    calls = Calls(group)
    Taking(group, [(ONE, each) for each in before], [(ONE, 8), (TWO, 3)], KeyboardInterrupt([(ONE, 9)]))
    returned = calls.consume(3)
    assert offsets(returned) == before
    # The list is the user's.
    returned.clear()
    with pytest.raises(KeyboardInterrupt):
        calls.consume(10, times=2)
    assert group.source.reading == {ONE: 8, TWO: OFFSET_BEGINNING}
    assert positions(group) == {ONE: 8}


def test_what_was_sought_in_between_is_not_taken_back(group: ConsumerHarness) -> None:
    calls = Calls(group)
    Taking(group, [(ONE, 4)], KeyboardInterrupt([]))
    assert calls.poll() == 4
    group.source.delivered.clear()
    group.reader.seek(Offset(*ONE, 90))
    with pytest.raises(KeyboardInterrupt):
        calls.poll()
    assert group.source.reading == {ONE: 90, TWO: OFFSET_BEGINNING}


def test_after_a_loss_of_membership_only_errors_are_returned(group: ConsumerHarness) -> None:
    calls = Calls(group)
    Taking(group, [(ONE, 4)], [(ONE, 5)])
    group.member.is_lost = True
    assert calls.poll() is None
    assert calls.consume(5) == []
    failed = message(TWO, 0, KafkaError(KafkaError._ALL_BROKERS_DOWN))
    group.source.poll = lambda _wait_s: failed  # type: ignore[attr-defined]
    assert calls.delivery.poll(1) is failed


def test_the_exception_stays_if_librdkafka_refuses_to_begin_again(
    group: ConsumerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    Taking(group, KeyboardInterrupt([(ONE, 5)]))
    group.source.failing = {"incremental_unassign": KafkaError._FAIL}
    with pytest.raises(KeyboardInterrupt):
        Calls(group).poll()
    assert "records that it had taken may be skipped" in caplog.text
