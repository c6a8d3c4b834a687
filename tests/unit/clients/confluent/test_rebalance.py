"""What is read, told and committed when an assignment changes, with both clients played."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Offset

from rackassign.clients.confluent._rebalance import Callbacks
from rackassign.clients.kafka_python.internals.group_member import CommittedOffset, MemberAssignment, RevocationRequired
from rackassign.model import TopicPartition
from tests.helpers.fakes.confluent import ONE, THREE, TWO, ConsumerHarness, message


@pytest.fixture
def stage() -> ConsumerHarness:
    """Return a consumer that was given two partitions."""
    stage = ConsumerHarness()
    stage.give(ONE, TWO)
    return stage


def test_nothing_is_read_until_it_is_known_what_is_committed() -> None:
    stage = ConsumerHarness()
    stage.member.known = None
    stage.give(ONE)
    assert stage.source.reading == {}
    assert stage.reader.held == stage.reader.waiting == {ONE}
    assert stage.rebalances.rebalance_pending()
    stage.member.known = {ONE: CommittedOffset(5, -1)}
    stage.play()
    assert stage.source.reading == {ONE: 5}
    assert not stage.rebalances.rebalance_pending()


def test_what_begins_at_its_end_begins_there_with_another_client_too() -> None:
    # With OFFSET_END librdkafka asks again, and all that was written and not delivered meanwhile is skipped.
    group = ConsumerHarness(auto_offset_reset="latest")
    group.member.known = {TWO: CommittedOffset(7, -1)}
    group.member.end = 20
    assert ("ends", {ONE}) in group.give(ONE, TWO)
    assert group.source.reading == {ONE: 20, TWO: 7}
    group.member.end = 30
    group.reader.recreate()
    group.play()
    assert group.source.reading == {ONE: 20, TWO: 7}


def test_a_seek_to_the_end_is_one_to_the_end_of_that_moment() -> None:
    group = ConsumerHarness()
    group.give(ONE, TWO)
    group.member.end = 20
    group.reader.seek(Offset(*ONE, OFFSET_END), group.rebalances.end_offsets)
    assert group.source.reading == {ONE: 20, TWO: OFFSET_BEGINNING}
    group.member.end = 30
    group.reader.recreate()
    group.play()
    assert group.source.reading == {ONE: 20, TWO: OFFSET_BEGINNING}


def test_what_has_no_known_end_is_left_to_librdkafka() -> None:
    group = ConsumerHarness(auto_offset_reset="latest")
    group.member.end_offsets = lambda *_: {}  # type: ignore[method-assign]
    group.give(ONE)
    assert group.source.reading == {ONE: OFFSET_END}


def test_what_waits_can_be_given_up_paused_and_sought() -> None:
    stage = ConsumerHarness()
    stage.member.known = None
    stage.give(ONE, TWO)
    stage.reader.pause([Offset(*TWO)])
    stage.reader.seek(Offset(*TWO, 40))
    stage.give(TWO)
    assert stage.reader.unknown() == frozenset()
    assert (stage.source.reading, stage.source.paused) == ({TWO: 40}, {TWO})
    stage.reader.resume([Offset(*TWO)])
    assert not stage.source.paused


def test_what_comes_back_is_not_paused_any_more(stage: ConsumerHarness) -> None:
    stage.reader.pause([Offset(*ONE), Offset(*TWO)])
    stage.give(TWO)
    # As librdkafka keeps it.
    assert stage.source.paused == {ONE, TWO}
    stage.give(ONE, TWO)
    assert stage.source.paused == {TWO}


def test_what_was_delivered_is_committed_also_before_another_client_of_librdkafka_delivers_more() -> None:
    stage = ConsumerHarness()
    stage.give(ONE, TWO, THREE)
    stage.source.delivered = {ONE: 10, TWO: 20, THREE: 30}
    stage.reader.recreate()
    stage.reader.seek(Offset(*TWO, 5))
    assert [each.offset for each in stage.reader.positions([ONE, TWO, THREE])] == [10, 30]
    stage.play()
    stage.reader.seek(Offset(*THREE, 40))
    assert ("commit", {ONE: 10}) in stage.give(TWO, THREE)
    stage.source.delivered = {TWO: 6}
    assert ("commit", {TWO: 6}) in stage.give()


@pytest.mark.parametrize("done", [True, False])
def test_what_a_signal_kept_from_being_begun_is_begun_later(*, done: bool) -> None:
    """The handler may raise when librdkafka has assigned it already, and before."""
    stage = ConsumerHarness()
    assign = stage.source.incremental_assign

    def interrupted(partitions: list[Offset]) -> None:
        if done:
            assign(partitions)
        stage.source.incremental_assign = refusing  # type: ignore[method-assign, assignment]
        raise KeyboardInterrupt

    def refusing(partitions: list[Offset]) -> None:
        if {(each.topic, each.partition) for each in partitions} & set(stage.source.reading):
            raise KafkaException(KafkaError(KafkaError._CONFLICT, "already assigned"))
        assign(partitions)

    stage.source.incremental_assign = interrupted  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        stage.give(ONE, TWO)
    assert stage.reader.waiting == {ONE, TWO}
    stage.play()
    assert stage.source.reading == {ONE: OFFSET_BEGINNING, TWO: OFFSET_BEGINNING}
    assert not stage.reader.waiting
    assert stage.give(ONE) == [("revoke", {1})]


def test_an_error_with_which_nothing_is_assigned_is_raised_and_it_is_tried_again() -> None:
    stage = ConsumerHarness()
    stage.source.failing = {"incremental_assign": KafkaError._FAIL}
    with pytest.raises(KafkaException, match="incremental_assign"):
        stage.give(ONE)
    stage.play()
    assert stage.source.reading == {ONE: OFFSET_BEGINNING}


def test_a_seek_of_what_librdkafka_has_not_begun_begins_it_there(stage: ConsumerHarness) -> None:
    stage.reader.pause([Offset(*ONE)])
    stage.source.failing = {"seek": KafkaError._STATE}
    stage.reader.seek(Offset(*ONE, 9))
    assert (stage.source.reading, stage.source.paused) == ({ONE: 9, TWO: OFFSET_BEGINNING}, {ONE})
    stage.source.failing = {"seek": KafkaError._TIMED_OUT}
    with pytest.raises(KafkaException):
        stage.reader.seek(Offset(*ONE, 1))


@pytest.mark.parametrize("call", ["seek", "pause", "resume"])
def test_what_is_not_assigned_is_refused(call: str) -> None:
    stage = ConsumerHarness()
    stage.give(ONE)
    argument: Any = Offset(*TWO, 1) if call == "seek" else [Offset(*ONE), Offset(*TWO)]
    with pytest.raises(KafkaException) as problem:
        getattr(stage.reader, call)(argument)
    assert problem.value.args[0].code() == KafkaError._UNKNOWN_PARTITION
    assert not stage.source.paused


def test_whatever_librdkafka_says_nothing_is_read_that_is_not_held() -> None:
    stage = ConsumerHarness()
    stage.give(ONE, TWO, THREE)
    stage.source.delivered = {ONE: 10, TWO: 20}
    stage.source.failing = {"incremental_unassign": KafkaError._FAIL}
    stage.give(TWO, THREE)
    # What had a position goes on from there.
    assert stage.source.reading == {TWO: 20, THREE: OFFSET_BEGINNING}


def test_what_must_be_given_up_before_a_join_is(stage: ConsumerHarness) -> None:
    stage.source.delivered = {ONE: 10}
    due = RevocationRequired(frozenset({ONE, TWO}), lost=False)
    assert stage.play(due, MemberAssignment(2, "m", frozenset({TWO}))) == [
        ("revoke", {0, 1}),
        ("commit", {ONE: 10}),
        ("given up", {ONE, TWO}),
        ("assign", {1}),
    ]


def test_what_is_lost_is_dropped_at_once_and_not_committed(stage: ConsumerHarness) -> None:
    stage.source.delivered = {ONE: 10}
    stage.member.is_lost = True
    assert stage.play() == [("lost", {0, 1})]
    assert stage.source.reading == {}
    # The member says so too, with its next poll; it is told once.
    assert stage.play(RevocationRequired(frozenset({ONE, TWO}), lost=True)) == [("given up", {ONE, TWO})]


def test_without_on_lost_on_revoke_is_told() -> None:
    stage = ConsumerHarness()
    stage.rebalances.callbacks = Callbacks(on_revoke=stage.recorder("revoke"))
    stage.give(ONE)
    stage.member.is_lost = True
    assert stage.play() == [("revoke", {0})]


def test_a_callback_that_raises_keeps_nothing_from_being_done() -> None:
    def fail(*_: object) -> None:
        raise LookupError

    stage = ConsumerHarness()
    stage.give(ONE)
    stage.source.delivered = {ONE: 10}
    stage.rebalances.callbacks = Callbacks(fail, fail, fail)
    with pytest.raises(LookupError):
        stage.give(TWO)
    stage.play()
    assert stage.member.log[-1] == ("commit", {ONE: 10})
    assert stage.source.reading == {TWO: OFFSET_BEGINNING}
    assert not stage.rebalances.in_callback
    with pytest.raises(LookupError):
        stage.play(RevocationRequired(frozenset({TWO}), lost=False))
    assert stage.member.log[-1] == ("given up", {TWO})
    assert not stage.reader.held


def test_commits_in_time_send_what_is_new() -> None:
    stage = ConsumerHarness(auto_commit_interval_ms=1)
    stage.give(ONE, TWO)
    stage.source.delivered = {ONE: 10, TWO: 20}

    def sent() -> list[Any]:
        stage.commits._due = 0.0
        return stage.play()

    assert sent() == [("later", {ONE: 10, TWO: 20})]
    stage.source.delivered[TWO] = 21
    # One is on its way.
    assert sent() == []
    stage.member.pending[-1](None)
    assert sent() == [("later", {TWO: 21})]
    assert sent() == []
    # What failed is new again.
    stage.member.pending[-1](KafkaError(KafkaError._TIMED_OUT))
    assert sent() == [("later", {TWO: 21})]
    # Nothing of it was sent since.
    stage.member.pending[-1](None)
    assert stage.give(ONE) == [("revoke", {1})]


def test_what_another_thread_begins_again_meanwhile_has_a_position() -> None:
    class Fleeting(dict[TopicPartition, Offset]):
        """Positions that the polling thread forgets before they are looked up."""

        def __getitem__(self, place: TopicPartition) -> Offset:
            self.clear()
            return super().__getitem__(place)

    stage = ConsumerHarness()
    stage.give(ONE)
    stage.reader._resumed = Fleeting({ONE: Offset(*ONE, 5)})
    assert [each.offset for each in stage.reader.positions([ONE])] == [5]


def test_what_is_not_assigned_is_not_committed(caplog: pytest.LogCaptureFixture) -> None:
    stage = ConsumerHarness()
    stage.give(ONE)
    both = [Offset(*ONE, 9), Offset(*TWO, 9)]
    for _ in range(2):
        done = stage.commits.commit(None, both, asynchronous=False, timeout=1)
        assert done == [Offset(*ONE)]
        assert stage.member.log[-1] == ("commit", {ONE: 9})
    name = f"{TWO.topic}-{TWO.partition}"
    assert caplog.messages == [f"{name} is not assigned to this member, so its offset is not committed"]
    for asynchronous in (True, False):
        with pytest.raises(KafkaException) as problem:
            stage.commits.commit(message(TWO, 4), None, asynchronous=asynchronous, timeout=1)
        assert problem.value.args[0].code() == KafkaError.ILLEGAL_GENERATION
        assert problem.value.args[0].str() == f"not assigned to this member: {name}"


def test_nothing_to_commit_is_said_to_who_waits() -> None:
    stage = ConsumerHarness()
    stage.give(ONE)
    assert stage.commits.commit(None, None, asynchronous=True, timeout=1) is None
    for offsets in (None, [], [Offset(*ONE, OFFSET_INVALID)]):
        with pytest.raises(KafkaException) as problem:
            stage.commits.commit(None, offsets, asynchronous=False, timeout=1)
        assert problem.value.args[0].code() == KafkaError._NO_OFFSET
    with pytest.raises(KafkaException) as problem:
        stage.commits.commit(message(ONE, 4, error=KafkaError(1)), None, asynchronous=False, timeout=1)
    assert problem.value.args[0].code() == KafkaError._INVALID_ARG
    with pytest.raises(ValueError, match="exclude"):
        stage.commits.commit(message(ONE, 4), [Offset(*ONE, 9)], asynchronous=False, timeout=1)


def test_what_is_stored_is_what_is_committed() -> None:
    stage = ConsumerHarness(enable_auto_offset_store=False)
    stage.give(ONE, TWO)
    stage.source.delivered = {ONE: 10, TWO: 20}
    stage.commits.store(message(ONE, 4), None)
    stage.commits.store(None, [Offset(*TWO, 7)])
    with pytest.raises(KafkaException) as problem:
        stage.commits.store(None, [Offset(*TWO, 8), Offset(*THREE, 8)])
    assert problem.value.args[0].code() == KafkaError._STATE
    stage.commits.commit(None, None, asynchronous=False, timeout=1)
    assert stage.member.log[-1] == ("commit", {ONE: 5, TWO: 7})
    assert stage.give(TWO) == [("revoke", {0}), ("commit", {ONE: 5})]
    # What comes back has nothing stored.
    stage.give(ONE, TWO)
    stage.commits.commit(None, None, asynchronous=False, timeout=1)
    assert stage.member.log[-1] == ("commit", {TWO: 7})


def test_no_offset_is_stored_and_not_committed() -> None:
    # As `store_offsets(offsets=position(assignment()))` has it for partitions without new records.
    stage = ConsumerHarness(enable_auto_offset_store=False)
    stage.give(ONE, TWO)
    stage.commits.store(None, [Offset(*ONE, OFFSET_INVALID), Offset(*TWO, 7)])
    stage.commits.commit(None, None, asynchronous=False, timeout=1)
    assert stage.member.log[-1] == ("commit", {TWO: 7})
    stage.commits.store(None, [Offset(*TWO, OFFSET_INVALID)])
    with pytest.raises(KafkaException) as problem:
        stage.commits.commit(None, None, asynchronous=False, timeout=1)
    assert problem.value.args[0].code() == KafkaError._NO_OFFSET
    # The last commit before partitions are revoked is another one.
    assert stage.give(TWO) == [("revoke", {0})]


def test_what_another_thread_drops_meanwhile_is_not_committed() -> None:
    stage = ConsumerHarness(enable_auto_offset_store=False)

    class Stirring(frozenset[TopicPartition]):
        """Assigned partitions, of which the polling thread drops one while they are looked at."""

        def __contains__(self, place: object) -> bool:
            stage.commits.forget([TWO])
            return super().__contains__(place)

    stage.give(ONE, TWO)
    stage.commits.store(None, [Offset(*ONE, 5), Offset(*TWO, 7)])
    stage.reader.held = Stirring(stage.reader.held)
    stage.commits.commit(None, None, asynchronous=False, timeout=1)
    kind, committed = stage.member.log[-1]
    assert kind == "commit"
    assert committed[ONE] == 5


def test_storing_needs_its_switch() -> None:
    stage = ConsumerHarness()
    stage.give(ONE)
    with pytest.raises(KafkaException) as problem:
        stage.commits.store(message(ONE, 4), None)
    assert problem.value.args[0].code() == KafkaError._INVALID_ARG
