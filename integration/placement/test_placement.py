"""Topics are made while a rack is away, and what an audit finds is what there is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata
from kafka import TopicPartition as KafkaPythonPartition
from kafka.admin import ConfigResourceType
from kafka.protocol.admin import IncrementalAlterConfigsRequest

from rackassign.admin.alter import RequestRejectedError, TopicAdmin
from rackassign.admin.describe import cluster_id, describe_topics
from rackassign.admin.raw_requests import send
from rackassign.cli.app import run
from rackassign.placement.audit import audit
from rackassign.placement.cluster_state import RATES, THROTTLED, describe_cluster_state, with_rates
from rackassign.placement.state_file import read, write
from rackassign.testing import Cluster
from rackassign.testing.harness import TIMEOUT_S, wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.command import rackassign
from tests.helpers.kafka.layout_states import fenced

pytestmark = [pytest.mark.brokers, pytest.mark.local]


OFFSETS = "__consumer_offsets"


@pytest.fixture
def admin(rack_cluster: Cluster) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=rack_cluster.bootstrap)) as made:
        yield made


def command(cluster: Cluster, name: str, *words: str, code: int = 0) -> Any:
    """Run a command and return what it prints as JSON; its last line of problems if it says no."""
    done = rackassign(name, cluster.bootstrap, *words, "--output", "json", code=code)
    return json.loads(done.stdout) if done.stdout else done.stderr.splitlines()[-1]


def in_sync(admin: KafkaAdminClient, topic: str) -> list[int]:
    return [len(row) for row in describe_topics(admin, [topic])[topic].in_sync]


@pytest.mark.long
def test_a_topic_is_made_while_a_rack_is_away_and_is_whole_when_it_is_back(
    rack_cluster: Cluster, admin: KafkaAdminClient, unique_name: Callable[[], str], tmp_path: Path
) -> None:
    name, state = unique_name(), tmp_path / "state.json"
    words = (
        "create-topic",
        name,
        "--replication-factor",
        "3",
        "--partitions",
        "4",
        "--state-file",
        str(state),
        "--policy",
        "enabled",
        "--config",
        "min.insync.replicas=2",
    )
    rack_cluster.kill_rack("c")
    wait_until(lambda: fenced(admin) == [3], "the broker is given up")
    assert "3 replicas need as many brokers, but only 2 are online" in command(
        rack_cluster, "create-topic", name, "--replication-factor", "3", "--state-file", str(state), code=1
    )
    planned = command(rack_cluster, *words, "--dry-run")
    assert not planned["created"]
    assert describe_topics(admin, [name])[name].problem == "UnknownTopicOrPartitionError"
    made = command(rack_cluster, *words)
    assert made == {**planned, "created": True}
    assert (made["min_isr"], made["under_replicated"], made["offline_replicas"], made["placeholders"]) == (2, 4, [3], 0)
    assert read(state).brokers == {1: "a", 2: "b", 3: "c"}
    with closing(KafkaProducer(bootstrap_servers=rack_cluster.bootstrap, acks="all")) as producer:
        for future in [producer.send(name, b"x", partition=p) for p in range(4)]:
            future.get(timeout=TIMEOUT_S)
    found = {
        each["kind"]: each["partitions"] for each in command(rack_cluster, "audit", "--topic", name, code=1)["findings"]
    }
    assert found["at-min-isr"] == found["offline-replica"] == {name: [0, 1, 2, 3]}
    more = command(
        rack_cluster, "create-topic", name, "--state-file", str(state), "--add-partitions", "2", "--policy", "enabled"
    )
    assert list(more["partitions"]) == ["4", "5"]
    rack_cluster.start_rack("c")
    wait_until(lambda: in_sync(admin, name) == [3] * 6, "all replicas in sync, and nobody has done anything")


@pytest.mark.release
def test_what_cannot_be_written_to_is_not_made(
    rack_cluster: Cluster, admin: KafkaAdminClient, unique_name: Callable[[], str], tmp_path: Path
) -> None:
    name, state = unique_name(), tmp_path / "state.json"
    words = (
        "create-topic",
        name,
        "--replication-factor",
        "3",
        "--policy=enabled",
        f"--state-file={state}",
        "--config=min.insync.replicas=3",
    )
    rack_cluster.kill_rack("a")
    wait_until(lambda: fenced(admin) == [1], "the broker is given up")
    said = command(rack_cluster, *words, code=1)
    assert "min.insync.replicas=3 needs 3 online brokers, but there are 2" in said
    assert describe_topics(admin, [name])[name].problem == "UnknownTopicOrPartitionError"
    # A client that knew the dead broker as the controller finds another.
    controller = TopicAdmin(admin)
    controller.create(name, {}, [[2, 3]])
    with pytest.raises(RequestRejectedError, match="TopicAlreadyExistsError"):
        controller.create(name, {}, [[2, 3]])
    with pytest.raises(RequestRejectedError, match="no such broker is registered"):
        controller.add(name, 2, [[2, 99]])


@pytest.mark.release
def test_what_the_cluster_refuses_whatever_it_is_like_is_bad_input(
    rack_cluster: Cluster,
    admin: KafkaAdminClient,
    make_topic: MakeTopic,
    unique_name: Callable[[], str],
    tmp_path: Path,
) -> None:
    state, there = ("--state-file", str(tmp_path / "state.json")), make_topic(replicas=[[1, 2]])
    bad: tuple[tuple[tuple[str, ...], str], ...] = (
        ((there, "--replication-factor", "2"), "TopicAlreadyExistsError"),
        (("a/b",), "InvalidTopicError"),
        (("x" * 250,), "InvalidTopicError"),
        ((unique_name(), "--config", "no.such.key=1"), "InvalidConfigurationError"),
        ((there, "--add-partitions", "1", "--replication-factor", "3"), "has 2 replicas"),
    )
    for words, said in bad:
        assert said in command(rack_cluster, "create-topic", *words, *state, code=2)
    more = command(rack_cluster, "create-topic", there, "--add-partitions", "1", *state)
    assert [len(row) for row in more["partitions"].values()] == [2]
    # What was seen of this cluster is not believed of another, nor written over.
    mine = read(tmp_path / "state.json")
    assert mine.cluster == cluster_id(admin)
    write(tmp_path / "state.json", replace(mine, cluster="another"))
    for name, argument in (("create-topic", unique_name()), ("audit", f"--topic={there}")):
        assert 'it belongs to cluster "another", but this is ' in command(rack_cluster, name, argument, *state, code=2)
    assert read(tmp_path / "state.json").cluster == "another"


@pytest.mark.release
def test_kafka_s_own_topics_are_audited_and_leave_a_broker_that_is_to_go(
    rack_cluster: Cluster,
    admin: KafkaAdminClient,
    make_topic: MakeTopic,
    unique_name: Callable[[], str],
    tmp_path: Path,
) -> None:
    topic, files = (
        make_topic(),
        ("--state-file", str(tmp_path / "state.json"), "--plan-file", str(tmp_path / "plan.json")),
    )
    with closing(KafkaConsumer(bootstrap_servers=rack_cluster.bootstrap, group_id=unique_name())) as consumer:
        consumer.assign([KafkaPythonPartition(topic, 0)])
        consumer.commit({KafkaPythonPartition(topic, 0): OffsetAndMetadata(0, "", -1)})
    wait_until(lambda: OFFSETS in describe_cluster_state(admin).topics, "offsets have a topic that brokers agree on")
    below = {
        each["kind"]: each
        for each in command(rack_cluster, "audit", "--expected-replication-factor", "4", *files[:2], code=1)["findings"]
    }
    assert OFFSETS in below["rf-below"]["partitions"]
    assert "--topic TOPIC" in below["rf-below"]["advice"]
    planned = command(rack_cluster, "reassign plan", "--remove-broker", "3", *files)
    assert all(3 not in row["after"] for row in planned["moves"][OFFSETS].values())
    assert OFFSETS not in command(rack_cluster, "reassign plan", "--replication-factor", "1", *files)["moves"]


@pytest.mark.long
def test_an_audit_finds_what_was_planted(rack_cluster: Cluster, admin: KafkaAdminClient, make_topic: MakeTopic) -> None:
    thin = make_topic(replicas=[[1], [2], [3]])
    # Not configured later: kafka-python asks any broker for the known keys, and that one may not know the topic yet.
    strict = make_topic(replicas=[[1, 2], [2, 3]], config={"min.insync.replicas": "2"})
    admin.alter_partition_reassignments({KafkaPythonPartition(strict, 0): [2, 1]})
    wait_until(
        lambda: describe_topics(admin, [strict])[strict].partitions[0].replicas == (2, 1), "another preferred leader"
    )

    def findings() -> dict[str, Any]:
        told = command(
            rack_cluster, "audit", "--topic", thin, "--topic", strict, "--expected-replication-factor", "2", code=1
        )
        return {each["kind"]: each["partitions"] for each in told["findings"]}

    wait_until(lambda: "min-isr-is-rf" in findings(), "brokers that know the new configuration")
    assert findings() == {
        "min-isr-is-rf": {strict: [0, 1]},
        "rf-below": {thin: [0, 1, 2]},
        "leader-not-preferred": {strict: [0]},
    }
    sound = command(rack_cluster, "audit", "--topic", thin)
    assert [(row["id"], row["leaders"]) for row in sound["brokers"]] == [(1, 1), (2, 1), (3, 1)]
    assert [row["rack"] for row in sound["racks"]] == ["a", "b", "c"]


def test_a_topic_that_is_not_there_is_bad_input(
    rack_cluster: Cluster, admin: KafkaAdminClient, make_topic: MakeTopic, unique_name: Callable[[], str]
) -> None:
    typo = unique_name()
    for words in (("--topic", typo), ("--topic", make_topic(), "--topic", typo)):
        said = command(rack_cluster, "audit", *words, code=2)
        assert said == f'rackassign: topic "{typo}" does not exist in this cluster'
    assert describe_topics(admin, [typo])[typo].unknown
    assert 'topic "no such name" does not exist in this cluster' in command(
        rack_cluster, "audit", "--topic", "no such name", code=2
    )


@pytest.mark.parametrize("where", ["topic", "broker", "everywhere"])
def test_a_throttle_that_was_left_is_found(
    rack_cluster: Cluster, admin: KafkaAdminClient, make_topic: MakeTopic, where: str
) -> None:
    topic = make_topic()
    resource: tuple[int, str, str, str] = {
        "topic": (ConfigResourceType.TOPIC, topic, THROTTLED[1], "*"),
        "broker": (ConfigResourceType.BROKER, "2", RATES[0], "100000000"),
        "everywhere": (ConfigResourceType.BROKER, "", RATES[1], "100000000"),
    }[where]
    named = {"topic": "1 topic,", "broker": "broker 2,", "everywhere": "all brokers,"}[where]

    def left() -> list[str]:
        findings = audit(with_rates(admin, describe_cluster_state(admin, [topic]))).findings
        return [finding.problem for finding in findings if finding.kind == "throttle-left"]

    assert left() == []
    configure(admin, *resource)
    try:
        told = f"a replication throttle is set for {named} but no reassignment is in progress"
        wait_until(lambda: left() == [told], "the throttle is found")
        words = ["audit", "--bootstrap-server", rack_cluster.bootstrap, "--topic", topic]
        # Each time another broker may be asked, that does not know it yet.
        wait_until(lambda: run(words) == 1, "the command finds it as well")
    finally:
        configure(admin, *resource[:3], None)
    wait_until(lambda: left() == [], "the throttle is gone")


def configure(admin: KafkaAdminClient, kind: int, name: str, key: str, value: str | None) -> None:
    """Set or unset a key; the host takes neither the default of all brokers nor a rate that is not set yet."""
    # A broker takes what is its own from nobody else.
    broker = int(name) if kind == ConfigResourceType.BROKER and name else None
    row = (key, 0 if value is not None else 1, value)
    (told,) = send(admin, IncrementalAlterConfigsRequest(resources=[(kind, name, [row])]), broker).responses
    assert told.error_code == 0, told
