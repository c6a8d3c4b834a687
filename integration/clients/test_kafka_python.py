"""The assignor and the consumer as users have them, on real brokers."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer
from kafka.errors import CommitFailedError, RebalanceInProgressError

from rackassign import (
    RackAwareConsumer,
    RackAwareCooperativeStickyAssignor,
    RackAwareRangeAssignor,
    RackAwareStickyAssignor,
    attach,
)
from rackassign.testing import Cluster
from rackassign.testing.demo import produce_records
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.consumers import (
    CONSUMER,
    consumers,
    covers,
    numbers,
    plain_consumer,
    polled,
    settled,
    together,
)

pytestmark = [pytest.mark.brokers, pytest.mark.local]

Name = Callable[[], str]

ONE_RACK_EACH = [[1], [2], [3], [1], [2], [3]]
AT_HOME = {"a": [0, 3], "b": [1, 4], "c": [2, 5]}


def by_rack(members: dict[str, KafkaConsumer]) -> dict[str, list[int]]:
    return {rack: numbers(member) for rack, member in members.items()}


def rack_aware(cluster: Cluster, group: str, topic: str, rack: str | None, **more: Any) -> RackAwareConsumer:
    return RackAwareConsumer(
        topic, bootstrap_servers=cluster.bootstrap, group_id=group, client_rack=rack, **{**CONSUMER, **more}
    )


def attached(cluster: Cluster, group: str, topic: str, rack: str | None, **more: Any) -> KafkaConsumer:
    return attach(plain(cluster, group, topic, rack, **more))


def plain(cluster: Cluster, group: str, topic: str, rack: str | None, **more: Any) -> KafkaConsumer:
    return plain_consumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        group_id=group,
        client_rack=rack or "",
        partition_assignment_strategy=[RackAwareRangeAssignor(rack=rack)],
        **CONSUMER,
        **more,
    )


def from_class(cluster: Cluster, group: str, topic: str, rack: str | None) -> KafkaConsumer:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RACKASSIGN_RACK", rack or "")
        return plain_consumer(
            topic,
            bootstrap_servers=cluster.bootstrap,
            group_id=group,
            partition_assignment_strategy=[RackAwareRangeAssignor],
            **CONSUMER,
        )


@pytest.mark.parametrize("make", [rack_aware, attached, plain, from_class])
def test_each_way_in_reads_at_home(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name, make: Callable[..., KafkaConsumer]
) -> None:
    topic, group = make_topic(replicas=ONE_RACK_EACH), unique_name()
    racks = ("a", "b", "c")
    with consumers(*(lambda rack=rack: make(rack_cluster, group, topic, rack) for rack in racks)) as members:
        with polled(members):
            wait_until(lambda: together(members, topic, 6), "three members sharing")
        assert by_rack(dict(zip(racks, members, strict=True))) == AT_HOME


class Listener(ConsumerRebalanceListener):  # type: ignore[misc] # kafka-python is untyped
    """Does nothing: what matters is that there is one."""

    def on_partitions_revoked(self, revoked: Any) -> None: ...

    def on_partitions_assigned(self, assigned: Any) -> None: ...


@pytest.mark.parametrize("strategy", [RackAwareRangeAssignor, RackAwareStickyAssignor])
def test_a_member_with_a_listener_reads_again_what_it_keeps(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name, strategy: Any
) -> None:
    topic, group = make_topic(replicas=ONE_RACK_EACH), unique_name()

    def member(rack: str) -> KafkaConsumer:
        consumer = RackAwareConsumer(
            bootstrap_servers=rack_cluster.bootstrap,
            group_id=group,
            client_rack=rack,
            partition_assignment_strategy=[strategy(rack=rack)],
            **CONSUMER,
        )
        consumer.subscribe([topic], listener=Listener())
        return consumer

    with consumers(lambda: member("a")) as (first,):
        wait_until(settled([first], topic, 6), "one member with everything")
        with consumers(lambda: member("b")) as (second,):
            wait_until(settled([first, second], topic, 6), "two members sharing")
            produce_records(rack_cluster.client_config(), topic, 6, records=1, size=100)
            read: set[int] = set()

            def everything() -> bool:
                for each in (first, second):
                    read.update(tp.partition for tp in each.poll(timeout_ms=50))
                return len(read) == 6

            wait_until(everything, "the records of all partitions")


def test_a_consumer_tells_from_which_racks_it_read(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name
) -> None:
    topic = make_topic(replicas=[[2, 1], [2, 3]])
    produce_records(rack_cluster.client_config(), topic, 2, records=10, size=1000)
    with consumers(lambda: rack_aware(rack_cluster, unique_name(), topic, "a")) as (consumer,):
        left = 20

        def read() -> bool:
            nonlocal left
            left -= sum(map(len, consumer.poll(timeout_ms=50).values()))
            return left == 0

        wait_until(read, "all records")
        read_from = consumer.locality()
        shown = consumer.metrics()["rackassign-locality-metrics"]
    assert read_from.rack == "a"
    assert read_from.topics.keys() == {topic}
    assert {rack: amount.records for rack, amount in read_from.by_rack(topic).items()} == {"a": 10, "b": 10}
    assert all(10_000 < amount.bytes < 12_000 for amount in read_from.by_rack().values())
    assert consumer.bytes_by_rack() == {rack: amount.bytes for rack, amount in read_from.by_rack().items()}
    assert read_from.local_share() == pytest.approx(0.5, abs=0.05)
    assert shown["local-share"] == read_from.local_share()
    assert shown[f"records-of-{topic}-from-b-total"] == 10


def test_a_consumer_says_in_one_line_what_it_was_given(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rackassign.clients.kafka_python.assignor")
    topic = make_topic(replicas=[[1], [2], [1]])
    with consumers(lambda: rack_aware(rack_cluster, unique_name(), topic, "a")) as (consumer,):
        wait_until(settled([consumer], topic, 3), "an assignment")
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    mine = f"rack a: 2 of 3 partitions local ({topic}-1 from rack b: no replica in a)"
    assert said[-1] == f"cooperative-sticky: {mine}; the group of 1: 2 of 3 local, 0 moved"


def test_static_members_keep_their_partitions_over_a_restart(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name
) -> None:
    topic, group = make_topic(replicas=ONE_RACK_EACH), unique_name()

    def static(rack: str) -> RackAwareConsumer:
        # A member that is away for longer than its session is no member any more.
        more = {"group_instance_id": f"static-{rack}", "session_timeout_ms": 600_000}
        return rack_aware(rack_cluster, group, topic, rack, **more)

    with consumers(lambda: static("a"), lambda: static("b")) as members:
        wait_until(settled(members, topic, 6), "two static members sharing")
        before = numbers(members[1])
        members[1].close()
        with consumers(lambda: static("b")) as (again,):
            wait_until(settled([members[0], again], topic, 6), "the static member back")
            assert numbers(again) == before


@pytest.mark.parametrize(
    "strategy", [RackAwareCooperativeStickyAssignor, RackAwareRangeAssignor, RackAwareStickyAssignor]
)
def test_static_members_that_return_in_another_rack_request_a_plan(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name, caplog: pytest.LogCaptureFixture, strategy: Any
) -> None:
    topic, group = make_topic(replicas=ONE_RACK_EACH), unique_name()

    def static(name: str, rack: str) -> RackAwareConsumer:
        more = {"group_instance_id": f"static-{name}", "session_timeout_ms": 600_000}
        return rack_aware(rack_cluster, group, topic, rack, partition_assignment_strategy=[strategy], **more)

    with caplog.at_level(logging.WARNING, "rackassign"):
        # One of them leads, and returns, too.
        with consumers(*(partial(static, rack, rack) for rack in "abc")) as members:
            wait_until(settled(members, topic, 6), "three static members sharing")
            before = [numbers(member) for member in members]
        with consumers(*(partial(static, *pair) for pair in ("ab", "bc", "ca"))) as members:

            def exchanged() -> bool:
                return settled(members, topic, 6)() and [*map(numbers, members)] == [*before[1:], before[0]]

            wait_until(exchanged, "the partitions of their racks")
    # Their claims are those of the members that they were, so that nothing is assigned before it is revoked.
    assert "claims" not in caplog.text


def test_members_without_rack_and_in_unknown_racks_are_served_and_told(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = make_topic(replicas=ONE_RACK_EACH), unique_name()
    with (
        caplog.at_level(logging.WARNING, "rackassign"),
        consumers(
            lambda: rack_aware(rack_cluster, group, topic, "a"),
            lambda: rack_aware(rack_cluster, group, topic, None),
            lambda: rack_aware(rack_cluster, group, topic, "eu-central-1a"),
        ) as members,
    ):
        wait_until(settled(members, topic, 6), "three members sharing")
        assert sorted(len(numbers(member)) for member in members) == [2, 2, 2]
        produce_records(rack_cluster.client_config(), topic, 6, records=1, size=10)
        told_itself = "client_rack 'eu-central-1a' is the rack of no broker"

        def told_by_the_member() -> bool:
            for member in members:
                member.poll(timeout_ms=50)
            return told_itself in caplog.text

        wait_until(told_by_the_member, "the member's own warning")
    told = {record.getMessage() for record in caplog.records}
    assert any("send no rack" in message for message in told)
    assert any("'eu-central-1a'" in message and "racks of brokers: a, b, c" in message for message in told)


def test_nothing_is_lost_when_members_come_and_go(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name
) -> None:
    topic, group = make_topic(replicas=[[1, 2], [2, 3], [3, 1]] * 2), unique_name()
    producer = KafkaProducer(bootstrap_servers=rack_cluster.bootstrap)
    seen: set[tuple[int, int]] = set()
    sent: set[tuple[int, int]] = set()

    def send(count: int) -> None:
        futures = [producer.send(topic, b"x", partition=i % 6) for i in range(count)]
        producer.flush()
        sent.update((future.get().partition, future.get().offset) for future in futures)

    def read(members: list[KafkaConsumer]) -> bool:
        for member in members:
            for tp, records in member.poll(timeout_ms=50).items():
                seen.update((tp.partition, record.offset) for record in records)
            if member.assignment():
                # A rebalance may have begun since the poll; what is not committed then is read again.
                with suppress(RebalanceInProgressError, CommitFailedError):
                    member.commit()
        return seen >= sent and covers(members, topic, 6)

    try:
        with consumers(lambda: rack_aware(rack_cluster, group, topic, "a")) as (first,):
            send(300)
            wait_until(lambda: read([first]), "one member reading all")
            with consumers(lambda: rack_aware(rack_cluster, group, topic, "b")) as (second,):
                send(300)
                wait_until(lambda: read([first, second]), "two members reading all")
            send(300)
            wait_until(lambda: read([first]), "the first reading on alone")
    finally:
        producer.close()
    assert len(sent) == 900


def test_one_that_is_dropped_leaves_its_group_without_a_commit(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name
) -> None:
    topic, group = make_topic(replicas=ONE_RACK_EACH), unique_name()
    produce_records(rack_cluster.client_config(), topic, 6, records=10, size=10)
    # Not removed by the coordinator: that would take longer than any test does.
    patience = {"session_timeout_ms": 600_000, "max_poll_interval_ms": 600_000, "enable_auto_commit": True}

    def fail() -> None:
        for _ in rack_aware(rack_cluster, group, topic, "a", auto_commit_interval_ms=600_000, **patience):
            raise LookupError

    # As in a loop that begins again after each error; pytest would keep the traceback, and so the consumer.
    with suppress(LookupError):
        fail()
    gc.collect()
    with consumers(lambda: rack_aware(rack_cluster, group, topic, "b")) as members, polled(members):
        wait_until(lambda: together(members, topic, 6), "all partitions")
        assert not any(members[0].committed(tp) for tp in members[0].assignment())
