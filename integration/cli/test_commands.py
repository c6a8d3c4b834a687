"""`demo` and `cluster` as a user runs them."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient

from rackassign.testing import KAFKA_VERSION, LocalCluster, cache_dir
from rackassign.testing.harness import TIMEOUT_S, wait_until
from tests.helpers.json_schemas import parsed

pytestmark = [pytest.mark.brokers, pytest.mark.local]

RACKASSIGN = [sys.executable, "-m", "rackassign"]


@pytest.fixture
def cache(rack_cluster_session: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, so that what is left behind can be seen; the jars are those fetched before.

    Ports are reserved beside the clusters of other tests, one of whose brokers may be down for a moment.
    """
    del rack_cluster_session  # it has seen to the jars, or skipped
    ours = tmp_path / "cache"
    ours.mkdir()
    for shared in ("jars", "ports"):
        (ours / shared).symlink_to(cache_dir() / shared)
    monkeypatch.setenv("RACKASSIGN_CACHE", str(ours))
    return ours


def clusters(cache: Path) -> list[str]:
    """Return what is there of clusters, dead or alive."""
    return [path.name for path in cache.glob("clusters/*") if path.name != "lock"]


@pytest.mark.release
def test_the_demo_shows_measured_shares_and_leaves_nothing(cache: Path) -> None:
    done = subprocess.run([*RACKASSIGN, "demo", "--price-per-gb", "0.01"], capture_output=True, check=True, text=True)
    rows = re.findall(r"│ (\S+ \w+) +│ +([\d.]+)% │ +(\d+) USD │ +(\d) │", done.stdout)
    assert [(name, local, cost) for name, local, cost, _ in rows] == [
        ("kafka-python range", "66.7", "333"),
        ("kafka-python cooperative", "66.7", "333"),
        # The greedy algorithm of KIP-881 leaves something to be had.
        ("rackassign range", "88.9", "111"),
        ("rackassign cooperative", "100.0", "0"),
        ("kafka-python range", "100.0", "0"),
        ("kafka-python cooperative", "100.0", "0"),
        ("rackassign range", "100.0", "0"),
        ("rackassign cooperative", "100.0", "0"),
    ]
    # Nine partitions of three members: the fourth must get two.
    assert [int(moved) for *_, moved in rows[3::4]] == [2, 2]
    halves = re.findall(r"│ \w+Producer, \w+Consumer.* +│ +([\d.]+)% │ +([\d.]+)% │ +([\d,]+) USD │", done.stdout)
    assert [read for _, read, _ in halves] == ["33.3", "0.0"]
    # Without a key kafka-python writes to any partition.
    assert 50 < float(halves[0][0]) < 80
    assert (halves[1][0], halves[1][2]) == ("0.0", "0")
    assert "nothing to gain" in done.stdout
    assert "Reading it with three consumers" in done.stderr
    assert clusters(cache) == []


@pytest.mark.release
def test_ctrl_c_ends_the_demo_and_leaves_nothing(cache: Path) -> None:
    with subprocess.Popen(
        [*RACKASSIGN, "demo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("Reading it"):
                break
        # As a terminal does: to the whole foreground group.
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert (out, "Traceback" in err) == ("", False)
    wait_until(lambda: clusters(cache) == [], "the cluster gone")


def cluster(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RACKASSIGN, "cluster", *words], capture_output=True, check=False, text=True)


@contextmanager
def running(words: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Run `cluster up` while the block lasts; end it if the block fails."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


@pytest.mark.long
def test_a_cluster_goes_up_and_down_at_the_same_ports(cache: Path, first_port: int) -> None:
    up = [*RACKASSIGN, "cluster", "up", "--racks", "x,,x", "--output", "json", "--port", str(first_port)]
    up += ["--create-topic", "orders:12:2", "--create-topic", "one"]
    with running(up) as process:
        assert process.stdout is not None
        shown = parsed("cluster up", process.stdout.readline())
        admin = KafkaAdminClient(bootstrap_servers=f"localhost:{first_port}")
        racks = {broker["broker_id"]: broker["rack"] for broker in admin.describe_cluster()["brokers"]}
        described = {topic["name"]: topic["partitions"] for topic in admin.describe_topics(["orders", "one"])}
        admin.close()
        assert racks == {1: "x", 2: None, 3: "x"}
        assert [broker["rack"] for broker in shown["brokers"]] == ["x", None, "x"]
        assert {broker["kafka_version"] for broker in shown["brokers"]} == {KAFKA_VERSION}
        assert [broker["port"] for broker in shown["brokers"]] == [first_port, first_port + 1, first_port + 2]
        assert {name: len(partitions) for name, partitions in described.items()} == {"orders": 12, "one": 1}
        assert {len(p["replica_nodes"]) for p in described["orders"]} == {2}

        again = cluster("up")
        assert again.returncode == 2
        assert "is up already" in again.stderr

        second = [*RACKASSIGN, "cluster", "up", "--name", "second", "--port", str(first_port + 2), "--output", "json"]
        second += ["--kafka-version", "4.4,3.9,4.0.2"]
        with running(second) as other:
            assert other.stdout is not None
            assert other.stderr is not None
            brokers = json.loads(other.stdout.readline())["brokers"]
            assert [broker["kafka_version"] for broker in brokers] == ["4.4.0", "3.9.2", "4.0.2"]
            ports = [broker["port"] for broker in brokers]
            assert ports[1:] == [first_port + 3, first_port + 4]
            assert cluster("down", "--name", "second").returncode == 0
            warning = f"rackassign: port {first_port + 2} is not free (another test cluster has it): broker 1 has port"
            assert f"{warning} {ports[0]}\n" in other.stderr.read()

        assert cluster("down").returncode == 0
        assert process.wait(TIMEOUT_S) == 0
    wait_until(lambda: clusters(cache) == [], "the cluster gone")
    assert list(cache.glob("up/*")) == []
    down = cluster("down")
    assert (down.returncode, down.stderr) == (1, "rackassign: no cluster 'default' is up\n")
    assert list(cache.glob("up/*")) == []


@pytest.mark.release
def test_a_demo_group_shows_what_can_be_saved_and_survives_the_loss_of_a_rack(cache: Path, first_port: int) -> None:
    up = [*RACKASSIGN, "cluster", "up", "--with-demo-group", "--port", str(first_port)]
    with running(up) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        named = next(line for line in iter(process.stdout.readline, "") if "rackassign inspect" in line)
        assert named == f"  rackassign inspect --bootstrap-server localhost:{first_port} --all-groups\n"
        inspect = [*RACKASSIGN, *shlex.split(named)[1:], "--interval", "4", "--output", "json"]

        def group() -> dict[str, Any]:
            done = subprocess.run(inspect, capture_output=True, check=False, text=True)
            # While it rebalances, a group is among those that are skipped; 3 is that there is no reliable answer.
            assert done.returncode in {0, 3}, done.stderr
            groups = json.loads(done.stdout)["groups"] if done.returncode == 0 else []
            return next(iter(groups), {"members": [], "partitions": {}, "bytes_per_second": {"cross": 0}})

        found: dict[str, Any] = {}

        def written() -> bool:
            # On a busy machine nothing may have been written meanwhile.
            found.update(group())
            return bool(found["bytes_per_second"]["cross"] > 0)

        wait_until(written, "a look at the group while records are written")
        assert (found["group"], found["partitions"]) == ("billing", {"local": 6, "cross": 3, "unknown": 0})
        assert [s["partitions"]["local"] for s in found["strategies"] if s["strategy"] == "cooperative-sticky"] == [9]
        assert found["bytes_per_second"]["cross"] < 250_000

        wrong = cluster("kill-rack", "z")
        assert (wrong.returncode, wrong.stderr) == (2, "rackassign: no rack 'z': the cluster has 'a', 'b', 'c'\n")
        killed = cluster("kill-rack", "c", "--output", "json")
        assert parsed("cluster kill-rack", killed.stdout) == {"rack": "c", "changed": [3], "running": [1, 2]}
        twice = cluster("kill-rack", "c")
        assert (twice.returncode, twice.stderr) == (1, "rackassign: rack 'c' is down already\n")
        wait_until(lambda: len(group()["members"]) == 3, "the group to go on")
        started = cluster("start-rack", "c")
        assert (started.returncode, started.stdout) == (0, "rack c: broker 3 started; up are 1, 2, 3\n")
        wait_until(lambda: group()["partitions"].get("local") == 6, "all replicas in sync")

        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "Up; Ctrl-C ends it"
    wait_until(lambda: clusters(cache) == [], "the cluster gone")
    assert list(cache.glob("up/*")) == []


@pytest.mark.release
def test_what_a_killed_owner_leaves_does_not_matter(cache: Path, first_port: int) -> None:
    up = [*RACKASSIGN, "cluster", "up", "--racks", "a", "--port", str(first_port), "--output", "json"]
    with running(up) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    for words in (("kill-rack", "a"), ("start-rack", "a"), ("down",)):
        done = cluster(*words)
        assert (done.returncode, done.stderr) == (1, "rackassign: no cluster 'default' is up\n")
    wait_until(lambda: clusters(cache) == [], "the cluster gone")
    with running(up) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["brokers"][0]["port"] == first_port
        assert cluster("down").returncode == 0
        assert process.wait(TIMEOUT_S) == 0
