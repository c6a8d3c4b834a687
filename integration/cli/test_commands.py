"""`demo` and `cluster` as a user runs them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from rackassign.testing import LocalCluster, cache_dir
from rackassign.testing.harness import wait_until

pytestmark = [pytest.mark.brokers, pytest.mark.local]

RACKASSIGN = [sys.executable, "-m", "rackassign"]


@pytest.fixture
def cache(rack_cluster_session: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, so that what is left behind can be seen; the jars are those fetched before."""
    del rack_cluster_session  # it has seen to the jars, or skipped
    ours = tmp_path / "cache"
    ours.mkdir()
    (ours / "jars").symlink_to(cache_dir() / "jars")
    monkeypatch.setenv("RACKASSIGN_CACHE", str(ours))
    return ours


def clusters(cache: Path) -> list[str]:
    """Return what is there of clusters, dead or alive."""
    return [path.name for path in cache.glob("clusters/*") if path.name != "lock"]


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
    assert "nothing to gain" in done.stdout
    assert "Reading it with three consumers" in done.stderr
    assert clusters(cache) == []


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
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert (out, "Traceback" in err) == ("", False)
    wait_until(lambda: clusters(cache) == [], "the cluster gone")


def test_a_cluster_goes_up_and_down(cache: Path) -> None:
    up = [*RACKASSIGN, "cluster", "up", "--racks", "x,,x", "--output", "json"]
    with subprocess.Popen(up, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        cluster = json.loads(process.stdout.readline())
        admin = KafkaAdminClient(bootstrap_servers=cluster["bootstrap"])
        racks = {broker["broker_id"]: broker["rack"] for broker in admin.describe_cluster()["brokers"]}
        admin.close()
        assert racks == {1: "x", 2: None, 3: "x"}
        assert [broker["rack"] for broker in cluster["brokers"]] == ["x", None, "x"]

        again = subprocess.run(up, capture_output=True, check=False, text=True)
        assert again.returncode == 2
        assert "is up already" in again.stderr

        subprocess.run([*RACKASSIGN, "cluster", "down"], check=True)
        assert process.wait(60) == 0
    wait_until(lambda: clusters(cache) == [], "the cluster gone")
    assert subprocess.run([*RACKASSIGN, "cluster", "down"], stderr=subprocess.DEVNULL, check=False).returncode == 1
