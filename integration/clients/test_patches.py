"""Each patch on a real broker: held where the host's defect bites, every time, with it and without it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata
from kafka import TopicPartition as HostPartition
from kafka.admin import MemberToRemove
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import CommitFailedError, FencedInstanceIdError, KafkaConnectionError
from kafka.future import Future

from rackassign import RackAwareRangeAssignor, attach
from rackassign.model import TopicPartition
from rackassign.testing import Cluster
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from rackassign.wire import Subscription, encode_subscription
from tests.helpers.kafka.consumers import CONSUMER, consumers, covers, numbers, settled
from tests.helpers.kafka.scenarios import VALID_SUBSCRIPTION, MalformedMetadataAssignor
from tests.helpers.machine_speed import scaled_ms, scaled_s

pytestmark = pytest.mark.brokers

Name = Callable[[], str]


@pytest.fixture
def admin(rack_cluster: Cluster) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=rack_cluster.bootstrap)
    yield client
    client.close()


def mended(cluster: Cluster, group: str, topic: str, *disable: str) -> KafkaConsumer:
    strategy = [RackAwareRangeAssignor(rack="a")]
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        group_id=group,
        client_rack="a",
        partition_assignment_strategy=strategy,
        **CONSUMER,
    )
    return attach(consumer, disable_patches=disable)


def finish_join_between_polls(consumer: KafkaConsumer) -> bool:
    """Let a poll start a join and return without it; when it has finished, unread, return whether it succeeded."""

    def finished() -> bool:
        task = consumer._coordinator._join_task
        if task is None:
            consumer.poll(timeout_ms=0)
        return task is not None and bool(task.is_done)

    wait_until(finished, "a join that finishes between two polls")
    return bool(consumer._coordinator._join_task.succeeded())


def test_join_finished_between_polls_is_kept(rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name) -> None:
    topic = make_topic(2)
    with consumers(
        lambda: mended(rack_cluster, unique_name(), topic),
        lambda: mended(rack_cluster, unique_name(), topic, "keep_completed_join"),
    ) as (kept, stock):
        joined = 0

        def read_by_one_and_discarded_by_the_other() -> bool:
            # Joins that fail do not count: a start has one for the member id, and while a cluster elects its first
            # coordinators there is any number of them.
            nonlocal joined
            if not kept.assignment():
                finish_join_between_polls(kept)
                kept.poll(timeout_ms=0)
            joined += finish_join_between_polls(stock)
            stock.poll(timeout_ms=0)
            return bool(kept.assignment()) and joined >= 5

        wait_until(read_by_one_and_discarded_by_the_other, "an assignment, and five joins discarded")
        assert numbers(kept) == [0, 1]
        assert numbers(stock) == []


def test_join_started_by_metadata_is_read(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name, admin: KafkaAdminClient
) -> None:
    topic = make_topic(2)
    with consumers(
        lambda: mended(rack_cluster, unique_name(), topic),
        lambda: mended(rack_cluster, unique_name(), topic, "keep_completed_join"),
    ) as (kept, stock):
        for consumer in (kept, stock):
            wait_until(settled([consumer], topic, 2), "a first assignment")
        admin.create_partitions({topic: {"count": 3, "assignments": [[1, 2, 3]]}})
        for consumer in (kept, stock):
            wait_until(
                lambda consumer=consumer: consumer.partitions_for_topic(topic) == {0, 1, 2},  # type: ignore[misc]
                "the third partition in the metadata",
            )
            finish_join_between_polls(consumer)

        def kept_has_all() -> bool:
            kept.poll(timeout_ms=20)
            stock.poll(timeout_ms=20)
            return numbers(kept) == [0, 1, 2]

        wait_until(kept_has_all, "the join read")
        for _ in range(20):
            stock.poll(timeout_ms=20)
        assert numbers(stock) == [0, 1]
        assert stock.group_metadata().state != "<stable>"


@pytest.mark.long
def test_unread_join_is_kept_alive(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name, admin: KafkaAdminClient
) -> None:
    topic = make_topic(2)
    beating, silent = unique_name(), unique_name()
    with consumers(
        lambda: mended(rack_cluster, beating, topic),
        lambda: mended(rack_cluster, silent, topic, "heartbeat_until_join_read"),
    ) as (kept, stock):
        for consumer in (kept, stock):
            while not consumer._coordinator._join_task or not consumer._coordinator._generation.protocol:
                consumer._coordinator._join_task = None
                finish_join_between_polls(consumer)

        def members(group: str) -> int:
            return len(admin.describe_groups([group])[group]["members"])

        # The user's code works on, for longer than the session lasts, and does not poll.
        wait_until(lambda: members(silent) == 0, "the silent member put out of its group")
        time.sleep(scaled_s(CONSUMER["heartbeat_interval_ms"] / 1000))
        assert members(beating) == 1
        generation = kept.group_metadata().generation_id
        wait_until(settled([kept], topic, 2), "the kept join read")
        # It is still the same membership: at most the refresh of the topic's metadata made it join once more.
        assert kept.group_metadata().generation_id <= generation + 1


def test_no_heartbeat_of_a_join_that_was_read_disturbs_the_next(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name
) -> None:
    topic, other, group = make_topic(2), make_topic(2), unique_name()
    with consumers(lambda: mended(rack_cluster, group, topic), lambda: mended(rack_cluster, group, topic)) as members:
        wait_until(settled(members, topic, 2), "two members sharing")
        first, second = members
        # The next join begins at once, and cannot end before the second member polls: a heartbeat sent meanwhile
        # stands behind it.
        first.subscribe([topic, other])
        until = time.monotonic() + scaled_s(2 * CONSUMER["heartbeat_interval_ms"] / 1000)
        while time.monotonic() < until:
            first.poll(timeout_ms=50)
        second.subscribe([topic, other])
        wait_until(settled(members, other, 2), "both sharing the other topic too")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(VALID_SUBSCRIPTION[:-2], id="truncated"),
        pytest.param(b"", id="empty"),
        pytest.param(VALID_SUBSCRIPTION.replace(b"\0\1t", b"\0\1\xff"), id="topic not UTF-8"),
        pytest.param(encode_subscription(Subscription(("bad topic/!",))), id="illegal topic name"),
    ],
)
def test_group_goes_on_beside_a_broken_member(
    rack_cluster: Cluster,
    make_topic: MakeTopic,
    unique_name: Name,
    data: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic, group = make_topic(4), unique_name()
    with consumers(lambda: mended(rack_cluster, group, topic), lambda: mended(rack_cluster, group, topic)) as members:
        leader = members[0]
        wait_until(settled([leader], topic, 4), "the first member leading")
        wait_until(settled(members, topic, 4), "two members sharing")
        with consumers(lambda: broken(rack_cluster, group, topic, data)) as (bad,):
            before = leader.group_metadata().generation_id

            def goes_on() -> bool:
                bad.poll(timeout_ms=50)
                together = settled(members, topic, 4)()
                generation = leader.group_metadata().generation_id
                return together and generation > before and bad.group_metadata().generation_id == generation

            wait_until(goes_on, "the group settled with the broken member in it")
            assert numbers(bad) == []
    warnings = [record.getMessage() for record in caplog.records if record.name.startswith("rackassign")]
    assert len([message for message in warnings if "subscri" in message]) == 1


def broken(cluster: Cluster, group: str, topic: str, data: bytes) -> KafkaConsumer:
    return KafkaConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        group_id=group,
        partition_assignment_strategy=[MalformedMetadataAssignor(data)],
        **CONSUMER,
    )


@pytest.mark.long
def test_without_the_guard_a_broken_member_stops_the_leader(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name
) -> None:
    topic, group = make_topic(4), unique_name()
    with consumers(lambda: mended(rack_cluster, group, topic, "tolerate_malformed_metadata")) as (leader,):
        wait_until(settled([leader], topic, 4), "the first member leading")
        with consumers(lambda: broken(rack_cluster, group, topic, VALID_SUBSCRIPTION[:-2])) as (bad,):
            raised: list[BaseException] = []

            def stopped() -> bool:
                bad.poll(timeout_ms=50)
                try:
                    leader.poll(timeout_ms=50)
                except Exception as error:  # noqa: BLE001 - which one it is, is the host's affair
                    raised.append(error)
                return len(raised) >= 2

            wait_until(stopped, "the leader's poll raising")


def test_an_error_of_the_assignor_is_raised_once_a_join_and_the_consumer_heals(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name
) -> None:
    """The patches must not turn an error the host raises into silence, nor raise it over and over."""

    class FailsOnce(RangePartitionAssignor):  # type: ignore[misc] # kafka-python is untyped
        failed = 0

        def assign(self, cluster: object, members: object) -> object:
            if not self.failed:
                self.failed += 1
                raise ZeroDivisionError
            return super().assign(cluster, members)

    topic = make_topic(2)
    assignor = FailsOnce()
    with consumers(
        lambda: attach(
            KafkaConsumer(
                topic,
                bootstrap_servers=rack_cluster.bootstrap,
                group_id=unique_name(),
                partition_assignment_strategy=[assignor],
                **CONSUMER,
            )
        )
    ) as (consumer,):
        errors = 0

        def healed() -> bool:
            nonlocal errors
            try:
                consumer.poll(timeout_ms=200)
            except ZeroDivisionError:
                errors += 1
            return covers([consumer], topic, 2)

        wait_until(healed, "an assignment after the failure")
        assert errors == 1
        assert TopicPartition(topic, 0) in consumer.assignment()


def fail_once(owner: object, name: str) -> None:
    """Let the next call of a method return a future that has failed, as when the broker that is asked is gone."""
    original = getattr(owner, name)

    def failed(*arguments: object) -> Future:
        del arguments
        setattr(owner, name, original)
        return Future().failure(KafkaConnectionError("gone"))

    setattr(owner, name, failed)


def bereft(cluster: Cluster, group: str, topic: str, *disable: str) -> KafkaConsumer:
    """Return a consumer that asks a dead broker for its coordinator, and then for metadata."""
    consumer = mended(cluster, group, topic, *disable)
    fail_once(consumer._coordinator, "lookup_coordinator")
    fail_once(consumer._cluster, "request_update")
    return consumer


def test_a_coordinator_is_looked_for_until_it_is_found(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name
) -> None:
    topic = make_topic(2)
    with consumers(
        lambda: bereft(rack_cluster, unique_name(), topic),
        lambda: bereft(rack_cluster, unique_name(), topic, "retry_coordinator_lookup"),
    ) as (kept, stock):
        wait_until(settled([kept], topic, 2), "an assignment")
        with pytest.raises(KafkaConnectionError):
            stock.poll(timeout_ms=1000)


@pytest.mark.parametrize("disable", [(), ("raise_when_fenced",)], ids=["mended", "without the patch it is not"])
def test_poll_of_a_fenced_static_member_raises(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name, disable: tuple[str, ...]
) -> None:
    """Two members with one group.instance.id, as when a deployment is started twice."""
    topic, group = make_topic(2), unique_name()

    def member() -> KafkaConsumer:
        consumer = KafkaConsumer(
            topic, bootstrap_servers=rack_cluster.bootstrap, group_id=group, group_instance_id="the-one", **CONSUMER
        )
        return attach(consumer, disable_patches=disable)

    with consumers(member) as (first,):
        wait_until(settled([first], topic, 2), "an assignment")
        with consumers(member) as (second,):
            wait_until(settled([second], topic, 2), "the second in the place of the first")
            coordinator = first._coordinator

            def silenced() -> bool:
                # The host stops its heartbeats once one was answered so.
                return not coordinator._heartbeat_enabled

            if disable:
                wait_until(lambda: first.poll(timeout_ms=50) is not None and silenced(), "heartbeats that end")
                first.poll(timeout_ms=500)
                assert numbers(first) == [0, 1]
                return

            def raised() -> bool:
                try:
                    first.poll(timeout_ms=50)
                except FencedInstanceIdError:
                    return True
                return False

            wait_until(raised, "an error out of poll()")
            for _ in range(3):
                with pytest.raises(FencedInstanceIdError, match="the-one"):
                    first.poll(timeout_ms=50)


@pytest.mark.parametrize(
    "disable", [(), ("keep_generation_when_removed",)], ids=["mended", "without the patch they are accepted"]
)
def test_offsets_of_a_removed_member_are_rejected(
    rack_cluster: Cluster,
    make_topic: MakeTopic,
    unique_name: Name,
    admin: KafkaAdminClient,
    disable: tuple[str, ...],
) -> None:
    """A member was removed while it processed records, and commits their offsets in a transaction."""
    topic, group = make_topic(1), unique_name()
    config = {"transactional_id": group, "transaction_timeout_ms": scaled_ms(60_000)}
    with (
        closing(KafkaProducer(bootstrap_servers=rack_cluster.bootstrap, **config)) as producer,
        consumers(lambda: mended(rack_cluster, group, topic, *disable)) as (former,),
    ):
        producer.init_transactions()
        wait_until(settled([former], topic, 1), "an assignment")
        admin.remove_group_members(group, [MemberToRemove(member_id=former.group_metadata().member_id)])
        # Its heartbeat is told so, while the user's code works on and does not poll.
        coordinator = former._coordinator
        wait_until(lambda: bool(coordinator._generation.is_lost()), "the member learns of its removal")
        with consumers(lambda: mended(rack_cluster, group, topic)) as (owner,):
            wait_until(settled([owner], topic, 1), "another owner")
            producer.begin_transaction()
            with nullcontext() if disable else pytest.raises(CommitFailedError, match="UnknownMemberId"):
                producer.send_offsets_to_transaction(
                    {HostPartition(topic, 0): OffsetAndMetadata(0, "", -1)}, former.group_metadata()
                )
            producer.abort_transaction()
