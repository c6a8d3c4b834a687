"""The bill beside what the kernel counts, and its levers pulled one by one with the commands that it prints."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rackassign.testing import Cluster, create_topic
from rackassign.testing._broker_config import BrokerSpec, broker_command
from rackassign.testing._jars import Jar, fetched
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeCluster
from tests.helpers import json_schemas
from tests.helpers.kafka.billed_clients import RECORD_BYTES
from tests.helpers.kafka.command import rackassign
from tests.helpers.kernel_traffic import ConnectionBytes

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.long]

AGENT = Jar(
    "io.prometheus.jmx:jmx_prometheus_javaagent:1.0.1",
    2_886_599,
    "7d61f737fd661610ccc14aea79764faa1ea94a340cbc8f0029b3d2edea3d80c1",
)
RACKS = ("a", "b", "c")
TOPICS = {"three": 3, "two": 2, "one": 1}
WRITES: dict[str, list[tuple[str, bool, int]]] = {
    "a": [("three", True, 80)],
    "b": [("two", True, 80)],
    "c": [("one", False, 80)],
}
"""By rack of the producer: topic, whether records have keys, and records per second."""

GROUPS = {"of-three": "three", "of-two": "two", "of-one": "one"}
RATES = {topic: RECORD_BYTES * float(rate) for written in WRITES.values() for topic, _, rate in written}
"""Bytes per second that are written to each topic."""

SECONDS = 25.0
SHARE = 0.1
"""Differences that are allowed: 1 to 3 % are seen where nothing else runs. Beside other tests producers send in bursts,
and the two windows are not the same second. What is counted twice or not at all differs by more."""

ATTEMPTS = 5
REQUESTS = 10_000.0
"""Bytes per second of requests and responses without records, at the most."""


def free_ports(number: int) -> list[int]:
    with ExitStack() as open_:
        sockets = [open_.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class Look(NamedTuple):
    """Bytes that the kernel has counted: by rack of clients and port, sent and received; by broker and port."""

    at_s: float
    clients: Mapping[str, Mapping[str, Mapping[str, int]]]
    brokers: Mapping[int, Mapping[int, int]]


class Counted(NamedTuple):
    """Bytes per second of each line across racks, by the kernel, and of values of each topic and group, by clients."""

    across: dict[str, float]
    values: dict[str, float]


class Rig:
    """A cluster with traffic, its meters, and the addresses of its metrics."""

    def __init__(self, cluster: Cluster, agents: Sequence[int], folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.clients: dict[str, subprocess.Popen[str]] = {}
        self.ports = dict(zip(RACKS, free_ports(len(RACKS)), strict=True))
        self._meters = {broker: ConnectionBytes(pid) for broker, pid in cluster.pids.items()}  # type: ignore[attr-defined]
        self._rack_of_port = {str(broker.port): broker.rack for broker in cluster.brokers}
        self.producers = [f"http://127.0.0.1:{port}/metrics" for port in self.ports.values()]
        self.agents = [f"http://127.0.0.1:{port}/metrics" for port in agents]

    def start(self, *, near: bool, aware: bool) -> None:
        for rack, port in self.ports.items():
            consume = [[group, topic, near, aware] for group, topic in GROUPS.items()]
            options = {"rack": rack, "bootstrap": self.cluster.bootstrap, "port": port, "produce": WRITES[rack]}
            words = [
                sys.executable,
                "-m",
                "tests.helpers.kafka.billed_clients",
                json.dumps({**options, "consume": consume}),
            ]
            self.clients[rack] = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for client in self.clients.values():
            assert client.stdout is not None
            assert client.stdout.readline() == "started\n"
        fetchers = ["*"] if near else []
        racks = {"client_ids": {f"*-{rack}": rack for rack in RACKS}, "follower_fetchers": fetchers}
        (self.folder / "racks.json").write_text(json.dumps(racks), "utf-8")
        wait_until(self._settled, "three groups of three members that read", timeout_s=600)

    def stop(self) -> None:
        for client in self.clients.values():
            assert client.stdin is not None
            client.stdin.close()
        for client in self.clients.values():
            client.wait(60)
            assert client.stdout is not None
            client.stdout.close()
        self.clients = {}

    def close(self) -> None:
        self.stop()
        for meter in self._meters.values():
            meter.close()

    def _settled(self) -> bool:
        done = rackassign("inspect", self.cluster.bootstrap, "--all-groups", "--output", "json", "--interval", "0")
        groups = json.loads(done.stdout)["groups"]
        return len(groups) == len(GROUPS) and all(
            group["state"] == "Stable" and len(group["members"]) == len(RACKS) and not group["unassigned"]
            for group in groups
        )

    def run(self, *printed: str) -> None:
        """Run commands as the bill has printed them."""
        for line in printed:
            program, *words = shlex.split(line)
            command = [sys.executable, "-m", program, *words]
            done = subprocess.run(command, capture_output=True, check=False, cwd=self.folder, text=True)
            assert done.returncode == 0, done.stderr

    def look(self) -> Look:
        clients = {}
        for rack, client in self.clients.items():
            assert client.stdin is not None
            assert client.stdout is not None
            client.stdin.write("\n")
            client.stdin.flush()
            clients[rack] = json.loads(client.stdout.readline())
        return Look(time.monotonic(), clients, {broker: meter.look() for broker, meter in self._meters.items()})

    def counted(self, before: Look, after: Look) -> Counted:
        seconds = after.at_s - before.at_s
        across = dict.fromkeys(("replicating", "producing", "consuming"), 0.0)
        for port, rack_of_port in self._rack_of_port.items():
            for rack in RACKS:
                if rack != rack_of_port:
                    for line, way in (("producing", "sent"), ("consuming", "received")):
                        came = after.clients[rack][way].get(port, 0) - before.clients[rack][way].get(port, 0)
                        across[line] += came / seconds
            for broker in self.cluster.brokers:
                if broker.rack != rack_of_port:
                    came = after.brokers[broker.id].get(int(port), 0) - before.brokers[broker.id].get(int(port), 0)
                    across["replicating"] += came / seconds
        values = {
            name: sum(after.clients[r]["values"].get(name, 0) - before.clients[r]["values"].get(name, 0) for r in RACKS)
            for name in (*TOPICS, *GROUPS)
        }
        return Counted(across, {name: size / seconds for name, size in values.items()})

    def reads_locally(self) -> bool:
        before = self.look()
        time.sleep(2)
        return self.counted(before, self.look()).across["consuming"] < REQUESTS

    def bill(self) -> tuple[dict[str, Any], Counted]:
        """Return a bill, and what the kernel has counted meanwhile."""
        words = ["--interval", str(SECONDS), "--output", "json", "--rack-map", str(self.folder / "racks.json")]
        words += [word for url in self.producers for word in ("--producers", url)]
        words += [word for url in self.agents for word in ("--broker-metrics", url)]
        words = [sys.executable, "-m", "rackassign", "bill", "--bootstrap-server", self.cluster.bootstrap, *words]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            assert running.stderr is not None
            looks, shown = [], ""
            for line in running.stderr:
                shown += line
                # The steps that it shows are when it begins and ends to measure.
                if line.startswith(("Measuring", "Describing")):
                    looks.append(self.look())
            found = running.stdout.read()
        assert running.returncode == 0, shown
        _, before, after = looks
        return json_schemas.parsed("bill", found), self.counted(before, after)


@pytest.fixture
def rig(make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Rig]:
    (jar,) = fetched([AGENT])
    rules, ports = tmp_path / "jmx.yml", free_ports(len(RACKS))
    rules.write_text("{includeObjectNames: ['kafka.server:*'], rules: [{pattern: '.*'}]}\n", "utf-8")

    def with_agent(java: Path, version: str, jars: Sequence[Path], spec: BrokerSpec, *options: str) -> list[str]:
        return broker_command(java, version, jars, spec, *options, f"-javaagent:{jar}={ports[spec.id - 1]}:{rules}")

    monkeypatch.setattr("rackassign.testing._local_cluster.broker_command", with_agent)
    before = os.getpriority(os.PRIO_PROCESS, 0)
    # With other tests beside it clients would be late for minutes. Brokers and clients inherit this; root may do it.
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    cluster = make_cluster(RACKS)
    for topic, replicas in TOPICS.items():
        create_topic(cluster.bootstrap, topic, [[(p + i) % 3 + 1 for i in range(replicas)] for p in range(9)])
    made = Rig(cluster, ports, tmp_path)
    yield made
    made.close()
    os.setpriority(os.PRIO_PROCESS, 0, before)


def amounts(bill: Mapping[str, Any], lever: str = "") -> dict[str, float]:
    """Return bytes per second of each line, now or after a lever."""
    rows = {
        line["line"]: line if not lever else next(each for each in line["after"] if each["lever"] == lever)
        for line in bill["lines"]
    }
    spans = {line: row["bytes_per_second"] for line, row in rows.items()}
    # Logs and producers are not read at the same moment, and what the logs have more is of unknown producers.
    unsure = {line for line, span in spans.items() if span["at_most"] - span["at_least"] > SHARE * span["at_most"]}
    assert not unsure, [item for item in bill["items"] if item["line"] in unsure]
    return {line: span["at_most"] for line, span in spans.items()}


def check(found: Mapping[str, float], expected: Mapping[str, float]) -> None:
    """Fail unless each line is what is expected; of lines that are nothing, requests and responses are left."""
    for line, size in expected.items():
        assert found[line] == pytest.approx(size, rel=SHARE, abs=REQUESTS), (line, found, expected)


def test_lines_are_those_of_the_kernel_and_levers_reach_what_they_promise(rig: Rig) -> None:
    def measured(promised: Mapping[str, float]) -> dict[str, Any]:
        found, counted = rig.bill()
        # What producers are late with they send at once, and members read at once.
        check(counted.values, {name: RATES[GROUPS.get(name, name)] for name in counted.values})
        check(amounts(found), counted.across)
        check(amounts(found), promised)
        return found

    def repeated(promised: Mapping[str, float]) -> dict[str, Any]:
        """Measure until it agrees: what is wrong is so each time, and clients of a busy machine are late at times."""
        for _ in range(ATTEMPTS):
            with suppress(AssertionError):
                return measured(promised)
        return measured(promised)

    rig.start(near=False, aware=False)
    bill = repeated({})
    # Unknown producers may be a tenth here, too.
    least = 0.02 * bill["usd_per_month"]["at_most"]
    levers = {lever["lever"]: lever for lever in bill["levers"] if lever["beyond"]["at_most"] > least}
    assert [*levers] == ["fetching", "leaders", "members", "replicas"]

    rig.stop()
    rig.start(near=True, aware=False)
    repeated(amounts(bill, "fetching"))

    rig.run(*levers["leaders"]["commands"])
    repeated(amounts(bill, "leaders"))

    rig.stop()
    rig.start(near=True, aware=True)
    repeated(amounts(bill, "members"))

    rig.run(*levers["replicas"]["commands"])
    wait_until(rig.reads_locally, "consumers that have found the replicas in their racks", timeout_s=600)
    found = repeated(amounts(bill, "replicas"))
    assert found["saving_usd_per_month"]["at_most"] < 0.01 * found["usd_per_month"]["at_most"]
