"""Changelogs and outputs that cannot be as they should: a broker is missing, or a permission."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import ACL

from rackassign.admin.admin_client import AuthorizationError
from rackassign.admin.describe import list_brokers
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.stateful import Output, StatefulConsumer, StateStore
from rackassign.strategies.standby import StandbyOptions
from rackassign.testing import Cluster, LocalCluster, create_topic
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeCluster
from tests.helpers.kafka.permissions import CONFIG, access, acl, give, make_users
from tests.helpers.kafka.unregistration import unregister

pytestmark = [pytest.mark.brokers, pytest.mark.local]

TIMEOUT_S = 600.0
TOPIC, GROUP, LOG, USER, ID = "lines", "count", "count-lines-changelog", "counter", "count-1"
RESULTS = "results"
TRANSACTIONS_OF_TWO = {"transaction.state.log.replication.factor": "2", "transaction.state.log.min.isr": "1"}
READ: dict[str, Any] = {"auto_offset_reset": "earliest", "isolation_level": "read_committed", "group_id": None}


def count(_: Any, store: StateStore) -> None:
    store.put(b"n", b"%d" % (int(store.get(b"n") or 0) + 1))


def pass_on(record: Any, store: StateStore, output: Output) -> None:
    count(record, store)
    output.send(record.value)


def begun(folder: Path, process: Any = count, **config: Any) -> StatefulConsumer:
    return StatefulConsumer(
        TOPIC,
        process=process,
        state_dir=folder,
        standbys=StandbyOptions(0),
        group_id=GROUP,
        metadata_max_age_ms=1000,
        **config,
    )


def write(bootstrap: str, partitions: int) -> None:
    with closing(KafkaProducer(bootstrap_servers=bootstrap, metadata_max_age_ms=500)) as producer:
        # The broker that it asks may not know a new one yet, and the client then raises at once.
        wait_until(lambda: len(producer.partitions_for(TOPIC)) >= partitions, "the partitions", timeout_s=TIMEOUT_S)
        for number in range(10 * partitions):
            producer.send(TOPIC, b"%d" % number, partition=number % partitions)


def wait_counted(member: StatefulConsumer, *expected: int) -> None:
    def so() -> bool:
        member.poll(100)
        active = sorted(member.active_partitions())
        return active == [TopicPartition(TOPIC, p) for p in range(len(expected))] and [
            int(member.store(tp).get(b"n") or 0) for tp in active
        ] == list(expected)

    wait_until(so, f"counts of {expected}", timeout_s=TIMEOUT_S)


@pytest.mark.long
def test_a_first_start_without_a_broker_creates_a_changelog_with_fewer_replicas(
    make_cluster: MakeCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = make_cluster(("a", "b", "c"), config={"offsets.topic.replication.factor": "2", **TRANSACTIONS_OF_TWO})
    create_topic(cluster.bootstrap, TOPIC, [[1, 2, 3], [2, 3, 1]])
    with closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap)) as admin:
        cluster.kill(3)
        wait_until(lambda: any(b.fenced for b in list_brokers(admin)), "the broker is given up", timeout_s=TIMEOUT_S)
        unregister(cluster, 3)
        wait_until(lambda: len(list_brokers(admin)) == 2, "two brokers are left", timeout_s=TIMEOUT_S)
        write(cluster.bootstrap, 2)
        with begun(tmp_path, bootstrap_servers=cluster.bootstrap) as member:
            wait_counted(member, 10, 10)
        replicas = [len(each["replica_nodes"]) for each in admin.describe_topics([LOG])[0]["partitions"]]
    assert replicas == [2, 2]
    assert f"{LOG} was created with 2 replicas instead of 3, because brokers are missing" in caplog.text


def allowed(operation: str, kind: str, name: str) -> ACL:
    return acl(USER, (operation, kind, name))


@pytest.fixture
def secured() -> Iterator[Cluster]:
    """A cluster on which the user has the permissions of the documentation, except ALTER."""
    with LocalCluster(["a", "b"], listeners={"SECURE": "SASL_SSL"}, config=CONFIG) as made:
        create_topic(made.bootstrap, TOPIC, [[1, 2], [2, 1]])
        of_log = (allowed(each, "TOPIC", LOG) for each in ("READ", "WRITE", "CREATE", "DESCRIBE_CONFIGS"))
        others = (("READ", "TOPIC", TOPIC), ("READ", "GROUP", GROUP), ("WRITE", "TRANSACTIONAL_ID", ID))
        make_users(made, [USER], [*(allowed(*each) for each in others), *of_log])
        yield made


@pytest.mark.long
def test_without_alter_new_partitions_wait_for_the_command_and_the_others_continue(
    secured: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    login = {"transactional_id": ID, **access(secured, USER)}
    write(secured.bootstrap, 2)
    with closing(KafkaAdminClient(bootstrap_servers=secured.bootstrap)) as admin:

        def partitions(topic: str) -> int:
            return len(admin.describe_topics([topic])[0]["partitions"])

        with begun(tmp_path, **login) as member:
            wait_counted(member, 10, 10)
            admin.create_partitions({TOPIC: 3})
            wait_until(lambda: partitions(TOPIC) == 3, "the new partition", timeout_s=TIMEOUT_S)
            command = f"--alter --topic {LOG} --partitions 3"
            wait_until(lambda: member.poll(100) >= 0 and command in caplog.text, "the message", timeout_s=TIMEOUT_S)
            write(secured.bootstrap, 3)
            wait_counted(member, 20, 20)
        assert f"not allowed: ALTER on topic {LOG}" in caplog.text
        with begun(tmp_path, **login) as member:
            write(secured.bootstrap, 2)
            wait_counted(member, 30, 30)
            # As the command does.
            admin.create_partitions({LOG: 3})
            wait_counted(member, 30, 30, 10)
    assert caplog.text.count(command) == 2


@pytest.mark.long
def test_an_output_that_must_not_be_written_is_named_at_the_start(secured: Cluster, tmp_path: Path) -> None:
    login = access(secured, USER)
    create_topic(secured.bootstrap, RESULTS, [[1, 2], [2, 1]])
    write(secured.bootstrap, 2)

    def started(**more: int) -> StatefulConsumer:
        return begun(tmp_path, pass_on, output=RESULTS, transactional_id="one", **login, **more)

    def refusal() -> str:
        try:
            started().close()
        except AuthorizationError as error:
            return str(error)
        return ""

    with closing(KafkaAdminClient(bootstrap_servers=secured.bootstrap)) as admin:
        assert refusal() == f"not allowed: WRITE on topic {RESULTS}"
        give(secured, admin, [allowed("READ", "TOPIC", RESULTS)])
        assert refusal() == f"not allowed: WRITE on topic {RESULTS}"
        give(secured, admin, [allowed("WRITE", "TOPIC", RESULTS)])
        assert refusal() == "not allowed: WRITE on transactional ID one"
        give(secured, admin, [allowed("WRITE", "TRANSACTIONAL_ID", "one")])
        assert not refusal()
    with pytest.raises(ConfigError, match=r"of 1000000000 is more than brokers allow \(transaction.max.timeout.ms\)"):
        started(transaction_timeout_ms=10**9)
    with started() as member, closing(KafkaConsumer(RESULTS, **READ, bootstrap_servers=secured.bootstrap)) as reader:
        seen: list[Any] = []

        def all_passed_on() -> bool:
            member.poll(100)
            seen.extend(record for records in reader.poll(timeout_ms=100).values() for record in records)
            return len(seen) >= 20

        wait_until(all_passed_on, "20 results", timeout_s=TIMEOUT_S)
        assert sorted(int(record.value) for record in seen) == list(range(20))
