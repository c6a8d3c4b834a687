"""Reassignments on real brokers, one run of each kind; `tests/simulation` has the orders of events."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from prometheus_client import CollectorRegistry, generate_latest

from rackassign import RackAwareConsumer, RackAwareCooperativeStickyAssignor, RackAwareProducer
from rackassign.admin.alter import ReassignmentAdmin
from rackassign.admin.describe import describe_topics, list_brokers
from rackassign.admin.raw_requests import forget_controller
from rackassign.model import TopicPartition
from rackassign.monitoring.prometheus import ProducerMetrics
from rackassign.placement.cluster_state import RATES, THROTTLED
from rackassign.placement.state_file import read as read_registry
from rackassign.testing import Cluster, LocalCluster, create_topic
from rackassign.testing.harness import TIMEOUT_S, wait_until
from rackassign.testing.pytest_plugin import MakeCluster, MakeTopic
from tests.helpers.exposition import parsed
from tests.helpers.kafka.command import rackassign
from tests.helpers.kafka.layout_states import fenced, moving
from tests.helpers.kafka.rack_group import RackGroup
from tests.helpers.kafka.scenarios import SOON
from tests.helpers.kafka.unregistration import unregister
from tests.helpers.machine_speed import machine_factor

pytestmark = [pytest.mark.brokers, pytest.mark.local]

RACKS = ("a", "b", "c", "a", "b", "a")
"""Three brokers, two and one; the first three are controllers."""

LOG_BYTES = 6_000_000
# So slow that what moves is still on its way when further commands have run, also on a busy machine.
SLOW, QUICK = str(round(30_000 / machine_factor())), "20M"

Command = Callable[..., Any]
Lists = dict[int, tuple[int, ...]]


@pytest.fixture(scope="module")
def six_brokers(rack_cluster_session: Cluster) -> Iterator[Cluster]:
    del rack_cluster_session  # it has seen to the jars, or skipped
    with LocalCluster(RACKS) as cluster:
        yield cluster


@pytest.fixture
def six(six_brokers: Cluster) -> Cluster:
    """All brokers, without a topic of earlier tests: commands are about the whole cluster."""
    six_brokers.start_all()
    with closing(KafkaAdminClient(bootstrap_servers=six_brokers.bootstrap)) as admin:

        def emptied() -> bool:
            left = [name for name in admin.list_topics() if not name.startswith("__")]
            if left:
                admin.delete_topics(left, raise_errors=False)
            return not left

        wait_until(emptied, "no topic of an earlier test")
    return six_brokers


@pytest.fixture
def admin(six: Cluster) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=six.bootstrap)) as made:
        yield made


def commands(bootstrap: str, home: Path) -> Command:
    """Return what runs a command, and returns what it prints as JSON."""

    def run(name: str, *words: str, code: int = 0) -> Any:
        return json.loads(rackassign(name, bootstrap, *words, "--output", "json", code=code, home=home).stdout)

    return run


def lists(admin: KafkaAdminClient, topic: str) -> Lists:
    return {number: row.replicas for number, row in enumerate(describe_topics(admin, [topic])[topic].partitions)}


def throttles(admin: KafkaAdminClient, topic: str) -> dict[str, str]:
    """Return all that slows replication down."""
    settings = ReassignmentAdmin(admin)
    return {**settings.cluster_configs(RATES), **settings.topic_configs([topic], THROTTLED)[topic]}


@pytest.fixture
def filled(six: Cluster, unique_name: Callable[[], str]) -> str:
    """Make a topic that takes a while to copy."""
    name = unique_name()
    create_topic(six.bootstrap, name, [[4], [5], [6]])
    with closing(KafkaProducer(bootstrap_servers=six.bootstrap)) as producer:
        for number in range(LOG_BYTES // 10_000):
            for partition in range(3):
                producer.send(name, os.urandom(10_000), partition=partition)
            if not number % 100:
                producer.flush()
        producer.flush()
    return name


def imported(tmp_path: Path, topic: str, wanted: Lists) -> tuple[str, str]:
    """Write lists as another tool does, and return the words that import them."""
    rows = [{"topic": topic, "partition": number, "replicas": list(row)} for number, row in wanted.items()]
    file = tmp_path / "given.json"
    file.write_text(json.dumps({"version": 1, "partitions": rows}))
    return "--reassignment-json-file", str(file)


@pytest.mark.long
def test_a_tool_that_was_killed_and_a_controller_that_died_leave_nothing_behind(
    six: Cluster, admin: KafkaAdminClient, filled: str, tmp_path: Path
) -> None:
    run, before = commands(six.bootstrap, tmp_path), lists(admin, filled)
    wanted: Lists = {0: (4, 5), 1: (5, 6), 2: (6, 5)}
    run("reassign plan", *imported(tmp_path, filled, wanted))
    words = ["reassign", "apply", "--bootstrap-server", six.bootstrap, "--throttle", SLOW]
    with subprocess.Popen([sys.executable, "-m", "rackassign", *words], cwd=tmp_path) as tool:
        wait_until(lambda: len(moving(admin)) == 3, "all on their way")
        tool.kill()

    def slow() -> bool:
        # The controller has them; the broker that is asked may not have heard of it yet.
        found = throttles(admin, filled)
        return found.keys() == {*RATES, *THROTTLED} and {found[key] for key in RATES} == {SLOW}

    wait_until(slow, "the throttle of what moves")
    left = run("audit", "--topic", filled, code=1)["findings"]
    assert "in-flight" in {finding["kind"] for finding in left}
    refused = rackassign("reassign plan", six.bootstrap, code=2, home=tmp_path)
    assert "is a plan in progress" in refused.stderr

    with subprocess.Popen(
        [sys.executable, "-m", "rackassign", *words[:-1], QUICK], cwd=tmp_path, stdout=subprocess.PIPE
    ) as again:
        six.kill(controller(admin))
        printed, _ = again.communicate(timeout=TIMEOUT_S)
        assert again.returncode == 0, printed
    wait_until(lambda: moving(admin) == {}, "nothing on its way")
    wait_until(lambda: lists(admin, filled) == wanted, "the lists that were planned")
    wait_until(lambda: throttles(admin, filled) == {}, "no throttle")

    undone = run("reassign rollback")
    assert (undone["done"], undone["phase"]) == (3, "rolled-back")
    assert lists(admin, filled) == before
    assert throttles(admin, filled) == {}


def controller(admin: KafkaAdminClient) -> int:
    """Return the broker whose controller is the active one."""
    forget_controller(admin)
    leader: int = admin.describe_metadata_quorum()["topics"][0]["partitions"][0]["leader_id"]
    return leader


@pytest.mark.parametrize(
    ("replicas", "local", "copies", "triggers"),
    [
        # One rack of the group has a copy of everything, the other gets one of what it reads: who reads what may stay.
        pytest.param([[1, 3], [3, 1]] * 3, 3, 3, 0, marks=pytest.mark.long),
        # Copies go to whoever reads a partition, so it may stay here too.
        ([[3]] * 6, 0, 6, 0),
    ],
)
def test_replicas_go_to_where_a_group_reads_and_its_watch_triggers_at_most_once(
    rack_cluster: Cluster,
    make_topic: MakeTopic,
    unique_name: Callable[[], str],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    replicas: list[list[int]],
    local: int,
    copies: int,
    triggers: int,
) -> None:
    watcher = "rackassign.clients.kafka_python.watcher"
    caplog.set_level("INFO", watcher)
    run = commands(rack_cluster.bootstrap, tmp_path)
    with RackGroup(rack_cluster.bootstrap, unique_name(), make_topic(replicas=replicas), replicas) as group:
        for name in ("a1", "b1"):
            strategy = [RackAwareCooperativeStickyAssignor(rack=name[0], rack_monitor=SOON)]
            group.start(name, RackAwareConsumer, partition_assignment_strategy=strategy, metadata_max_age_ms=300)
        assert group.local(group.settle()) == local
        planned = run("reassign plan", "--near-group", group.group)
        assert planned["group"]["coverage"] == {"a": 1, "b": 1, "c": 0}
        shares = [planned["group"][when]["local"] for when in ("now", "possible_now", "possible_after")]
        assert shares == [local, local, 6]
        assert (planned["copies"], planned["least_copies"]) == (copies, copies)
        words = [sys.executable, "-m", "rackassign", "reassign", "apply", "--bootstrap-server", group.bootstrap]
        with subprocess.Popen([*words, "--output", "json"], cwd=tmp_path, stdout=subprocess.PIPE) as tool:
            # The members are polled by this process.
            wait_until(lambda: bool(group.settle()) and tool.poll() is not None, "the end of the repair")
            assert tool.stdout is not None
            done = json.loads(tool.stdout.read())
        assert tool.returncode == 0
        assert done["group_partitions"] == {"local": 6, "cross": 0, "unknown": 0}
        group.replicas = list(lists(group.admin, group.topic).values())
        assert group.local(group.settle()) == 6
        assert all(
            set(row) & {1, 2} and len(row) == len(was) for row, was in zip(group.replicas, replicas, strict=True)
        )
    asked = [record.getMessage() for record in caplog.records if record.name == watcher]
    assert len(asked) == triggers
    assert all("makes 6 local instead of" in message for message in asked)


def written_from(bootstrap: str, topic: str, keys: Mapping[str, Sequence[bytes]]) -> str:
    """Write records with these keys, by rack of their producer, and return the metrics of the producers."""
    registry = CollectorRegistry()
    registry.register(metrics := ProducerMetrics(by_partition=True))
    with ExitStack() as producers:
        for rack, of_rack in keys.items():
            producer = RackAwareProducer(bootstrap_servers=bootstrap, client_rack=rack)
            producers.enter_context(closing(producer))
            metrics.add(producer)
            for key in of_rack:
                producer.send(topic, key.ljust(1000), key=key)
            producer.flush()
        return generate_latest(registry).decode()


def crossing(metrics: str) -> int:
    return round(
        sum(
            value
            for (name, labels), value in parsed(metrics).items()
            if name == "rackassign_written_bytes_total" and ("locality", "cross") in labels
        )
    )


@pytest.mark.long
def test_leaders_follow_the_keys_of_producers_and_the_prediction_is_what_is_then_measured(
    six: Cluster, admin: KafkaAdminClient, unique_name: Callable[[], str], tmp_path: Path
) -> None:
    run, topic = commands(six.bootstrap, tmp_path), unique_name()
    # One broker leads everything, and no partition has a replica in rack c.
    create_topic(six.bootstrap, topic, [[1, 2, 4], [1, 5, 6], [1, 2, 6], [1, 5, 4]] * 3)
    # Each rack has keys of its own, so most partitions are written from one rack more than from others.
    keys = {rack: [b"%s-%d" % (rack.encode(), number % 9) for number in range(90)] for rack in "abc"}
    before = written_from(six.bootstrap, topic, keys)
    (tmp_path / "metrics.txt").write_text(before)
    words: tuple[str, ...] = ("--topic", topic, "--near-producers", "metrics.txt")

    # Most partitions have two replicas in rack a: led from another rack, they are copied across racks twice.
    billed = run("balance-leaders", *words, "--max-skew", "2", "--dry-run")["producers"]["total"]
    assert billed["after"] + billed["copied_after"] <= billed["now"] + billed["copied_now"]
    words = (*words, "--cloud", "msk")
    tried = run("balance-leaders", *words, "--dry-run")
    led = run("balance-leaders", *words, "--max-skew", "2")
    assert led["producers"]["total"]["copied_after"] == 0

    assert tried["producers"]["total"]["now"] == led["producers"]["total"]["now"] == crossing(before)
    assert led["producers"]["total"]["after"] <= tried["producers"]["total"]["after"]
    assert led["copies"] == 0
    predicted, measured = led["producers"]["total"]["after"], crossing(written_from(six.bootstrap, topic, keys))
    assert predicted < crossing(before)
    assert abs(predicted - measured) <= 0.03 * measured

    moved = run("reassign plan", *words, "--max-skew", "12")

    assert (moved["producers"]["total"]["now"], moved["copies"] > 0) == (predicted, True)
    assert run("reassign apply")["failed"] == {}
    predicted, fewest = moved["producers"]["total"]["after"], crossing(written_from(six.bootstrap, topic, keys))
    assert predicted < measured
    assert abs(predicted - fewest) <= 0.03 * fewest
    run("reassign rollback")
    run("reassign rollback", "--plan-file", "rackassign-leaders.json")
    assert list(lists(admin, topic).values()) == [(1, 2, 4), (1, 5, 6), (1, 2, 6), (1, 5, 4)] * 3
    assert crossing(written_from(six.bootstrap, topic, keys)) == pytest.approx(crossing(before), rel=0.03)


@pytest.mark.release
def test_readers_that_are_sent_to_leaders_count_and_their_prediction_is_what_they_then_read(
    make_cluster: MakeCluster, unique_name: Callable[[], str], tmp_path: Path
) -> None:
    three = make_cluster(["a", "b", "c"], config={"replica.selector.class": None})
    run, topic, group = commands(three.bootstrap, tmp_path), unique_name(), unique_name()
    create_topic(three.bootstrap, topic, [[1, 2, 3]] * 6)
    keys = {rack: [b"%d" % number for number in range(60)] * count for rack, count in (("b", 2), ("c", 1))}
    setup = {"bootstrap_servers": three.bootstrap, "group_id": group, "auto_offset_reset": "earliest"}
    with closing(RackAwareConsumer(topic, **setup, client_rack="c")) as consumer:
        wait_until(lambda: consumer.poll(200) is not None and len(consumer.assignment()) == 6, "the assignment")
        before = written_from(three.bootstrap, topic, keys)
        (tmp_path / "metrics.txt").write_text(before)
        words = ("--topic", topic, "--near-producers", "metrics.txt", "--near-group", group)

        most = run("balance-leaders", *words, "--max-skew", "6", "--dry-run")["producers"]["total"]
        total = run("balance-leaders", *words)["producers"]["total"]

        # One of three bytes is written in the rack of the reader, and two in another one; each is read once.
        assert most["read_now"] == most["now"] == most["written"] == crossing(before)
        assert (most["read_after"], most["after"]) == (0, pytest.approx(2 / 3 * most["written"], rel=0.03))
        assert total["read_after"] > 0

        def read_across() -> int:
            """Read all there is, and return the bytes that crossed racks so far."""
            ends = consumer.end_offsets(consumer.assignment())

            def read_all() -> bool:
                consumer.poll(200)
                return all(consumer.position(tp) >= end for tp, end in ends.items())

            wait_until(read_all, "everything read")
            return consumer.locality().cross().bytes

        begin = read_across()
        measured = crossing(written_from(three.bootstrap, topic, keys))
        read = read_across() - begin

    assert total["after"] == pytest.approx(measured, rel=0.03)
    assert total["read_after"] == pytest.approx(read, rel=0.03)


@pytest.mark.release
def test_what_waits_for_a_broker_gets_it_when_one_comes(
    six: Cluster, admin: KafkaAdminClient, unique_name: Callable[[], str], tmp_path: Path
) -> None:
    """The only broker of a rack was thrown away before the topic was made, and a new one takes its place later."""
    run, name = commands(six.bootstrap, tmp_path), unique_name()
    for broker in (4, 5, 6):
        six.kill(broker)
    wait_until(lambda: fenced(admin) == [4, 5, 6], "the brokers are given up")
    for broker in (4, 5, 6):
        unregister(six, broker)
    wait_until(lambda: len(list_brokers(admin)) == 3, "three brokers are left")
    made = run(
        "create-topic",
        name,
        "--partitions",
        "2",
        "--replication-factor",
        "4",
        "--policy",
        "enabled",
        "--allow-placeholders",
    )
    assert made["placeholders"] == 2
    assert read_registry(tmp_path / "rackassign-state.json").plans.keys() == {
        TopicPartition(name, number) for number in range(2)
    }
    planned = run("reassign plan")
    assert planned["moves"] == {}
    assert planned["waiting"].keys() == {name}
    waited = run("reassign apply", "--wait-for-brokers", "1", code=1)
    assert (waited["done"], waited["waiting_replicas"]) == (0, 2)
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "rackassign",
            "reassign",
            "apply",
            "--bootstrap-server",
            six.bootstrap,
            "--wait-for-brokers",
            "600",
        ],
        cwd=tmp_path,
    ) as tool:
        six.start(5)
        assert tool.wait(TIMEOUT_S) == 0
    assert {len(row) for row in lists(admin, name).values()} == {4}
    assert read_registry(tmp_path / "rackassign-state.json").plans == {}
    undone = run("reassign rollback")
    assert (undone["done"], undone["phase"]) == (2, "rolled-back")
    assert {len(row) for row in lists(admin, name).values()} == {3}
