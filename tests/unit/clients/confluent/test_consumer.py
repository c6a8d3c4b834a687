"""The consumer on confluent-kafka between two clients that are played: what it delivers, and what not.

What a producer gets for a transaction: in which generation, in which form, and when it gets nothing.
"""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Offset
from kafka import KafkaConsumer

from rackassign.clients.confluent import RackAwareConsumer
from rackassign.clients.confluent import _consumer as consumer
from rackassign.clients.confluent._commits import offsets_of
from rackassign.clients.confluent._consumer import TransactionMetadata
from rackassign.clients.confluent._delivery import StallDetector
from rackassign.clients.confluent._rebalance import Callbacks
from rackassign.clients.confluent.internals import form_difference, serialize_group_metadata
from rackassign.clients.kafka_python.internals.group_member import MemberAssignment, RevocationRequired
from rackassign.errors import ConfigError
from rackassign.model import Broker, TopicPartition
from rackassign.racks import BrokerRackCache
from tests.helpers.fakes.confluent import GROUP, ONE, TWO, ConsumerHarness, Member, Source, message
from tests.helpers.librdkafka_statistics import partition, statistics_json


class Play:
    """A `RackAwareConsumer` between a member and a source that are both played."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, zone_hint: Any = None, **given: Any) -> None:
        self.member, self.source = Member(), Source()
        self.told: list[tuple[str, set[int]]] = []
        self.config: dict[str, Any] = {}
        self.arguments: dict[str, Any] = {}

        def make(config: dict[str, Any], **more: Any) -> Source:
            self.config = {**config, **more}
            if self.source.reading and "stats_cb" in config:
                self.source = Source()
            return self.source

        def member(arguments: dict[str, Any], racks: BrokerRackCache) -> Member:
            self.arguments, self.member.racks = arguments, racks
            return self.member

        monkeypatch.setattr("rackassign.clients.confluent._consumer.GroupMember", member)
        monkeypatch.setattr("rackassign.clients.confluent._fetcher.confluent_kafka.Consumer", make)
        self.consumer = RackAwareConsumer({**GROUP, **given}, zone_hint=zone_hint)
        self.consumer.subscribe(["t"], self.note("assign"), self.note("revoke"), self.note("lost"))

    def note(self, what: str) -> Any:
        return lambda _, partitions: self.told.append((what, {each.partition for each in partitions}))

    def lose(self) -> None:
        self.member.is_lost = True

    def stir(self) -> None:
        """Have the next look find the first partition given up."""
        self.member.coming.append(MemberAssignment(2, "m", frozenset({TWO})))


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    play = Play(monkeypatch)
    play.member.coming.append(MemberAssignment(1, "m", frozenset({ONE, TWO})))
    assert play.consumer.poll(0) is None
    assert play.told == [("assign", {0, 1})]
    return play


@pytest.mark.parametrize("by", ["poll", "consume"])
def test_what_comes_when_the_membership_is_gone_is_not_delivered(play: Play, by: str) -> None:
    # librdkafka's own errors are nobody's.
    error = message(ONE, 3, error=KafkaError(KafkaError._ALL_BROKERS_DOWN))
    play.source.coming = [[play.lose, message(ONE, 1)], [message(ONE, 2)]]
    if by == "poll":
        assert play.consumer.poll(0.01) is None
    else:
        assert play.consumer.consume(10, 0.01) == []
    play.source.coming = [[error]]
    assert play.consumer.poll(0) is error
    assert play.told[1:] == [("lost", {0, 1})]
    assert play.consumer.assignment() == []


@pytest.mark.parametrize("as_property", [True, False])
def test_a_logger_is_called_when_librdkafka_has_returned(monkeypatch: pytest.MonkeyPatch, *, as_property: bool) -> None:
    # An exception in a call of librdkafka, of the logger or of a signal's handler, would lose the records of that call.
    messages: list[tuple[Any, ...]] = []
    named: dict[str, Any] = {"logger": SimpleNamespace(log=lambda *message: messages.append(message))}
    play = Play(monkeypatch, **(named if as_property else {}))
    consumer = play.consumer if as_property else RackAwareConsumer(GROUP, **named)
    message = logging.WARNING, "%s [%s] %s", "FAIL", "rdkafka#consumer-1", "no route"

    def fail() -> None:
        play.config["logger"].log(*message)
        assert messages == []

    play.source.coming = [[fail]]
    assert consumer.poll(0) is None
    assert messages == [message]


@pytest.mark.parametrize("by", ["poll", "consume"])
def test_one_whose_reader_is_replaced_meanwhile_reads_with_the_new_one(
    play: Play, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    strays = deque([[TopicPartition("t", 9)]])
    monkeypatch.setattr(StallDetector, "strays", lambda *_: strays.popleft() if strays else [])
    old = play.source
    # The next look is due by then.
    until = time.monotonic() + 60
    while strays and time.monotonic() < until:
        getattr(play.consumer, by)(**({"timeout": 0.2} if by == "poll" else {"num_messages": 1, "timeout": 0.2}))
    assert (old.closed, play.source.closed) == (True, False)
    assert play.source.reading.keys() == {ONE, TWO}


def test_a_batch_is_filled_until_it_is_full_or_time_is_up(play: Play) -> None:
    play.source.coming = [[message(ONE, 1)], [], [message(ONE, 2)]]
    assert [each.offset() for each in play.consumer.consume(2, 30)] == [1, 2]
    assert play.source.asked[-3:] == [2, 1, 1]
    play.source.coming = [[message(ONE, 3)]]
    assert [each.offset() for each in play.consumer.consume(2, 0.05)] == [3]


def test_nothing_is_done_for_the_group_while_something_is_in_hand(play: Play) -> None:
    play.source.coming = [[message(ONE, 1)]]
    polls = play.member.polls
    # For some looks to be due.
    assert [each.offset() for each in play.consumer.consume(10, 0.3)] == [1]
    assert play.member.polls - polls <= 1


def test_what_is_in_hand_is_delivered_before_a_rebalance_goes_on(play: Play) -> None:
    play.source.coming = [[message(ONE, 1), play.stir]]
    assert [each.offset() for each in play.consumer.consume(10, 30)] == [1]
    assert len(play.told) == 1
    assert play.consumer.consume(10, 0) == []
    assert play.told[1:] == [("revoke", {0})]


def test_a_batch_that_is_long_in_coming_does_not_cost_the_membership(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(monkeypatch, **{"max.poll.interval.ms": 100})
    play.member.coming.append(MemberAssignment(1, "m", frozenset({ONE})))
    play.source.coming = [[message(ONE, 1)]]
    assert [each.offset() for each in play.consumer.consume(10, -1)] == [1]


def test_statistics_are_counted_and_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    play = Play(monkeypatch, stats_cb=seen.append, **{"client.rack": "a"})
    play.member.racks.update([Broker(1, "a")])
    play.config["stats_cb"](statistics_json([partition(0, broker=1, rxbytes=9, rxmsgs=1)]))
    # librdkafka calls it within a poll.
    assert play.consumer.poll(0) is None
    assert play.consumer.bytes_by_rack() == {"a": 9}
    assert play.consumer.locality().local_share() == 1.0
    assert len(seen) == 1
    assert play.config["client.rack"] == "a"


def test_a_closed_consumer_is_of_no_use(play: Play) -> None:
    with play.consumer:
        pass
    assert play.told[1:] == [("revoke", {0, 1})]
    assert play.source.closed
    assert play.member.log[-1] == "closed"
    for call in ("poll", "consume", "commit", "assignment", "memberid", "unsubscribe"):
        with pytest.raises(RuntimeError, match="closed"):
            getattr(play.consumer, call)()


@pytest.mark.parametrize("name", ["no.such.property", "ssl.ca.location"])
def test_what_librdkafka_refuses_is_refused_before_any_broker_is_asked(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    made: list[object] = []
    monkeypatch.setattr("rackassign.clients.confluent._consumer.GroupMember", lambda *given: made.append(given))
    with pytest.raises(KafkaException, match=re.escape(name)):
        RackAwareConsumer({**GROUP, "security.protocol": "ssl", name: "/no/such/file"})
    assert not made


def test_properties_may_be_keywords_and_those_come_on_top(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(monkeypatch)
    RackAwareConsumer(**{**GROUP, "client.id": "by keyword"})  # type: ignore[arg-type]
    assert play.arguments["client_id"] == "by keyword"
    RackAwareConsumer({**GROUP, "client.id": "by dict"}, **{"client.id": "by keyword"})
    assert play.arguments["client_id"] == "by keyword"
    with pytest.raises(ConfigError, match=r"group\.id is missing"):
        RackAwareConsumer()
    with pytest.raises(ConfigError, match="expected a dict of properties, got list"):
        RackAwareConsumer(["x"])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["on_assign", "on_revoke", "on_lost"])
def test_a_callback_that_is_none_is_refused_as_confluent_kafka_does(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    play = Play(monkeypatch)
    with pytest.raises(TypeError, match=f"^{name} expects a callable$"):
        play.consumer.subscribe(["t"], **{name: 5})  # type: ignore[arg-type]


def test_one_that_is_dropped_commits_leaves_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(monkeypatch)
    play.member.coming = [MemberAssignment(1, "me", frozenset({ONE}))]
    play.consumer.poll(0)
    play.told.clear()
    known = ref(play.consumer)
    del play.consumer
    # At once, and not when a collector comes by.
    assert known() is None
    for thread in threading.enumerate():
        if thread.name == "rackassign-dropped-consumer":
            thread.join(60)
    assert play.member.log[-1] == "closed"
    assert play.source.closed
    assert play.told == []


def test_a_start_that_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KafkaConsumer.DEFAULT_CONFIG, "bootstrap_timeout_ms", 200)
    # It takes connections, and never says anything: of those that are refused the host drops sockets for the collector.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = {
            "bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}",
            "group.id": "g",
            "log_level": 0,
        }

        def start(**more: object) -> tuple[int, int]:
            with pytest.raises((KafkaException, ConfigError)):
                RackAwareConsumer(config, **more)  # type: ignore[arg-type]
            return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))

        # The first brings what the libraries keep.
        first = start()
        # Others may go meanwhile: of tests before.
        for more in ({}, {}, {}, {"heartbeat.interval.ms": 30_000, "session.timeout.ms": 10}):
            assert all(now <= before for now, before in zip(start(**more), first, strict=True))


def test_without_a_member_there_is_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ConfigError("x")

    source = Source()
    monkeypatch.setattr("rackassign.clients.confluent._consumer.GroupMember", fail)
    monkeypatch.setattr("rackassign.clients.confluent._fetcher.confluent_kafka.Consumer", lambda *_, **__: source)
    with pytest.raises(ConfigError):
        RackAwareConsumer(GROUP)
    assert source.closed


@pytest.mark.parametrize(
    ("given", "rack"), [({}, "from-env"), ({"client.rack": "auto"}, "from-env"), ({"client.rack": "b"}, "b")]
)
def test_both_clients_are_in_the_same_rack(monkeypatch: pytest.MonkeyPatch, given: dict[str, str], rack: str) -> None:
    monkeypatch.setenv("RACKASSIGN_RACK", "from-env")
    play = Play(monkeypatch, **given)
    assert (play.config["client.rack"], play.arguments["client_rack"]) == (rack, rack)
    assert play.consumer.locality().rack == rack


def test_metadata_for_transactions_are_those_of_the_assignment_until_it_ends(play: Play) -> None:
    assert play.consumer.consumer_group_metadata() == serialize_group_metadata("g", 1, "m", None)
    play.consumer.unsubscribe()
    with pytest.raises(KafkaException, match="no assignment in its group"):
        play.consumer.consumer_group_metadata()
    play.consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        play.consumer.consumer_group_metadata()


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "rdkafka,zone=b"), ({"client.id": "app;x=1"}, "app;x=1;zone=b"), ({"client.id": None}, "rdkafka,zone=b")],
)
def test_a_zone_hint_is_in_the_client_id_of_both_clients(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], expected: str
) -> None:
    play = Play(monkeypatch, "bufstream", **{"client.rack": "b", **given})
    assert (play.config["client.id"], play.arguments["client_id"]) == (expected, expected)


@pytest.mark.parametrize("by", ["close", "unsubscribe"])
@pytest.mark.parametrize("lost", [False, True])
def test_a_commit_that_is_open_at_the_end_is_told(monkeypatch: pytest.MonkeyPatch, by: str, *, lost: bool) -> None:
    told: list[Any] = []
    play = Play(monkeypatch, on_commit=lambda *said: told.append(said), **{"enable.auto.commit": False})
    play.member.coming.append(MemberAssignment(1, "m", frozenset({ONE})))
    play.consumer.poll(0)
    for offset in (4, 5)[lost:]:
        play.consumer.commit(message(ONE, offset))
    assert not told
    if lost:
        play.lose()
    getattr(play.consumer, by)()
    ((error, offsets),) = told
    assert [each.offset for each in offsets] == [6]
    assert (error and error.code()) == (KafkaError.ILLEGAL_GENERATION if lost else None)
    assert (("commit", {ONE: 6}) in play.member.log) is not lost
    assert play.member.log[-1] == ("closed" if by == "close" else "left")


@pytest.mark.parametrize("call", ["assign", "incremental_assign", "incremental_unassign"])
def test_nobody_assigns_but_the_group(play: Play, call: str) -> None:
    with pytest.raises(KafkaException) as problem:
        getattr(play.consumer, call)([Offset(*ONE, 1)])
    assert problem.value.args[0].code() == KafkaError._STATE


def test_topics_are_a_list(play: Play) -> None:
    for wrong in ("topic", [1]):
        with pytest.raises(TypeError, match="list of strings"):
            play.consumer.subscribe(wrong)  # type: ignore[arg-type]
    play.consumer.subscribe([])
    assert play.told[1:] == [("revoke", {0, 1})]
    assert play.member.log[-1] == "left"


def coordinator_moves(play: Play, *errors: int) -> list[float]:
    """Let librdkafka raise each of the errors once, and then know offsets; return the timeouts it will be given."""
    coming, timeouts = deque(errors), list[float]()

    def committed(partitions: list[Offset], timeout: float) -> list[Offset]:
        timeouts.append(timeout)
        if coming:
            raise KafkaException(KafkaError(coming.popleft()))
        return [Offset(each.topic, each.partition, 7) for each in partitions]

    play.source.committed = committed  # type: ignore[attr-defined]
    return timeouts


def test_what_can_be_read_only_once_is_read_once(play: Play) -> None:
    play.consumer.subscribe(topic for topic in ["t", "u"])  # type: ignore[arg-type]
    assert play.member.log[-1] == ("subscribe", ["t", "u"])
    (position,) = play.consumer.position(iter([Offset("t", 0)]))  # type: ignore[arg-type]
    assert (position.topic, position.partition) == ("t", 0)
    coordinator_moves(play, KafkaError.NOT_COORDINATOR)
    (known,) = play.consumer.committed(iter([Offset("t", 0)]))  # type: ignore[arg-type]
    assert known.offset == 7


def test_committed_asks_again_while_the_coordinator_moves(play: Play) -> None:
    # librdkafka misses that there is a coordinator again, and waits for as long as it is let.
    errors = KafkaError.NOT_COORDINATOR, KafkaError._TIMED_OUT, KafkaError.COORDINATOR_LOAD_IN_PROGRESS
    timeouts = coordinator_moves(play, *errors)
    (known,) = play.consumer.committed([Offset("t", 0)])
    assert (known.topic, known.partition, known.offset) == ("t", 0, 7)
    assert timeouts == [1, 2, 4, 8]


@pytest.mark.parametrize("error", [KafkaError.NOT_COORDINATOR, KafkaError._TIMED_OUT])
def test_committed_asks_again_for_as_long_as_its_timeout(play: Play, error: int) -> None:
    timeouts = coordinator_moves(play, *[error] * 1_000_000)
    with pytest.raises(KafkaException) as problem:
        play.consumer.committed([Offset("t", 0)], timeout=0.5)
    assert problem.value.args[0].code() == error
    assert timeouts
    assert all(0 <= timeout <= 0.5 for timeout in timeouts)
    assert timeouts == sorted(timeouts, reverse=True)


def test_committed_asks_another_client_if_its_own_does_not_find_the_coordinator(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts = coordinator_moves(play, *[KafkaError._TIMED_OUT] * 1_000_000)
    others: list[Source] = []

    def make(config: dict[str, Any], **_: Any) -> Source:
        # It is one more client of the group, and reports nothing.
        assert (config["group.id"], config["statistics.interval.ms"]) == (GROUP["group.id"], 0)
        assert "stats_cb" not in config
        other = Source()
        answers = [] if others else [KafkaError._TIMED_OUT]
        others.append(other)

        def committed(partitions: list[Offset], timeout: float) -> list[Offset]:
            timeouts.append(timeout)
            if answers:
                raise KafkaException(KafkaError(answers.pop()))
            return [Offset(each.topic, each.partition, 8) for each in partitions]

        other.committed = committed  # type: ignore[attr-defined]
        return other

    monkeypatch.setattr("rackassign.clients.confluent._fetcher.confluent_kafka.Consumer", make)
    (known,) = play.consumer.committed([Offset("t", 0)])
    assert known.offset == 8
    assert timeouts == [1, 2, 4, 8]
    assert [other.closed for other in others] == [True, True]
    assert not play.source.closed


def test_committed_raises_what_does_not_pass(play: Play) -> None:
    timeouts = coordinator_moves(play, KafkaError.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
        play.consumer.committed([Offset("t", 0)])
    assert len(timeouts) == 1


@pytest.mark.parametrize("topics", [["^t("], ["t", "^(?P<same>a)", "^(?P<same>b)"], ["bad topic"], ["^t[[:digit:]]+$"]])
def test_topics_that_cannot_be_subscribed_to_cost_nothing(play: Play, topics: list[str]) -> None:
    with pytest.raises(KafkaException) as problem:
        play.consumer.subscribe(topics)
    assert problem.value.args[0].code() == KafkaError._INVALID_ARG
    assert play.told == [("assign", {0, 1})]
    assert play.source.reading.keys() == {ONE, TWO}
    assert "left" not in play.member.log


def test_a_zone_hint_without_a_rack_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RACKASSIGN_RACK", raising=False)
    with pytest.raises(ConfigError, match="bufstream needs the rack of this client"):
        Play(monkeypatch, "bufstream")


def test_a_commit_returns_metadata_and_epoch_and_ends_metadata_as_librdkafka_does(play: Play) -> None:
    given = [Offset("t", 0, 5, "text", leader_epoch=3), Offset("t", 1, 6)]
    returned = play.consumer.commit(offsets=given, asynchronous=False)
    assert returned is not None
    assert [(each.offset, each.metadata, each.leader_epoch) for each in returned] == [(5, "text", 3), (6, None, None)]
    assert offsets_of(given) == {ONE: (5, "text\0", 3), TWO: (6, "", -1)}


@pytest.mark.parametrize(
    "call",
    [
        lambda consumer: consumer.commit(offsets=["x"]),
        lambda consumer: consumer.commit(message="x"),
        lambda consumer: consumer.position(["x"]),
        lambda consumer: consumer.pause(["x"]),
        lambda consumer: consumer.seek(["x"]),
    ],
)
def test_what_is_no_partition_and_no_message_is_a_type_error_as_in_confluent_kafka(play: Play, call: Any) -> None:
    with pytest.raises(TypeError, match=r"expected a confluent_kafka\.(TopicPartition|Message), got"):
        call(play.consumer)


def metadata_of(stage: ConsumerHarness, instance: str | None = None) -> TransactionMetadata:
    return TransactionMetadata("g", instance, stage.member, stage.rebalances)  # type: ignore[arg-type]


def refusal(metadata: TransactionMetadata) -> KafkaError:
    with pytest.raises(KafkaException) as problem:
        metadata.current()
    error: KafkaError = problem.value.args[0]
    return error


@pytest.mark.parametrize("instance", [None, "", "i-1"])
@pytest.mark.parametrize("group", ["g", "größe"])
def test_the_form_is_that_of_the_installed_librdkafka(group: str, instance: str | None) -> None:
    given = {} if instance is None else {"group.instance.id": instance}
    consumer = Consumer({"group.id": group, **given})
    written = consumer.consumer_group_metadata()
    consumer.close()
    # librdkafka takes an empty instance ID for none.
    assert written == serialize_group_metadata(group, -1, "", instance or None)
    assert form_difference(group, instance or None) is None


def test_the_generation_is_that_of_the_assignment_that_is_read() -> None:
    stage = ConsumerHarness()
    metadata = metadata_of(stage)
    stage.give(ONE, TWO, generation=3)
    assert metadata.current() == serialize_group_metadata("g", 3, "m", None)
    # The group is ahead: its records are not delivered yet, so neither is its generation used.
    stage.member.given = MemberAssignment(4, "m", frozenset({ONE}))
    assert metadata.current() == serialize_group_metadata("g", 3, "m", None)
    stage.play()
    assert metadata.current() == serialize_group_metadata("g", 4, "m", None)


def test_what_is_revoked_can_be_committed_in_the_new_generation() -> None:
    stage = ConsumerHarness()
    metadata, seen = metadata_of(stage), list[bytes]()
    stage.rebalances.callbacks = Callbacks(on_revoke=lambda *_: seen.append(metadata.current()))
    stage.give(ONE, TWO, generation=3)
    stage.give(ONE, generation=4)
    assert seen == [serialize_group_metadata("g", 4, "m", None)]
    stage.play(RevocationRequired(frozenset({ONE}), lost=False))
    assert seen == [serialize_group_metadata("g", 4, "m", None)] * 2


@pytest.mark.parametrize("how", ["told", "required", "another member ID"])
def test_what_is_lost_cannot_be_committed_by_its_callback_either(how: str) -> None:
    stage = ConsumerHarness()
    metadata, seen = metadata_of(stage), list[int]()
    stage.rebalances.callbacks = Callbacks(on_lost=lambda *_: seen.append(refusal(metadata).code()))
    stage.give(ONE, generation=3)
    coming: list[Any] = []
    if how == "told":
        stage.member.is_lost = True
    elif how == "required":
        coming = [RevocationRequired(frozenset({ONE}), lost=True)]
    else:
        coming = [MemberAssignment(5, "m-2", frozenset({ONE}))]
    stage.play(*coming)
    assert seen == [KafkaError.UNKNOWN_MEMBER_ID]
    if how == "another member ID":
        assert metadata.current() == serialize_group_metadata("g", 5, "m-2", None)


def test_without_an_assignment_it_is_refused_and_the_transaction_is_to_be_aborted() -> None:
    stage = ConsumerHarness()
    metadata = metadata_of(stage)
    error = refusal(metadata)
    assert (error.code(), error.txn_requires_abort(), error.fatal()) == (KafkaError.UNKNOWN_MEMBER_ID, True, False)
    assert "no assignment in its group" in error.str()
    stage.give(ONE)
    metadata.current()
    stage.member.is_lost = True
    assert refusal(metadata).code() == KafkaError.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("difference", [None, "another form"])
def test_the_form_is_compared_once_and_another_one_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, difference: str | None
) -> None:
    stage = ConsumerHarness()
    stage.give(ONE)
    asked: list[tuple[str, str | None]] = []

    def compared(group: str, instance: str | None) -> str | None:
        asked.append((group, instance))
        return difference

    monkeypatch.setattr(consumer, "form_difference", compared)
    metadata = metadata_of(stage, "i")
    if difference is None:
        assert metadata.current() == metadata.current()
    else:
        error = refusal(metadata)
        assert (error.code(), error.str()) == (KafkaError._NOT_IMPLEMENTED, difference)
    assert asked == [("g", "i")]
