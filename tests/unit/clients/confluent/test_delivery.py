"""What an exception keeps from being returned is read again.

Partitions that librdkafka has stopped reading: which are found, and that no other is touched.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError
from confluent_kafka import TopicPartition as Offset

from rackassign.clients.confluent._config import QueueLimits
from rackassign.clients.confluent._delivery import QUIET_S, Delivery, StallDetector
from rackassign.clients.confluent._fetcher import UserCallbacks
from rackassign.clients.kafka_python.internals.group_member import MemberAssignment
from tests.helpers.fakes.confluent import ONE, TWO, ConsumerHarness, message
from tests.helpers.librdkafka_statistics import partition, statistics_json


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
            taken = self.delivery.poll(0)
            if failing is not None:
                raise failing
        return None if taken is None else taken.offset()

    def consume(self, most: int, times: int = 1) -> list[Any]:
        held: list[Any] = []
        with self._call():
            for _ in range(times):
                held = self.delivery.consume(held, most, 0)
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
    group.source.coming = [[message(ONE, 4)], [], KeyboardInterrupt([message(ONE, 5)])]
    assert calls.poll() == 4
    assert calls.poll() is None
    with pytest.raises(KeyboardInterrupt):
        calls.poll()
    assert group.source.reading == {ONE: 5, TWO: OFFSET_BEGINNING}
    # A commit is one of what was returned.
    assert positions(group) == {ONE: 5}


def test_an_exception_before_anything_is_taken_changes_nothing(group: ConsumerHarness) -> None:
    calls = Calls(group)
    group.source.coming = [[message(ONE, 4)], [message(ONE, 5)]]
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
    group.source.coming = [RuntimeError([message(TWO, 0)])]
    with pytest.raises(RuntimeError):
        Calls(group).poll()
    assert group.source.reading == {ONE: OFFSET_BEGINNING, TWO: OFFSET_BEGINNING}
    assert positions(group) == {}


@pytest.mark.parametrize("before", [[7], [5, 6, 7]])
def test_of_a_batch_all_that_was_taken_is_read_again(group: ConsumerHarness, before: list[int]) -> None:
    """After a few records before it, and after more than there are partitions."""
    calls = Calls(group)
    group.source.coming = [
        [message(ONE, each) for each in before],
        [message(ONE, 8), message(TWO, 3)],
        KeyboardInterrupt([message(ONE, 9)]),
    ]
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
    group.source.coming = [[message(ONE, 4)], KeyboardInterrupt([])]
    assert calls.poll() == 4
    group.source.delivered.clear()
    group.reader.seek(Offset(*ONE, 90))
    with pytest.raises(KeyboardInterrupt):
        calls.poll()
    assert group.source.reading == {ONE: 90, TWO: OFFSET_BEGINNING}


def test_after_a_loss_of_membership_only_errors_are_returned(group: ConsumerHarness) -> None:
    calls = Calls(group)
    group.source.coming = [[message(ONE, 4)], [message(ONE, 5)]]
    group.member.is_lost = True
    assert calls.poll() is None
    assert calls.consume(5) == []
    failed = message(TWO, 0, KafkaError(KafkaError._ALL_BROKERS_DOWN))
    group.source.coming = [[failed]]
    assert calls.delivery.poll(1) is failed


def test_the_exception_stays_if_librdkafka_refuses_to_begin_again(
    group: ConsumerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    group.source.coming = [KeyboardInterrupt([message(ONE, 5)])]
    group.source.failing = {"incremental_unassign": KafkaError._FAIL}
    with pytest.raises(KeyboardInterrupt):
        Calls(group).poll()
    assert "records that it had taken may be skipped" in caplog.text


class Quiet(ConsumerHarness):
    """Two partitions that are read, and statistics of the first."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.give(ONE, TWO)
        self.member.end = 20

    def see(self, offset: int, delivered: int | None = None, *, after_s: float = QUIET_S, **counts: int) -> list[Any]:
        """Look, let time pass, then look at statistics; return what was asked."""
        asked = self.play()
        self.now += after_s
        self.report(offset, delivered, **counts)
        return asked + self.play()

    def report(self, offset: int, delivered: int | None = None, **counts: int) -> None:
        """Have statistics arrive, as with a poll after a look."""
        reported = partition(
            ONE.partition,
            next_offset=offset,
            app_offset=offset if delivered is None else delivered,
            fetch_state="active",
            **counts,
        )
        self.stalls(statistics_json([reported]))

    @property
    def begun(self) -> int:
        return self.source.reading[ONE]


@pytest.fixture
def stage() -> Quiet:
    return Quiet()


ASKED = [("ends", {ONE})]


def test_what_is_behind_its_end_twice_goes_on_with_another_client(
    stage: Quiet, caplog: pytest.LogCaptureFixture
) -> None:
    stage.source.delivered = {ONE: 10}
    assert stage.see(10) == []
    assert stage.see(10) == ASKED
    assert stage.begun == OFFSET_BEGINNING
    assert stage.see(10) == ASKED
    assert stage.begun == OFFSET_BEGINNING
    with caplog.at_level(logging.WARNING):
        assert stage.see(10) == ASKED
    assert stage.source.reading == {ONE: 10, TWO: OFFSET_BEGINNING}
    assert [source.closed for source in stage.sources] == [True, False]
    assert "reads nothing of t-0 from offset 10 on, though its end offset is 20 (its state: active)" in caplog.text


def test_what_is_fetched_though_it_was_dropped_ends_with_another_client(caplog: pytest.LogCaptureFixture) -> None:
    group = Quiet()
    group.source.delivered = {TWO: 4}
    group.see(0)
    group.play(MemberAssignment(2, "m", frozenset({TWO})))
    group.member.end = 0
    # The first report may be from before it was dropped.
    assert group.see(7) == []
    assert len(group.sources) == 1
    with caplog.at_level(logging.WARNING):
        assert group.see(9) == []
    assert [source.closed for source in group.sources] == [True, False]
    assert group.source.reading == {TWO: 4}
    assert "still fetches t-0, which is not assigned to this member" in caplog.text
    # The new client does not fetch it, and nothing of the old one is remembered.
    group.now += 10 * QUIET_S
    group.play()
    assert len(group.sources) == 2


def test_what_was_in_vain_is_not_done_again(stage: Quiet) -> None:
    stage.source.delivered = {ONE: 10}
    for _ in range(10):
        stage.see(10)
    assert len(stage.sources) == 2
    for _ in range(10):
        stage.see(11)
    assert len(stage.sources) == 3


@pytest.mark.parametrize(
    ("offsets", "end"),
    [
        pytest.param([10, 10, 10, 10], 10, id="nothing is written"),
        pytest.param([10, 10, 11, 11], 20, id="it goes on"),
        pytest.param([10, 11, 12, 13], 20, id="it never rests"),
    ],
)
def test_what_is_read_is_left_alone(stage: Quiet, offsets: list[int], end: int) -> None:
    stage.member.end = end
    for offset in offsets:
        stage.see(offset)
    assert stage.begun == OFFSET_BEGINNING


def test_who_is_slow_to_take_what_was_fetched_is_left_alone(stage: Quiet) -> None:
    for _ in range(5):
        assert stage.see(10, 5) == []


def test_reports_from_before_a_look_are_no_second_sign() -> None:
    # Of one that works for long between two polls, which are a look and the reports since the last one.
    stage = Quiet()
    stage.member.end = 10
    for _ in range(3):
        stage.now += 2 * QUIET_S
        stage.play()
        stage.report(10)
    # Records come at the end of that time, and all reports that were waiting are from before.
    stage.member.end = 12
    for offset in (10, 12):
        stage.now += 2 * QUIET_S
        assert stage.play() == ASKED
        for _ in range(3):
            stage.now += 0.001
            stage.report(offset)
    assert len(stage.sources) == 1


@pytest.mark.parametrize(
    ("given", "queue"),
    [
        pytest.param({}, {"fetchq_cnt": 60_000}, id="records by default"),
        pytest.param({}, {"fetchq_size": 40_000_000}, id="bytes by default"),
        pytest.param({"queued_min_messages": 1}, {"fetchq_cnt": 1}, id="records"),
        pytest.param({"queued_max_messages_kbytes": "100"}, {"fetchq_size": 60_000}, id="bytes"),
    ],
)
def test_what_others_fill_the_queue_of_is_left_alone(given: dict[str, Any], queue: dict[str, int]) -> None:
    # All partitions have one queue. While it is full librdkafka fetches none of them, and what is in it may be others'.
    stage = Quiet(**given)
    for _ in range(5):
        assert stage.see(1, -1001, **queue) == []
    for _ in range(4):
        stage.see(1, -1001, fetchq_cnt=0)
    assert len(stage.sources) == 2


def test_what_is_paused_is_left_alone(stage: Quiet) -> None:
    stage.reader.pause([Offset(*ONE)])
    for _ in range(4):
        assert stage.see(10) == []


def test_what_comes_back_is_looked_at_from_the_beginning(stage: Quiet) -> None:
    stage.see(10)
    stage.see(10)
    stage.give(TWO)
    stage.give(ONE, TWO)
    assert stage.see(10) == []
    assert stage.begun == OFFSET_BEGINNING


@pytest.mark.parametrize("odd", ["", "[]", '{"topics": {"t": {"partitions": {"0": {}}}}}', None])
def test_odd_statistics_do_not_raise(odd: Any, caplog: pytest.LogCaptureFixture) -> None:
    stalls = StallDetector(QueueLimits())
    stalls(odd)
    stalls(odd)
    assert len([record for record in caplog.records if "delivery" in record.name]) == 1
