"""Each patch on a real broker: held where the host's defect bites, every time, with it and without it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from kafka import (
    AsyncConsumerRebalanceListener,
    ConsumerRebalanceListener,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
)
from kafka import TopicPartition as KafkaPythonPartition
from kafka.admin import MemberToRemove
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import CommitFailedError, FencedInstanceIdError, KafkaConnectionError, KafkaError
from kafka.future import Future
from kafka.protocol.metadata import FindCoordinatorResponse

from rackassign import RackAwareCooperativeStickyAssignor, RackAwareStickyAssignor, attach
from rackassign.clients.kafka_python._assignors import RackAwareAssignor
from rackassign.model import TopicPartition
from rackassign.testing import Cluster
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.consumers import (
    CONSUMER,
    EXPIRING,
    consumers,
    covers,
    numbers,
    patched_consumer,
    plain_consumer,
    polled,
    settled,
)
from tests.helpers.kafka.response_class_race import response_class_race
from tests.helpers.kafka.scenarios import MALFORMED_SUBSCRIPTIONS, MalformedMetadataAssignor
from tests.helpers.machine_speed import scaled_ms, scaled_s

pytestmark = [pytest.mark.brokers, pytest.mark.local]

Name = Callable[[], str]


@pytest.fixture
def admin(rack_cluster: Cluster) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=rack_cluster.bootstrap)
    yield client
    client.close()


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
        lambda: patched_consumer(rack_cluster, unique_name(), topic),
        lambda: patched_consumer(rack_cluster, unique_name(), topic, "keep_completed_join"),
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


@pytest.mark.long
def test_unread_join_is_kept_alive(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name, admin: KafkaAdminClient
) -> None:
    topic = make_topic(2)
    beating, silent = unique_name(), unique_name()
    # The session of both ends without heartbeats; for its polls neither is put out.
    config = {"session_timeout_ms": EXPIRING["session_timeout_ms"], "max_poll_interval_ms": 600_000}
    with consumers(
        lambda: patched_consumer(rack_cluster, beating, topic, **config),
        lambda: patched_consumer(rack_cluster, silent, topic, "heartbeat_until_join_read", **config),
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


@pytest.mark.parametrize("data", MALFORMED_SUBSCRIPTIONS.values(), ids=[*MALFORMED_SUBSCRIPTIONS])
def test_group_goes_on_beside_a_broken_member(
    rack_cluster: Cluster,
    make_topic: MakeTopic,
    unique_name: Name,
    data: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic, group = make_topic(4), unique_name()
    with consumers(
        lambda: patched_consumer(rack_cluster, group, topic), lambda: patched_consumer(rack_cluster, group, topic)
    ) as members:
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
    consumer = patched_consumer(cluster, group, topic, *disable)
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
            wait_until(lambda: bool(stock.poll(timeout_ms=1000)), "an error out of poll()")


def test_a_static_leader_that_has_returned_sees_new_partitions(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name, admin: KafkaAdminClient
) -> None:
    topic, group = make_topic(2), unique_name()

    def member(name: str) -> KafkaConsumer:
        config = {"group_id": group, "group_instance_id": name, "metadata_max_age_ms": 500}
        consumer = KafkaConsumer(topic, bootstrap_servers=rack_cluster.bootstrap, **{**CONSUMER, **config})
        return attach(consumer)

    with consumers(lambda: member("leads")) as (leader,):
        wait_until(settled([leader], topic, 2), "a leader")
        with consumers(lambda: member("follows")) as (follower,):
            wait_until(settled([leader, follower], topic, 2), "a follower")
            generation = leader._coordinator._generation.generation_id
            # Static, so it does not leave its group.
            leader.close(timeout_ms=scaled_ms(5000))
            with consumers(lambda: member("leads")) as (returned,):
                both = [returned, follower]
                wait_until(settled(both, topic, 2), "the leader in its place")
                assert returned._coordinator._generation.generation_id == generation
                admin.create_partitions({topic: {"count": 3, "assignments": [[1, 2, 3]]}})
                wait_until(settled(both, topic, 3), "a new partition that is read")


def test_poll_of_a_fenced_static_member_raises(rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name) -> None:
    """Two members with one group.instance.id, as when a deployment is started twice."""
    topic, group = make_topic(2), unique_name()

    def member() -> KafkaConsumer:
        consumer = KafkaConsumer(
            topic, bootstrap_servers=rack_cluster.bootstrap, group_id=group, group_instance_id="the-one", **CONSUMER
        )
        return attach(consumer)

    with consumers(member) as (first,):
        wait_until(settled([first], topic, 2), "an assignment")
        with consumers(member) as (second,):
            wait_until(settled([second], topic, 2), "the second in the place of the first")

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


def test_offsets_of_a_removed_member_are_rejected(
    rack_cluster: Cluster,
    make_topic: MakeTopic,
    unique_name: Name,
    admin: KafkaAdminClient,
) -> None:
    """A member was removed while it processed records, and commits their offsets in a transaction."""
    topic, group = make_topic(1), unique_name()
    config = {"transactional_id": group, "transaction_timeout_ms": scaled_ms(60_000)}
    with (
        closing(KafkaProducer(bootstrap_servers=rack_cluster.bootstrap, **config)) as producer,
        consumers(lambda: patched_consumer(rack_cluster, group, topic)) as (former,),
    ):
        producer.init_transactions()
        wait_until(settled([former], topic, 1), "an assignment")
        admin.remove_group_members(group, [MemberToRemove(member_id=former.group_metadata().member_id)])
        # Its heartbeat is told so, while the user's code works on and does not poll.
        coordinator = former._coordinator
        wait_until(lambda: bool(coordinator._generation.is_lost()), "the member learns of its removal")
        with consumers(lambda: patched_consumer(rack_cluster, group, topic)) as (owner,):
            wait_until(settled([owner], topic, 1), "another owner")
            producer.begin_transaction()
            with pytest.raises(CommitFailedError, match="UnknownMemberId"):
                producer.send_offsets_to_transaction(
                    {KafkaPythonPartition(topic, 0): OffsetAndMetadata(0, "", -1)}, former.group_metadata()
                )
            producer.abort_transaction()


@pytest.mark.parametrize("assignor", [RackAwareCooperativeStickyAssignor, RackAwareStickyAssignor])
def test_a_member_removed_in_its_join_continues_where_others_have_committed(
    rack_cluster: Cluster,
    make_topic: MakeTopic,
    unique_name: Name,
    admin: KafkaAdminClient,
    assignor: Callable[..., RackAwareAssignor],
) -> None:
    topic, group = make_topic(1), unique_name()
    place = KafkaPythonPartition(topic, 0)
    with closing(KafkaProducer(bootstrap_servers=rack_cluster.bootstrap)) as producer:
        for _ in range(20):
            producer.send(topic, b"record")

    def member() -> KafkaConsumer:
        return patched_consumer(rack_cluster, group, topic, assignor=assignor, max_poll_records=1)

    def commit_at(consumer: KafkaConsumer, offset: int) -> None:
        wait_until(settled([consumer], topic, 1), "an assignment")
        consumer.seek(place, offset)
        consumer.commit({place: OffsetAndMetadata(offset, "", -1)})

    with consumers(member) as (former,):
        commit_at(former, 5)
        # A cooperative member reads on meanwhile.
        former.pause(place)
        lost = Lost()
        former._subscription.rebalance_listener = lost
        coordinator = former._coordinator
        with held_request(former, "SyncGroupRequest") as held:
            coordinator.request_rejoin()
            wait_until(lambda: not former.poll(timeout_ms=20) and held.is_set(), "its SyncGroup")
            admin.remove_group_members(group, [MemberToRemove(member_id=coordinator._generation.member_id)])
            with consumers(member) as (owner,):
                commit_at(owner, 15)
        wait_until(settled([former], topic, 1), "the partition again")
        position = former.position(place)
    assert position in {15, 16}
    # An eager member has revoked it before the join.
    cooperative = assignor is RackAwareCooperativeStickyAssignor
    assert lost.partitions == ({place} if cooperative else set())


def test_committed_offsets_are_those_of_now(
    rack_cluster: Cluster,
    make_topic: MakeTopic,
    unique_name: Name,
    admin: KafkaAdminClient,
) -> None:
    topic, group = make_topic(1), unique_name()
    place = KafkaPythonPartition(topic, 0)
    with (
        consumers(lambda: patched_consumer(rack_cluster, group, topic)) as (former,),
        closing(KafkaProducer(bootstrap_servers=rack_cluster.bootstrap)) as producer,
    ):
        for _ in range(20):
            producer.send(topic, b"record")
        producer.flush()
        coordinator = former._coordinator
        asked = coordinator._offset_fetch_futures
        with held_request(former, "OffsetFetchRequest") as held:
            wait_until(lambda: not former.poll(timeout_ms=20) and held.is_set(), "a request that no poll waits for")
        wait_until(lambda: all(each.is_done for each in asked.values()), "its answer")
        assert len(asked) == 1
        former.seek(place, 5)
        assert former.position(place) == 5
        admin.remove_group_members(group, [MemberToRemove(member_id=former.group_metadata().member_id)])
        wait_until(lambda: bool(coordinator._generation.is_lost()), "the member learns of its removal")
        with consumers(lambda: patched_consumer(rack_cluster, group, topic)) as (owner,):
            wait_until(settled([owner], topic, 1), "another owner")
            owner.commit({place: OffsetAndMetadata(15, "", -1)})
        first: list[int] = []

        def read() -> bool:
            first.extend(record.offset for batch in former.poll(timeout_ms=20).values() for record in batch)
            return bool(first)

        wait_until(read, "records again")
        assert first[0] == 15


class Committing(AsyncConsumerRebalanceListener):  # type: ignore[misc] # kafka-python is untyped
    """Commits what is revoked, and notes what it sees then."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer
        self.seen: list[tuple[set[KafkaPythonPartition], set[KafkaPythonPartition], list[int]]] = []

    async def on_partitions_revoked(self, revoked: set[KafkaPythonPartition]) -> None:
        consumer = self._consumer
        held = consumer.assignment()
        self.seen.append((set(revoked), held, [consumer.position(place) for place in revoked & held]))
        await consumer.commit_async()

    async def on_partitions_assigned(self, assigned: set[KafkaPythonPartition]) -> None:
        pass


def test_a_listener_commits_what_is_revoked(rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name) -> None:
    topic, group = make_topic(2), unique_name()
    every = {KafkaPythonPartition(topic, 0), KafkaPythonPartition(topic, 1)}
    with closing(KafkaProducer(bootstrap_servers=rack_cluster.bootstrap)) as producer:
        for place in 10 * sorted(every):
            producer.send(topic, b"record", partition=place.partition)

    def member() -> KafkaConsumer:
        return patched_consumer(rack_cluster, group, topic, assignor=RackAwareCooperativeStickyAssignor)

    with consumers(member) as (first,):
        listener = Committing(first)
        first._subscription.rebalance_listener = listener
        wait_until(settled([first], topic, 2), "an assignment")
        wait_until(
            lambda: not first.poll(timeout_ms=50) and all(first.position(place) == 10 for place in every), "its records"
        )
        with consumers(member) as (second,):
            wait_until(settled([first, second], topic, 2), "a partition for each")
            (revoked,) = second.assignment()
            assert second.committed(revoked) == 10
            assert listener.seen == [({revoked}, every, [10])]


class Blocking(ConsumerRebalanceListener):  # type: ignore[misc] # kafka-python is untyped
    """Commits where it cannot be waited for."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer

    def on_partitions_revoked(self, _revoked: set[KafkaPythonPartition]) -> None:
        self._consumer.commit()

    def on_partitions_assigned(self, assigned: set[KafkaPythonPartition]) -> None:
        pass


def test_a_listener_that_cannot_commit_is_told_how_once(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name
) -> None:
    topic, group = make_topic(2), unique_name()

    def member() -> KafkaConsumer:
        return patched_consumer(rack_cluster, group, topic, assignor=RackAwareCooperativeStickyAssignor)

    with consumers(member, member) as (first, second):
        wait_until(settled([first], topic, 2), "an assignment")
        first._subscription.rebalance_listener = Blocking(first)
        errors: list[BaseException | None] = []

        def looked() -> bool:
            second.poll(timeout_ms=50)
            try:
                first.poll(timeout_ms=50)
            except KafkaError as error:
                errors.append(error.__cause__)
            return bool(errors) and covers([first, second], topic, 2)

        wait_until(looked, "an error, and a partition for each")
        first._subscription.rebalance_listener = None
        assert [type(error) for error in errors] == [RuntimeError]
        assert "Use AsyncConsumerRebalanceListener" in str(errors[0])


class Lost(ConsumerRebalanceListener):  # type: ignore[misc] # kafka-python is untyped
    """Notes what is lost."""

    def __init__(self) -> None:
        self.partitions: set[KafkaPythonPartition] = set()

    def on_partitions_revoked(self, revoked: set[KafkaPythonPartition]) -> None:
        pass

    def on_partitions_assigned(self, assigned: set[KafkaPythonPartition]) -> None:
        pass

    def on_partitions_lost(self, lost: set[KafkaPythonPartition]) -> None:
        self.partitions |= lost


@contextmanager
def held_request(consumer: KafkaConsumer, kind: str) -> Iterator[threading.Event]:
    """Hold the first request of a kind back until the end; the event is set once there is one."""
    manager, held, answer = consumer._coordinator._manager, threading.Event(), Future()
    send, given = manager.send, list[tuple[Any, ...]]()

    def send_or_hold(request: Any, node_id: Any = None, request_timeout_ms: Any = None) -> Any:
        if type(request).__name__ != kind or held.is_set():
            return send(request, node_id, request_timeout_ms)
        given.append((request, node_id, request_timeout_ms))
        held.set()
        return answer

    def go_on() -> None:
        sent = send(*given[0])
        sent.add_callback(answer.success)
        sent.add_errback(answer.failure)

    manager.send = send_or_hold
    yield held
    manager.call_soon(go_on)


@pytest.mark.long
def test_a_process_whose_responses_cannot_be_decoded_recovers(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic(2)

    def plain() -> KafkaConsumer:
        # A lost response is repeated after this time, even by `poll(timeout_ms=0)`.
        timing = {**EXPIRING, "request_timeout_ms": EXPIRING["session_timeout_ms"] + 1000}
        return plain_consumer(topic, bootstrap_servers=rack_cluster.bootstrap, group_id=unique_name(), **timing)

    def undecoded() -> int:
        return sum(each.exc_info is not None and each.exc_info[0] is ReferenceError for each in caplog.records)

    with consumers(plain) as (stock,), response_class_race(FindCoordinatorResponse), polled([stock]):
        wait_until(lambda: undecoded() > 1, "a response that cannot be decoded, twice")
        assert not stock.assignment()
        with consumers(lambda: patched_consumer(rack_cluster, unique_name(), topic)) as (attached,):
            wait_until(settled([attached], topic, 2), "an assignment")
        wait_until(lambda: covers([stock], topic, 2), "an assignment without attach, now that classes are registered")


def test_responses_that_cannot_be_prepared_are_warned_of_once(
    rack_cluster: Cluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rackassign.clients.kafka_python._consumer.create_response_classes", lambda: "it is gone")
    with closing(KafkaConsumer(bootstrap_servers=rack_cluster.bootstrap)) as consumer:
        attach(attach(consumer))
    messages = [each.getMessage() for each in caplog.records if "responses are created late" in each.getMessage()]
    assert len(messages) == 1
    assert messages[0].startswith("kafka-python 3.")
    assert messages[0].endswith("it is gone")
