"""Brokers in containers: the same cluster as on this machine's own processes, and nothing left of a crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from rackassign.errors import ClusterError, MissingExtraError
from rackassign.testing import create_topic
from rackassign.testing._cluster import alive_brokers
from rackassign.testing._docker_cluster import DockerCluster, find_image, sweep
from rackassign.testing.docker_resources import connect
from tests.helpers.processes import DEADLINE_S, eventually

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def image() -> str:
    try:
        return find_image()
    except (ClusterError, MissingExtraError) as error:
        if os.environ.get("CI", "").lower() == "true":
            raise
        pytest.skip(f"no docker Kafka: {error}")


@pytest.fixture(scope="module")
def shared(image: str) -> Iterator[DockerCluster]:
    with DockerCluster(["a", "b", "c"], image=image) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: DockerCluster) -> DockerCluster:
    shared.start_all()
    return shared


@pytest.fixture(scope="module")
def engine(image: str) -> Iterator[Any]:
    assert image
    client = connect()
    yield client
    client.close()


def seen_by(cluster: DockerCluster, broker_id: int, timeout_s: float = DEADLINE_S) -> frozenset[int]:
    broker = next(broker for broker in cluster.brokers if broker.id == broker_id)
    return alive_brokers(broker.host, broker.port, timeout_s)


def run_of(cluster: DockerCluster) -> str:
    assert cluster._resources
    return cluster._resources._owner.run


def left_of(engine: Any, run: str) -> tuple[int, int]:
    """How many containers and networks of a run there are."""
    wanted = {"label": f"rackassign.run={run}"}
    return len(engine.containers.list(all=True, filters=wanted)), len(engine.networks.list(filters=wanted))


def test_brokers_are_in_their_racks(cluster: DockerCluster) -> None:
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        described = client.describe_cluster()["brokers"]
    finally:
        client.close()
    found = sorted((b["broker_id"], b["rack"], b["host"], b["port"], b["is_fenced"]) for b in described)
    assert found == [(b.id, b.rack, b.host, b.port, False) for b in cluster.brokers]
    assert [b.rack for b in cluster.brokers] == ["a", "b", "c"]


def test_ports_are_published_on_loopback_only(cluster: DockerCluster, engine: Any) -> None:
    containers = engine.containers.list(filters={"label": f"rackassign.run={run_of(cluster)}"})
    published = [bound for container in containers for ports in container.ports.values() for bound in ports or ()]
    assert sorted((bound["HostIp"], int(bound["HostPort"])) for bound in published) == sorted(
        (broker.host, broker.port) for broker in cluster.brokers
    )
    assert {broker.host for broker in cluster.brokers} == {"127.0.0.1"}


def test_a_killed_broker_comes_back_with_its_port_and_its_data(cluster: DockerCluster) -> None:
    # Its only replica is on the broker that dies.
    create_topic(cluster.bootstrap, "kept", [[1]])
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap)
    try:
        producer.send("kept", b"here still").get(timeout=DEADLINE_S)
    finally:
        producer.close()
    before = cluster.brokers
    cluster.kill(1)
    cluster.kill(1)
    with pytest.raises(ConnectionError):
        seen_by(cluster, 1)
    cluster.wait_ready()
    cluster.start(1)
    cluster.wait_ready()
    assert cluster.brokers == before
    assert seen_by(cluster, 1) == {1, 2, 3}
    consumer = KafkaConsumer(
        "kept", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=DEADLINE_S * 1000
    )
    try:
        assert next(consumer).value == b"here still"
    finally:
        consumer.close()


@pytest.mark.long
def test_a_paused_broker_is_fenced_and_recovers(cluster: DockerCluster) -> None:
    cluster.pause(3)
    with pytest.raises(TimeoutError):
        seen_by(cluster, 3, timeout_s=0.2)
    assert eventually(lambda: seen_by(cluster, 1) == {1, 2})
    cluster.wait_ready()
    cluster.resume_rack("c")
    cluster.wait_ready()
    assert seen_by(cluster, 3) == {1, 2, 3}


@pytest.mark.long
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_paused_broker_can_be_ended(cluster: DockerCluster, end: str) -> None:
    cluster.pause(2)
    getattr(cluster, end)(2)
    cluster.start(2)
    cluster.wait_ready()
    assert seen_by(cluster, 2) == {1, 2, 3}


@pytest.mark.long
def test_a_stopped_rack_hands_over_and_comes_back(cluster: DockerCluster) -> None:
    cluster.stop_rack("b")
    assert eventually(lambda: seen_by(cluster, 1) == {1, 3})
    with pytest.raises(ClusterError, match="broker 2 cannot be paused: it is down"):
        cluster.pause(2)
    cluster.start_rack("b")
    cluster.wait_ready()
    assert seen_by(cluster, 2) == {1, 2, 3}


@pytest.mark.long
def test_a_broker_that_dies_by_itself_is_reported_with_its_log(cluster: DockerCluster) -> None:
    cluster._containers[2].kill()
    with pytest.raises(ClusterError, match=r"(?s)broker 2 has ended with 137; .*Kafka Server started"):
        cluster.wait_ready()
    cluster.start_all()
    assert seen_by(cluster, 2) == {1, 2, 3}


@pytest.mark.long
def test_a_failed_start_shows_the_broker_s_last_words_and_leaves_nothing(image: str, engine: Any) -> None:
    failing = DockerCluster(["a"], image=image, config={"log.segment.bytes": "1"})
    run = ""

    def remember(timeout_s: float) -> None:
        nonlocal run
        run = run_of(failing)
        DockerCluster.wait_ready(failing, timeout_s)

    failing.wait_ready = remember  # type: ignore[assignment]
    with pytest.raises(ClusterError, match=r"(?s)broker 1 has ended with 1; .*Invalid value 1 for .*segment.bytes"):
        failing.start_all()
    assert run
    assert left_of(engine, run) == (0, 0)


@pytest.mark.long
def test_clusters_run_side_by_side_and_close_leaves_nothing(cluster: DockerCluster, image: str, engine: Any) -> None:
    with DockerCluster([None], image=image) as other:
        (lone,) = other.brokers
        assert lone.rack is None
        assert alive_brokers(lone.host, lone.port, DEADLINE_S) == {1}
        assert seen_by(cluster, 1) == {1, 2, 3}
        run = run_of(other)
        assert left_of(engine, run) == (1, 1)
    assert left_of(engine, run) == (0, 0)
    other.close()
    with pytest.raises(ClusterError, match="not running"):
        other.log_tail(1)


OWNER = """
import sys, time
from rackassign.testing._docker_cluster import DockerCluster
cluster = DockerCluster(["a", "b"], image=sys.argv[1])
if "early" in sys.argv:
    cluster.wait_ready = lambda timeout_s: (print(cluster._resources._owner.run, flush=True), time.sleep(600))
with cluster:
    print(cluster._resources._owner.run, flush=True)
    time.sleep(600)
"""


@pytest.mark.long
@pytest.mark.parametrize("when", ["early", "late"])
def test_what_a_killed_owner_leaves_is_swept_by_the_next_start(
    cluster: DockerCluster, image: str, engine: Any, when: str
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, image, when], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as owner:
        assert owner.stdout
        run = owner.stdout.readline().strip()
        sweep()
        assert left_of(engine, run) == (2, 1)
        owner.kill()
    # A start of another worker may have swept it by now.
    assert left_of(engine, run) in {(2, 1), (0, 0)}
    with DockerCluster(["a"], image=image):
        assert left_of(engine, run) == (0, 0)
    # And never what a live one has.
    assert seen_by(cluster, 1) == {1, 2, 3}


@pytest.mark.long
def test_an_owner_told_to_end_cleans_up(image: str, engine: Any) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, image, "early"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as owner:
        assert owner.stdout
        run = owner.stdout.readline().strip()
        owner.send_signal(signal.SIGINT)
    assert left_of(engine, run) == (0, 0)
