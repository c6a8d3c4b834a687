"""Members that join with kafka-python and read with librdkafka, in real groups."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Offset
from kafka import KafkaAdminClient
from kafka.admin import MemberToRemove

from rackassign import RackAwareConsumer as KafkaPythonConsumer
from rackassign.clients.confluent import RackAwareConsumer
from rackassign.model import TopicPartition
from rackassign.testing import Cluster
from rackassign.testing.harness import TIMEOUT_S, assigned, wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.confluent_group import (
    OUT,
    PARTITIONS,
    RACKS,
    TWO_EACH,
    CommittingConsumer,
    RecordingConsumer,
    all_of,
    committed,
    fill,
    services,
    sharing,
    to_tps,
)
from tests.helpers.kafka.consumers import CONSUMER
from tests.helpers.machine_speed import scaled_ms, scaled_s
from tests.helpers.threads import meanwhile

pytestmark = [pytest.mark.brokers, pytest.mark.local]

EACH = 200
"""Records per partition and round."""


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic(replicas=TWO_EACH)


@pytest.fixture
def group(unique_name: Callable[[], str]) -> str:
    return unique_name()


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "sticky", "range"])
def test_three_members_read_everything_once_and_at_home(
    rack_cluster: Cluster, topic: str, group: str, strategy: str
) -> None:
    def member(rack: str) -> Callable[[], RecordingConsumer]:
        return lambda: RecordingConsumer(rack_cluster, group, [topic], rack, partition_assignment_strategy=strategy)

    with services(*map(member, RACKS)) as members:
        wait_until(sharing(members, topic), "a settled group")
        rounds = [_read_more(rack_cluster, topic, members, 1)]
        # Range is greedy, and does not promise it.
        if strategy != "range":
            deadline = time.monotonic() + TIMEOUT_S
            for home, one in enumerate(members, start=1):
                assert all(home in TWO_EACH[tp.partition] for tp in one.owned())
            # A leader sends records itself until it names a follower, and librdkafka goes back to it if the follower
            # does not know the topic yet. So the first records may cross; once the followers serve, none does.
            while rounds[-1]:
                assert time.monotonic() < deadline, f"records that cross racks, by round: {rounds}"
                rounds.append(_read_more(rack_cluster, topic, members, len(rounds) + 1))
            rounds.append(_read_more(rack_cluster, topic, members, len(rounds) + 1))
            assert rounds[-1] == 0, f"records that cross racks, by round: {rounds}"
        for one in members:
            one.check()
        assert sum((one.read() for one in members), Counter()) == Counter(
            (place, offset) for place in all_of(topic) for offset in range(EACH * len(rounds))
        )


def _read_more(cluster: Cluster, topic: str, members: Sequence[RecordingConsumer], number: int) -> int:
    """Write and read the records of the round of this number; return how many of them came from other racks."""
    crossed = _counted(members).cross
    fill(cluster, topic, EACH)
    total = EACH * PARTITIONS * number
    wait_until(lambda: sum(one.consume() for one in members) >= total, "all records")
    wait_until(lambda: sum(_counted(members)) >= total, "statistics of all records")
    return _counted(members).cross - crossed


class _Counted(NamedTuple):
    local: int
    cross: int


def _counted(members: Sequence[RecordingConsumer]) -> _Counted:
    for one in members:
        one.consume()
    found = [one.consumer.locality() for one in members]
    return _Counted(sum(each.local().records for each in found), sum(each.cross().records for each in found))


def test_what_is_kept_flows_and_what_is_revoked_stops_while_others_come_and_go(
    rack_cluster: Cluster, topic: str, group: str
) -> None:
    def member(rack: str) -> Callable[[], RecordingConsumer]:
        return lambda: CommittingConsumer(rack_cluster, group, [topic], rack)

    fill(rack_cluster, topic, 2000)
    with services(member("a"), member("b")) as members:
        wait_until(sharing(members, topic), "two sharing")
        before = [one.owned() for one in members]
        with services(member("c")) as others:
            wait_until(sharing([*members, *others], topic), "three sharing")
            for one, had in zip(members, before, strict=True):
                revoked = frozenset().union(*one.recorded("revoke"))
                assert one.owned() == had - revoked
                # One that keeps something is not told of it again, and never stops reading it.
                assert len(one.recorded("assign")) <= 3
        wait_until(sharing(members, topic), "two sharing again")
        everyone = [*members, *others]
        wait_until(lambda: bool([one.consume() for one in members]) and _all_read(everyone, topic, 2000), "all records")
        for one in everyone:
            one.check()
            assert not one.recorded("lost")
        # Each commits before it gives up, and is answered: nobody reads again what another has read.
        assert max(sum((one.read() for one in everyone), Counter()).values()) == 1


def _all_read(members: Sequence[RecordingConsumer], topic: str, each: int) -> bool:
    read = set().union(*(set(one.read()) for one in members))
    return len(read) == each * PARTITIONS and {place for place, _ in read} == set(all_of(topic))


def test_a_member_that_was_put_out_commits_nothing_and_is_told_what_it_lost(
    rack_cluster: Cluster, topic: str, group: str
) -> None:
    fill(rack_cluster, topic, 10)
    refused: list[int] = []

    class Stubborn(RecordingConsumer):
        def on_lost(self, consumer: RackAwareConsumer, partitions: list[Offset]) -> None:
            super().on_lost(consumer, partitions)
            with pytest.raises(KafkaException) as problem:
                consumer.commit(offsets=[Offset(topic, 0, 9)], asynchronous=False)
            refused.append(problem.value.args[0].code())

    with (
        services(lambda: Stubborn(rack_cluster, group, [topic])) as [one],
        closing(KafkaAdminClient(bootstrap_servers=rack_cluster.bootstrap)) as admin,
    ):
        wait_until(lambda: one.consume() == 10 * PARTITIONS, "all records")
        admin.remove_group_members(group, [MemberToRemove(member_id=one.consumer.memberid())])
        with pytest.raises(KafkaException) as problem:
            one.consumer.commit(asynchronous=False)
        assert problem.value.args[0].code() in OUT
        wait_until(lambda: one.consume() == 20 * PARTITIONS, "everything read again")
        assert one.recorded("lost") == [frozenset(all_of(topic))]
        assert [kind for kind, _ in one.journal if kind != "record"] == ["assign", "lost", "assign"]
        assert set(refused) <= OUT
        one.check()
        assert one.consumer.commit(asynchronous=False)
    assert committed(rack_cluster, group, topic) == [10] * PARTITIONS


def test_who_does_not_poll_leaves_the_group_and_comes_back(rack_cluster: Cluster, topic: str, group: str) -> None:
    fill(rack_cluster, topic, 100)
    with (
        # A session so long that the member leaves by itself, and knows it, however busy the machine is.
        services(
            lambda: RecordingConsumer(
                rack_cluster, group, [topic], max_poll_interval_ms=scaled_ms(2000), session_timeout_ms=600_000
            )
        ) as [one],
        closing(KafkaAdminClient(bootstrap_servers=rack_cluster.bootstrap)) as admin,
    ):
        wait_until(lambda: one.consume() > 10, "some records")
        # It is not kept alive behind its user's back.
        wait_until(lambda: assigned(admin, group) in (None, {}), "a group without members")
        # The broker knows that the member left before the member does: it resets its generation with the response.
        wait_until(lambda: one.poll(5) >= 0 and bool(one.recorded("lost")), "the loss reported")

        def all_again() -> bool:
            one.consume()
            kinds = [kind for kind, _ in one.journal]
            # On a busy machine it may be late once more while it reads, and begins anew then.
            since = len(kinds) - kinds[::-1].index("lost")
            return kinds[since:].count("record") == 100 * PARTITIONS

        wait_until(all_again, "all again")
        assert set(one.recorded("lost")) == {frozenset(all_of(topic))}
        one.check()


@pytest.mark.long
def test_a_long_poll_does_not_miss_a_rebalance(rack_cluster: Cluster, topic: str, group: str) -> None:
    interval_s = scaled_s(3)
    short: Any = {"max_poll_interval_ms": scaled_ms(3000)}
    with (
        services(
            lambda: RecordingConsumer(rack_cluster, group, [topic], **short),
            lambda: RecordingConsumer(rack_cluster, group, [topic]),
        ) as [one, two],
        closing(KafkaAdminClient(bootstrap_servers=rack_cluster.bootstrap)) as admin,
    ):
        wait_until(sharing([one, two], topic), "two sharing")
        # On a busy machine the other one may have been polled for so long that this one was late.
        lost_before = len(one.recorded("lost"))
        begun = time.monotonic()

        def leave_and_write(over: threading.Event) -> None:
            two.consumer.close()

            def alone() -> bool:
                has = assigned(admin, group) or {}
                return over.is_set() or list(has.values()) == [frozenset(all_of(topic))]

            wait_until(alone, "all partitions for the one that polls")
            over.wait(max(0.0, begun + 2 * interval_s - time.monotonic()))
            fill(rack_cluster, topic, 1)

        # The other leaves, and no record comes for longer than the poll interval: all within one poll.
        with meanwhile(leave_and_write):
            message = one.consumer.poll(TIMEOUT_S)
            assert message is not None
            one.take(message)
        assert time.monotonic() - begun >= 2 * interval_s
        assert one.owned() == set(all_of(topic))
        assert len(one.recorded("lost")) == lost_before


def test_a_mixed_group_with_kafka_python(rack_cluster: Cluster, topic: str, group: str) -> None:
    fill(rack_cluster, topic, 50)
    other = KafkaPythonConsumer(
        topic, bootstrap_servers=rack_cluster.bootstrap, group_id=group, client_rack="b", **CONSUMER
    )
    with closing(other), services(lambda: RecordingConsumer(rack_cluster, group, [topic], "a")) as [one]:

        def look() -> bool:
            one.consume()
            for tp, records in other.poll(timeout_ms=50).items():
                read.update((TopicPartition(*tp), record.offset) for record in records)
            theirs = to_tps(other.assignment())
            return len(theirs) == len(one.owned()) == 3 and len(one.read() + read) == 50 * PARTITIONS

        read: Counter[tuple[TopicPartition, int]] = Counter()
        wait_until(look, "both sharing, and everything read")
        assert to_tps(other.assignment()) | one.owned() == set(all_of(topic))
        one.check()


def test_a_topic_that_does_not_exist_is_told_and_the_others_come_at_once(
    rack_cluster: Cluster, topic: str, group: str, unique_name: Callable[[], str]
) -> None:
    missing = unique_name()
    with services(lambda: RecordingConsumer(rack_cluster, group, [topic, missing])) as [one]:
        with pytest.raises(KafkaException, match=missing) as problem:
            one.consumer.poll(TIMEOUT_S)
        assert problem.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        wait_until(lambda: one.poll() >= 0 and one.owned() == set(all_of(topic)), "the other topic")
        # While the missing topic is still looked for, they may come one after the other, and each is given once.
        assert frozenset().union(*one.recorded("assign")) == frozenset(all_of(topic))
        assert {kind for kind, _ in one.journal} == {"assign"}
        one.check()


def test_topics_come_and_go_with_the_subscription(
    rack_cluster: Cluster, make_topic: MakeTopic, topic: str, group: str
) -> None:
    second = make_topic(2)
    fill(rack_cluster, topic, 1)
    with services(lambda: RecordingConsumer(rack_cluster, group, [topic, second])) as [one]:
        wait_until(lambda: one.poll() >= 0 and len(one.owned()) == PARTITIONS + 2, "both topics")
        one.consumer.subscribe([second], one.on_assign, one.on_revoke, one.on_lost)
        wait_until(lambda: one.poll() >= 0 and one.owned() == set(all_of(second, 2)), "the second only")
        assert one.recorded("revoke") == [frozenset(all_of(topic))]
        one.consumer.subscribe([f"^{topic}"], one.on_assign, one.on_revoke, one.on_lost)
        # From names to a pattern it leaves and joins anew.
        assert one.recorded("revoke")[1:] == [frozenset(all_of(second, 2))]
        wait_until(lambda: one.poll() >= 0 and one.owned() == set(all_of(topic)), "what the pattern matches")
        one.consumer.unsubscribe()
        assert not one.owned()
        assert one.consumer.poll(0.2) is None
        one.check()


def test_a_callback_that_raises_is_heard_and_changes_nothing(rack_cluster: Cluster, topic: str, group: str) -> None:
    class Failing(RecordingConsumer):
        def on_assign(self, consumer: RackAwareConsumer, partitions: list[Offset]) -> None:
            super().on_assign(consumer, partitions)
            raise LookupError(f"assign {len(partitions)}")

        def on_revoke(self, consumer: RackAwareConsumer, partitions: list[Offset]) -> None:
            super().on_revoke(consumer, partitions)
            with pytest.raises(KafkaException):
                consumer.poll(0)
            raise LookupError("revoke")

    fill(rack_cluster, topic, 10)
    heard: list[str] = []

    def look(*members: RecordingConsumer) -> bool:
        for one in members:
            try:
                one.poll()
            except LookupError as error:
                heard.append(str(error))
        return sorted(place for one in members for place in one.owned()) == all_of(topic)

    with services(lambda: Failing(rack_cluster, group, [topic])) as [one]:
        wait_until(lambda: look(one) and len(one.recorded("record")) == 10 * PARTITIONS, "all records")
        with services(lambda: RecordingConsumer(rack_cluster, group, [topic], "b")) as [two]:
            wait_until(lambda: look(one, two) and len(two.owned()) == 3, "both sharing")
        one.check()
        with pytest.raises(LookupError, match="revoke"):
            one.consumer.close()
        assert heard == [f"assign {PARTITIONS}", "revoke"]
        with pytest.raises(RuntimeError, match="closed"):
            one.consumer.poll(0)


def test_one_that_is_dropped_leaves_its_group(rack_cluster: Cluster, topic: str, group: str) -> None:
    # Not put out: that would take longer than any test does.
    patience = {"session.timeout.ms": 600_000, "max.poll.interval.ms": 600_000, "auto.offset.reset": "earliest"}
    consumer = RackAwareConsumer({"bootstrap.servers": rack_cluster.bootstrap, "group.id": group, **patience})
    consumer.subscribe([topic])

    deadline = time.monotonic() + TIMEOUT_S
    while not consumer.assignment():
        assert time.monotonic() < deadline, "never came: its partitions"
        consumer.poll(0.1)
    del consumer
    with services(lambda: RecordingConsumer(rack_cluster, group, [topic])) as (other,):

        def has_all() -> bool:
            other.consume()
            return other.owned() == frozenset(all_of(topic))

        wait_until(has_all, "all partitions")


def test_a_static_member_comes_back_to_what_it_had(rack_cluster: Cluster, topic: str, group: str) -> None:
    fill(rack_cluster, topic, 10)

    def member(name: str) -> RecordingConsumer:
        # A member that is away for longer than its session is no member any more.
        more: Any = {"group_instance_id": name, "enable_auto_commit": True, "session_timeout_ms": 600_000}
        return RecordingConsumer(rack_cluster, group, [topic], **more)

    with services(lambda: member("one"), lambda: member("two")) as [one, two]:
        wait_until(sharing([one, two], topic), "two sharing")
        wait_until(lambda: one.consume() + two.consume() >= 10 * PARTITIONS, "all records")
        had, rounds = one.owned(), len(two.journal)
        one.consumer.close()
        fill(rack_cluster, topic, 10)
        with services(lambda: member("one")) as [again]:
            wait_until(lambda: again.consume() == 30, "its records")
            assert again.owned() == had
            assert {offset for _, offset in again.read()} == set(range(10, 20))
            # Nobody else has heard of it.
            two.consume()
            assert {kind for kind, _ in two.journal[rounds:]} <= {"record"}


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "sticky", "range"])
def test_static_members_that_return_in_another_rack_request_a_plan(
    rack_cluster: Cluster, make_topic: MakeTopic, group: str, strategy: str
) -> None:
    topic = make_topic(replicas=[[1], [2], [3]] * 2)

    def static(name: str, rack: str) -> Callable[[], RecordingConsumer]:
        more: Any = {
            "group_instance_id": name,
            "session_timeout_ms": 600_000,
            "partition_assignment_strategy": strategy,
        }
        return lambda: RecordingConsumer(rack_cluster, group, [topic], rack, **more)

    def at_home(*members: RecordingConsumer) -> Callable[[], bool]:
        def read() -> bool:
            for each in members:
                each.consume()
            return [{tp.partition for tp in each.owned()} for each in members] == [{0, 3}, {1, 4}, {2, 5}]

        return read

    # It leads, so that only followers return.
    with services(static("c", "c")) as [kept]:
        with services(static("a", "a"), static("b", "b")) as [one, two]:
            wait_until(at_home(one, two, kept), "three static members at home")
        with services(static("a", "b"), static("b", "a")) as [one, two]:
            wait_until(at_home(two, one, kept), "the partitions of their racks")
