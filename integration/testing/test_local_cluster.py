"""Real brokers: up with their racks, down in every way, and nothing left afterwards."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from rackassign.errors import ClusterError
from rackassign.testing import LocalCluster, create_topic
from rackassign.testing import _local_cluster as local_cluster
from rackassign.testing._cluster import alive_brokers
from tests.helpers.processes import DEADLINE_S, alive, eventually

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = [pytest.mark.brokers, pytest.mark.local]


@pytest.fixture(scope="module")
def shared() -> Iterator[LocalCluster]:
    with LocalCluster(["a", "b", "c"]) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: LocalCluster) -> LocalCluster:
    shared.start_all()
    return shared


def seen_by(cluster: LocalCluster, broker_id: int, timeout_s: float = DEADLINE_S) -> frozenset[int]:
    broker = next(broker for broker in cluster.brokers if broker.id == broker_id)
    return alive_brokers(broker.host, broker.port, timeout_s)


def leaders(cluster: LocalCluster, topic: str) -> list[int]:
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        partitions = client.describe_topics([topic])[0]["partitions"]
    finally:
        client.close()
    return [p["leader_id"] for p in sorted(partitions, key=lambda p: p["partition_index"])]


def test_brokers_are_in_their_racks(cluster: LocalCluster) -> None:
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        described = client.describe_cluster()["brokers"]
    finally:
        client.close()
    found = sorted((b["broker_id"], b["rack"], b["host"], b["port"], b["is_fenced"]) for b in described)
    assert found == [(b.id, b.rack, b.host, b.port, False) for b in cluster.brokers]
    assert [b.rack for b in cluster.brokers] == ["a", "b", "c"]


@pytest.mark.release
def test_a_broker_whose_port_was_taken_is_started_again_with_a_warning_that_names_it(
    cluster: LocalCluster,
) -> None:
    port = next(broker.port for broker in cluster.brokers if broker.id == 2)
    warnings: list[str] = []
    cluster.stop(2)
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind(("127.0.0.1", port))
        stranger.listen()

        class Leaves(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                warnings.append(record.getMessage())
                stranger.close()

        handler = Leaves()
        log = logging.getLogger("rackassign.testing")
        log.addHandler(handler)
        try:
            cluster.start(2)
            cluster.wait_ready()
        finally:
            log.removeHandler(handler)
    (warning,) = warnings
    assert warning.startswith("broker 2 has ended with 1; another program uses one of its ports ")
    assert str(port) in warning
    assert warning.endswith("; it is started again")
    assert 2 in seen_by(cluster, 1)


def test_a_topic_is_led_and_kept_where_it_was_put(cluster: LocalCluster) -> None:
    create_topic(cluster.bootstrap, "placed", [[3, 1], [1, 2], [2, 3]], config={"retention.ms": "1000"})
    assert leaders(cluster, "placed") == [3, 1, 2]
    with pytest.raises(ClusterError, match="'placed' cannot be created: TopicAlreadyExists"):
        create_topic(cluster.bootstrap, "placed", [[1]])


def test_a_killed_broker_comes_back_as_it_was(cluster: LocalCluster) -> None:
    create_topic(cluster.bootstrap, "kept", [[1, 2, 3]])
    before, pid = cluster.brokers, cluster.pids[1]
    cluster.kill(1)
    cluster.kill(1)
    assert not alive(pid)
    cluster.wait_ready()
    cluster.start(1)
    cluster.wait_ready()
    assert cluster.brokers == before
    assert cluster.pids[1] != pid
    assert seen_by(cluster, 1) == {1, 2, 3}
    assert len(leaders(cluster, "kept")) == 1


@pytest.mark.long
def test_a_broker_that_does_not_shut_down_in_time_is_killed_with_a_warning(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(local_cluster, "_STOP_TIMEOUT_S", 0.0)
    pid = cluster.pids[3]
    cluster.stop(3)
    assert not alive(pid)
    assert [record.message for record in caplog.records if record.name == local_cluster.__name__] == [
        "broker 3 has not shut down within 0 s, and is killed"
    ]


def test_a_stopped_rack_hands_over_and_comes_back(cluster: LocalCluster) -> None:
    create_topic(cluster.bootstrap, "handed-over", [[2, 3], [2, 1]])
    cluster.stop_rack("b")
    assert eventually(lambda: seen_by(cluster, 1) == {1, 3})
    cluster.start_rack("b")
    cluster.wait_ready()
    assert seen_by(cluster, 2) == {1, 2, 3}


def test_a_paused_broker_is_fenced_and_recovers(cluster: LocalCluster) -> None:
    def is_silent() -> bool:
        try:
            seen_by(cluster, 3, timeout_s=0.2)
        except TimeoutError:
            return True
        return False

    cluster.pause(3)
    # A process may go on for a moment after it was told to stop.
    assert eventually(is_silent)
    assert eventually(lambda: seen_by(cluster, 1) == {1, 2})
    cluster.wait_ready()
    cluster.resume_rack("c")
    cluster.wait_ready()
    assert seen_by(cluster, 3) == {1, 2, 3}


@pytest.mark.long
def test_a_broker_that_dies_by_itself_is_reported_with_its_log(cluster: LocalCluster) -> None:
    os.kill(cluster.pids[2], signal.SIGKILL)
    assert eventually(lambda: 2 not in cluster.pids)
    with pytest.raises(ClusterError, match=r"(?s)broker 2 has ended with -9; .*Kafka Server started"):
        cluster.wait_ready()
    cluster.start_all()
    assert seen_by(cluster, 2) == {1, 2, 3}


@pytest.mark.long
def test_clusters_run_side_by_side_and_close_leaves_nothing(cluster: LocalCluster) -> None:
    steps: list[str] = []
    with LocalCluster([None], progress=lambda progress: steps.append(progress.step)) as other:
        # Kafka's tools run before the brokers at the first starts, which takes a while.
        assert [step.partition(" ")[0] for step in steps] == ["Preparing", "Starting", "Brokers"]
        (lone,) = other.brokers
        assert lone.rack is None
        assert alive_brokers(lone.host, lone.port, DEADLINE_S) == {1}
        assert seen_by(cluster, 1) == {1, 2, 3}
        assert lone.port not in {broker.port for broker in cluster.brokers}
        create_topic(other.bootstrap, "elsewhere", [[1]])
        pids, home = other.pids, home_of(other)
        assert home.is_dir()
    assert not any(alive(pid) for pid in pids.values())
    assert not home.exists()
    other.close()


def home_of(cluster: LocalCluster) -> Path:
    return next(iter(cluster._specs.values())).directory.parent


def test_a_failed_start_shows_the_brokers_last_words() -> None:
    with (
        pytest.raises(ClusterError, match=r"(?s)broker 1 has ended with 1; .*Invalid value 1 for .*segment.bytes"),
        LocalCluster(["a"], config={"log.segment.bytes": "1"}),
    ):
        pytest.fail("it has started")


FIXTURE_USERS = """
def test_breaks(rack_cluster):
    assert [broker.rack for broker in rack_cluster.brokers] == ["a", None]
    rack_cluster.pause(2)
    rack_cluster.stop(2)

def test_finds_it_whole(rack_cluster, make_topic, unique_name):
    assert set(rack_cluster.pids) == {1, 2}
    topic = make_topic(2)
    assert topic.startswith("test-finds-it-whole-")
    assert make_topic(replicas=[[2]]) != topic
    assert unique_name() != unique_name()
"""


@pytest.mark.release
def test_fixtures_give_every_test_a_whole_cluster(tmp_path: Path) -> None:
    (tmp_path / "test_users.py").write_text(FIXTURE_USERS, "utf-8")
    # The arguments keep the outer run's settings and cache out of it.
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider", "--rootdir"]
    ran = subprocess.run(
        [*command, str(tmp_path), "--rack-cluster-racks", "a,", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.docs
def test_the_project_to_copy_passes(tmp_path: Path) -> None:
    project = shutil.copytree(EXAMPLES / "tests_on_brokers", tmp_path / "project")
    paths = os.pathsep.join(path for path in sys.path if path)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "4 passed" in ran.stdout


OWNER = """
import sys, time
from rackassign.testing import LocalCluster
cluster = LocalCluster(["a"])
if "early" in sys.argv:
    cluster.wait_ready = lambda timeout_s: (print(cluster.pids[1], flush=True), time.sleep(600))
with cluster:
    print(cluster.pids[1], flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT], ids=str)
@pytest.mark.parametrize("when", ["early", "late"])
def test_nothing_survives_the_owner(ending: signal.Signals, when: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, when], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as owner:
        assert owner.stdout
        pid = int(owner.stdout.readline())
        home = Path(f"/proc/{pid}/cwd").readlink().parent
        assert home.is_dir()
        owner.send_signal(ending)
    assert owner.returncode == -ending
    assert eventually(lambda: not alive(pid))
    assert eventually(lambda: not home.exists())


@pytest.mark.release
def test_an_archive_of_classes_that_does_not_fit_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "classes.jsa"
    archive.write_bytes(b"not an archive" * 1000)
    monkeypatch.setattr("rackassign.testing._local_cluster.class_archive", lambda _: archive)
    with LocalCluster(["a"]) as cluster:
        assert sorted(cluster.pids) == [1]
