"""What the manifests of the Kubernetes example run, in containers of the image with the rights that they give."""

from __future__ import annotations

import urllib.error
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

from rackassign.testing import Cluster, create_topic
from rackassign.testing._machine import reserve_ports
from rackassign.testing.harness import wait_until
from tests.helpers import app_image
from tests.helpers.exposition import parsed
from tests.helpers.http_get import fetched

pytestmark = [pytest.mark.brokers, pytest.mark.docker, pytest.mark.frameworks]

RACKS = "abc"
TIMEOUT_S = 600.0


@pytest.fixture(scope="module", autouse=True)
def image() -> Iterator[None]:
    app_image.build()
    yield
    app_image.remove()


@pytest.fixture
def ports() -> Iterator[tuple[int, ...]]:
    reserved = reserve_ports(len(RACKS))
    yield reserved.numbers
    reserved.close()


@pytest.fixture
def topic(rack_cluster: Cluster, unique_name: Callable[[], str]) -> str:
    """Return a topic that has two partitions in each rack."""
    name = unique_name()
    create_topic(rack_cluster.bootstrap, name, [[broker.id] for broker in rack_cluster.brokers] * 2)
    return name


def write(bootstrap: str, topic: str, values: list[bytes]) -> None:
    with closing(KafkaProducer(bootstrap_servers=bootstrap, acks="all")) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, partition=number % 6)
        producer.flush(TIMEOUT_S)


def members_of(bootstrap: str, group: str) -> int:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        return len(admin.describe_groups([group])[group]["members"])


def page(port: int, path: str) -> tuple[int, str]:
    """Return the status and the text of a page; 0 while nothing listens."""
    try:
        return fetched(f"http://127.0.0.1:{port}{path}")
    except (ConnectionError, urllib.error.URLError):
        return 0, ""


def test_consumers_read_locally_and_leave_when_they_are_stopped(
    rack_cluster: Cluster, topic: str, ports: tuple[int, ...]
) -> None:
    bootstrap = rack_cluster.bootstrap
    with ExitStack() as opened:
        pods = [
            opened.enter_context(
                app_image.started(
                    f"{topic}-{rack}",
                    "consumer.yaml",
                    {
                        "RACKASSIGN_RACK": rack,
                        "POD_NAME": f"billing-{rack}",
                        "KAFKA_BOOTSTRAP": bootstrap,
                        "TOPIC": topic,
                        "GROUP": topic,
                        "METRICS_PORT": str(port),
                    },
                )
            )
            for rack, port in zip(RACKS, ports, strict=True)
        ]
        # Before all have joined, some read for others.
        wait_until(lambda: _local_partitions(ports) == [2, 2, 2], "two local partitions each", timeout_s=TIMEOUT_S)
        values = [b"record-%d" % number for number in range(300)]
        write(bootstrap, topic, values)
        expected = sorted(value.decode() for value in values)
        wait_until(lambda: _handled(pods) == expected, "all records handled once", timeout_s=TIMEOUT_S)
        read = [parsed(page(port, "/metrics")[1]) for port in ports]
        assert {
            dict(labels)["locality"]
            for each in read
            for (name, labels), size in each.items()
            if name == "rackassign_read_bytes_total" and size
        } == {"local"}
        assert [pod.stop() for pod in pods] == [0, 0, 0], [pod.output() for pod in pods]
        assert members_of(bootstrap, topic) == 0


def _local_partitions(ports: tuple[int, ...]) -> list[float]:
    found = []
    for port in ports:
        status, text = page(port, "/metrics")
        partitions = {} if status != 200 else parsed(text)
        found.append(
            sum(
                value
                for (name, labels), value in partitions.items()
                if name == "rackassign_partitions" and dict(labels)["locality"] == "local"
            )
        )
    return found


def _handled(pods: list[app_image.Container]) -> list[str]:
    return sorted(line for pod in pods for line in pod.output().splitlines() if line.startswith("record-"))


def test_a_member_with_state_finds_it_on_its_volume(rack_cluster: Cluster, topic: str, tmp_path: Path) -> None:
    bootstrap = rack_cluster.bootstrap
    tmp_path.chmod(0o777)
    environment = {
        "RACKASSIGN_RACK": "a",
        "POD_NAME": "words-0",
        "KAFKA_BOOTSTRAP": bootstrap,
        "TOPIC": topic,
        "GROUP": topic,
    }
    volume = ["--volume", f"{tmp_path}:/var/lib/words"]
    write(bootstrap, topic, [b"to be or not to be"] * 12)
    outputs = []
    for _ in range(2):
        with app_image.started(f"{topic}-words-0", "stateful-consumer.yaml", environment, volume) as pod:
            # The first pod processes what there is, and the second one what was written meanwhile.
            wait_until(lambda: _lag(bootstrap, topic) == 0, "all records processed", timeout_s=TIMEOUT_S)
            assert pod.stop() == 0, pod.output()
            outputs.append(pod.output())
        # Its membership stays, for the pod that replaces it.
        assert members_of(bootstrap, topic) == 1
        write(bootstrap, topic, [b"that is the question"] * 12)
    assert not any("restoring" in output for output in outputs), outputs


def _lag(bootstrap: str, topic: str) -> int:
    """Return how many records the group has not committed."""
    with closing(KafkaConsumer(bootstrap_servers=bootstrap, group_id=topic, enable_auto_commit=False)) as reader:
        tps = [TopicPartition(topic, partition) for partition in range(6)]
        ends = reader.end_offsets(tps)
        return sum(ends[tp] - (reader.committed(tp) or 0) for tp in tps)


def test_the_exporter_serves_metrics(rack_cluster: Cluster, topic: str, ports: tuple[int, ...]) -> None:
    port = ports[0]
    # The last one of an option that is given twice counts.
    extra = [f"--bootstrap-server={rack_cluster.bootstrap}", f"--listen=127.0.0.1:{port}"]
    with app_image.started(f"{topic}-exporter", "exporter.yaml", {}, extra=extra) as pod:
        wait_until(
            lambda: "rackassign_up 1.0" in page(port, "/metrics")[1],
            "a report",
            timeout_s=TIMEOUT_S,
        )
        assert page(port, "/-/healthy")[0] == 200
        pod.stop()
