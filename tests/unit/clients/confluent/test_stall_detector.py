"""Partitions that librdkafka has stopped reading: which are found, and that no other is touched."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING
from confluent_kafka import TopicPartition as Offset

from rackassign.clients.confluent.config import QueueLimits
from rackassign.clients.confluent.delivery import QUIET_S, StallDetector
from rackassign.clients.kafka_python.internals.group_member import MemberAssignment
from tests.helpers.fakes.confluent import ONE, TWO, ConsumerHarness
from tests.helpers.librdkafka_statistics import partition, statistics_json


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


ASKED = [("ends", {ONE})]


def test_what_is_behind_its_end_twice_goes_on_with_another_client(caplog: pytest.LogCaptureFixture) -> None:
    stage = Quiet()
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


def test_what_is_dropped_and_taken_again_is_no_stray() -> None:
    group = Quiet()
    group.member.end = 5
    for generation, owned in enumerate(([TWO], [ONE, TWO], [TWO], [ONE, TWO]), start=2):
        group.play(MemberAssignment(generation, "m", frozenset(owned)))
        group.see(5, after_s=QUIET_S - 1)
    for _ in range(3):
        group.see(5)
    assert len(group.sources) == 1


def test_what_was_in_vain_is_not_done_again() -> None:
    stage = Quiet()
    stage.source.delivered = {ONE: 10}
    for _ in range(10):
        stage.see(10)
    assert len(stage.sources) == 2
    for _ in range(10):
        stage.see(11)
    assert len(stage.sources) == 3


def test_another_client_has_the_same_partitions_paused() -> None:
    stage = Quiet()
    stage.reader.pause([Offset(*TWO)])
    for _ in range(4):
        stage.see(10)
    assert len(stage.sources) == 2
    assert stage.source.paused == {TWO}


def test_what_was_never_delivered_begins_where_it_began() -> None:
    stage = Quiet()
    stage.reader.seek(Offset(*ONE, 7))
    stage.stalls.forget([ONE])
    for _ in range(4):
        stage.see(7, -1001)
    assert stage.begun == 7


@pytest.mark.parametrize(
    ("offsets", "end"),
    [
        pytest.param([10, 10, 10, 10], 10, id="nothing is written"),
        pytest.param([10, 10, 11, 11], 20, id="it goes on"),
        pytest.param([10, 11, 12, 13], 20, id="it never rests"),
    ],
)
def test_what_is_read_is_left_alone(offsets: list[int], end: int) -> None:
    stage = Quiet()
    stage.member.end = end
    for offset in offsets:
        stage.see(offset)
    assert stage.begun == OFFSET_BEGINNING


def test_who_is_slow_to_take_what_was_fetched_is_left_alone() -> None:
    stage = Quiet()
    for _ in range(5):
        assert stage.see(10, 5) == []


def test_old_statistics_are_no_second_sign() -> None:
    stage = Quiet()
    stage.see(10)
    stage.see(10)
    for _ in range(3):
        stage.now += QUIET_S
        assert stage.play() == ASKED
    assert stage.begun == OFFSET_BEGINNING


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


def test_what_is_paused_is_left_alone() -> None:
    stage = Quiet()
    stage.reader.pause([Offset(*ONE)])
    for _ in range(4):
        assert stage.see(10) == []


def test_what_comes_back_is_looked_at_from_the_beginning() -> None:
    stage = Quiet()
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
