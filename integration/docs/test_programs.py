"""Programs of the documentation, as they stand."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata, TopicPartition
from prometheus_client import REGISTRY, start_http_server

from integration.docs.conftest import OpenPage
from rackassign import RackAwareConsumer
from rackassign.clients import confluent
from rackassign.errors import RackassignError
from rackassign.stateful import INT, STR, Store, open_state
from rackassign.testing import Cluster
from rackassign.testing.harness import Traffic, assigned, wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.documents import blocks
from tests.helpers.http_get import fetched_metrics
from tests.helpers.kafka.documented_page import INSTALLED
from tests.helpers.machine_speed import scaled_ms

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.docs]

LOCAL = [[1], [2], [3]]
"""Replicas: a partition in each rack."""

LONG_MS = scaled_ms(1000)
"""Time of a poll without `attach`: kafka-python loses a join that ends between two polls."""


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic(replicas=LOCAL)


@pytest.fixture
def written(rack_cluster: Cluster, topic: str) -> Iterator[str]:
    """The topic, while words are written to it."""
    with Traffic(rack_cluster.client_config(), [topic]):
        yield topic


@pytest.fixture
def has_all(rack_cluster: Cluster, topic: str) -> Iterator[Callable[[str], bool]]:
    """A function that returns whether one member of a group has all partitions of the topic."""
    with closing(KafkaAdminClient(bootstrap_servers=rack_cluster.bootstrap)) as admin:

        def look(group: str) -> bool:
            members = assigned(admin, group) or {}
            return [sorted(tps) for tps in members.values()] == [[(topic, p) for p in range(len(LOCAL))]]

        yield look


def ends(cluster: Cluster, topic: str) -> int:
    """Return how many records a topic has, markers of transactions included."""
    with closing(KafkaConsumer(bootstrap_servers=cluster.bootstrap)) as consumer:
        return sum(consumer.end_offsets([TopicPartition(topic, p) for p in range(len(LOCAL))]).values())


def polled(*consumers: KafkaConsumer) -> list[bool]:
    """Poll each consumer once; return which of them have received records so far."""
    for each in consumers:
        each.poll(50)
    return [sum(amount.records for amount in each.locality().by_rack().values()) > 0 for each in consumers]


def test_the_rack_monitor(open_page: OpenPage) -> None:
    with open_page("docs/explanation/rack-monitor.md") as page:
        assert page.execute()["assignor"].rack == "a"


def test_options_of_assignors(open_page: OpenPage, written: str) -> None:
    with open_page("docs/reference/options-of-assignors.md", orders=written) as page:
        weighted = page.execute()["consumer"]
        wait_until(lambda: weighted.poll(LONG_MS), "records of a member with weights")
        weighted.close()
        attached = page.execute()["consumer"]
        wait_until(lambda: all(polled(attached)), "records of an attached consumer")


def test_moving_a_group(
    open_page: OpenPage, rack_cluster: Cluster, unique_name: Callable[[], str], written: str, tmp_path: Path
) -> None:
    group = unique_name()
    (tmp_path / "racks.json").write_text('{"client_ids": {"old": "a"}}', "utf-8")
    old = KafkaConsumer(written, bootstrap_servers=rack_cluster.bootstrap, group_id=group, client_id="old")
    with open_page("docs/how-to/move-a-group.md", orders=written, billing=group) as page:
        with closing(old):
            wait_until(lambda: old.poll(LONG_MS), "records of an old member")
            assert "racks" in page.run(1)
            assert "%" in page.run(more="--interval 0")
        one, other = page.execute()["consumer"], page.execute()["consumer"]
        wait_until(lambda: all(polled(one, other)), "records of both new members")
        assert one.locality().rack == other.locality().rack == "a"
        assert group in page.run(more="--interval 0")


def test_racks_and_client_ids(open_page: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACKASSIGN_RACK", "a")
    # No metadata service is asked.
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://127.0.0.1:1")
    with open_page("docs/how-to/detect-racks.md", billing="billing") as page:
        assert "a" in page.run().splitlines()[-1]
        assert page.execute()["consumer"].config["client_id"] == "billing,warpstream_az=a"
        assert page.execute()["producer"].config["client_id"] == "billing,warpstream_az=a"


def test_producing_locally(
    open_page: OpenPage,
    rack_cluster: Cluster,
    topic: str,
    unique_name: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The page replaces both for the frameworks of a process.
    for package, name in ((aiokafka, "AIOKafkaProducer"), (confluent_kafka, "Producer")):
        monkeypatch.setattr(package, name, getattr(package, name))
    server, _ = start_http_server(0, "127.0.0.1")
    url = f"http://127.0.0.1:{server.server_port}/metrics"
    with open_page("docs/how-to/produce-locally.md", orders=topic, **{"http://localhost:9095/metrics": url}) as page:
        producer = page.execute()["producer"]
        page.execute()
        group = {"group_id": unique_name(), "auto_offset_reset": "earliest"}
        with closing(KafkaConsumer(bootstrap_servers=rack_cluster.bootstrap, **group)) as consumer:
            # The partition that is led in rack a.
            first = TopicPartition(topic, 0)
            assert consumer.end_offsets([first]) == {first: 2000}
            page.execute()
            # If the leaders are not known in time, librdkafka chooses.
            assert sum(consumer.end_offsets([TopicPartition(topic, n) for n in range(3)]).values()) == 3000
            # With a schema registry, and for two frameworks.
            page.execute()
            page.execute()
            page.execute()
            assert page.execute(producer=producer)["written"].by_rack(topic)["a"].records == 1000
            metrics = page.execute(producer=producer)["metrics"]
            consumer.subscribe([topic])
            wait_until(lambda: consumer.poll(LONG_MS), "records")
            assert "explained" in page.run(more="--interval 1")
        REGISTRY.unregister(metrics)
        page.run()
        page.run()
        metrics = page.execute(producer=producer)["metrics"]
        # Records without a key are local already.
        assert "no other leaders within these bounds have fewer bytes across racks" in page.run()
        assert "other leaders would save 0 B across racks" in page.run()
        REGISTRY.unregister(metrics)
        server.shutdown()
        server.server_close()


def test_aiokafka(open_page: OpenPage, unique_name: Callable[[], str], written: str, has_all: Any) -> None:
    group = unique_name()
    with open_page("docs/how-to/aiokafka.md", orders=written, billing=group) as page:
        page.leave(INSTALLED)
        with page.program() as member:
            member.wait_until(lambda: has_all(group), "all partitions of a member")
        assert page.execute_in_loop()["consumer"].locality().rack == "a"


def test_mixed_groups(open_page: OpenPage, unique_name: Callable[[], str], written: str, has_all: Any) -> None:
    group = unique_name()
    with open_page("docs/how-to/mixed-groups.md", orders=written, billing=group) as page:
        with page.program() as member:
            member.wait_until(lambda: has_all(group), "all partitions of a member")
        defined = page.execute()
        defined["consumer"].subscribe([written])
        wait_until(lambda: defined["consumer"].poll(0.1) and defined["meter"].locality().local().records, "statistics")


def test_exactly_once(
    open_page: OpenPage,
    rack_cluster: Cluster,
    make_topic: MakeTopic,
    unique_name: Callable[[], str],
    topic: str,
    tmp_path: Path,
) -> None:
    results, numbered, access = make_topic(replicas=LOCAL), make_topic(replicas=LOCAL), rack_cluster.client_config()
    with closing(KafkaProducer(**access)) as producer:
        for number in range(len(LOCAL) * 10):
            producer.send(topic, b"%d" % number, b"k", partition=number % len(LOCAL)).get()
    names = {"results": results, "orders": topic, "numbered-orders": numbered, "/var/lib/numbering": str(tmp_path)}
    with open_page("docs/how-to/exactly-once.md", numbering=unique_name(), **names) as page:
        with using_confluent(rack_cluster, topic, unique_name()) as given:
            page.execute(**given, transform=lambda value: value)
        # One marker in each partition of the results, whose partition is that of the key.
        assert ends(rack_cluster, results) == len(LOCAL) * 10 + 1
        with using_kafka_python(rack_cluster, topic, unique_name()) as given:
            page.execute(**given, transform=lambda value: value)
        assert ends(rack_cluster, results) == 2 * (len(LOCAL) * 10 + 1)
        with page.program() as member:
            member.wait_until(lambda: ends(rack_cluster, numbered) > len(LOCAL) * 10, "numbered records")


@contextmanager
def using_confluent(cluster: Cluster, topic: str, name: str) -> Iterator[dict[str, Any]]:
    """Yield a consumer, all messages of a topic, and a producer, as the page takes them for granted."""
    config = {"bootstrap.servers": cluster.bootstrap}
    consumer = confluent.RackAwareConsumer({**config, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    messages: list[Any] = []
    while len(messages) < len(LOCAL) * 10:
        messages += consumer.consume(100, 1.0)
    producer = confluent_kafka.Producer({**config, "transactional.id": name})
    producer.init_transactions()
    with closing(consumer):
        yield {"consumer": consumer, "messages": messages, "producer": producer}


@contextmanager
def using_kafka_python(cluster: Cluster, topic: str, name: str) -> Iterator[dict[str, Any]]:
    """Yield a consumer, all records of a topic, the offsets behind them, and a producer."""
    access = cluster.client_config()
    consumer = RackAwareConsumer(topic, **access, group_id=name, auto_offset_reset="earliest", enable_auto_commit=False)
    records: list[Any] = []
    while len(records) < len(LOCAL) * 10:
        records += [record for batch in consumer.poll(1000).values() for record in batch]
    offsets = {tp: OffsetAndMetadata(consumer.position(tp), "", -1) for tp in consumer.assignment()}
    producer = KafkaProducer(**access, transactional_id=name)
    producer.init_transactions()
    with closing(consumer), closing(producer):
        yield {"consumer": consumer, "records": records, "offsets": offsets, "producer": producer}


def test_state(
    open_page: OpenPage,
    rack_cluster: Cluster,
    make_topic: MakeTopic,
    unique_name: Callable[[], str],
    written: str,
    has_all: Callable[[str], bool],
    first_port: int,
    tmp_path: Path,
) -> None:
    """The member of one page, which the other page operates."""
    group, folder, letters = unique_name(), tmp_path / "count", make_topic(replicas=LOCAL)
    names = {'"lines"': f'"{written}"', "/var/lib/count": str(folder)}
    kept = {
        '    "payments",': f'    "{written}",',
        "payments-dead-letters": letters,
        "/var/lib/payments": f"{folder}-2",
    }
    server = {"start_http_server(9109": f"start_http_server({first_port}, '127.0.0.1'"}
    counts = Store("counts", key=STR, value=INT)
    with (
        open_page("docs/how-to/stateful-consumers.md", **names, **kept, **{'"count"': f'"{group}"'}) as page,
        open_page("docs/how-to/operate-state.md", **names, **server, billing=group) as operated,
    ):
        with page.program() as member:
            member.wait_until(lambda: has_all(group), "all partitions of a member")
            member.wait_until(lambda: is_stored(folder, (written, 0)), "a state with a commit")
            assert written in operated.run()
            # What the member's own threads do, beside it.
            counter = SimpleNamespace(state=lambda tp: open_state(str(folder), tp, stores=[counts]))
            operated.execute(counter=counter, counts=counts)
            operated.execute(counts=counts)
        options = {"state_dir": str(folder), "bootstrap_servers": operated.bootstrap, "group_id": group}
        with operated.program(before=BEGIN.format(topic=written, options=options), after=POLL) as member:
            member.wait_until(lambda: "rackassign_state_tasks" in fetched_metrics(first_port), "metrics")
        assert "--execute deletes 1 changelog" in operated.run()
        assert "1 changelog" in operated.run()
        operated.run()
        operated.run()
        serde = page.execute()["orders"].value
        assert serde.deserialize(serde.serialize({"amount": 5})) == {"amount": 5}
        # None of the words is JSON.
        with page.program() as member:
            member.wait_until(lambda: ends(rack_cluster, letters) > 0, "dead letters")


BEGIN = """
from rackassign.stateful import StatefulConsumer
counter = StatefulConsumer({topic!r}, process=lambda record, state: None, **{options})
"""
POLL = """
with counter:
    while True:
        counter.poll()
"""


def is_stored(folder: Path, tp: tuple[str, int]) -> bool:
    try:
        with open_state(str(folder), tp) as state:
            return bool(state.offsets)
    except RackassignError:
        return False


def test_joins_and_windows(open_page: OpenPage, rack_cluster: Cluster, topic: str) -> None:
    with open_page("docs/how-to/joins-and-windows.md", results=topic) as page:
        for _ in range(6):
            page.leave_to("tests/unit/examples/test_stateful_examples.py")
        key, window = b"k", 1000
        closed = object()
        state = {closed: Rows({(key, window): 5})}
        defined = page.execute(closed=closed, close_windows=print)
        defined["write_results"](0, state)
        assert not state[closed]
    with closing(
        KafkaConsumer(topic, bootstrap_servers=rack_cluster.bootstrap, auto_offset_reset="earliest")
    ) as reader:
        record = next(reader)
    assert (record.key, record.value) == (b"k@1000", b"5")


class Rows(dict[Any, Any]):
    """A store without a state behind it."""

    def items(self) -> list[Any]:  # type: ignore[override]
        return [*super().items()]

    def delete(self, key: Any) -> None:
        del self[key]


def test_frameworks(open_page: OpenPage) -> None:
    with open_page("docs/how-to/frameworks.md") as page:
        assert page.execute()["ByTopic"]().name == "sticky"
        assert page.execute()["app"].conf.table_standby_replicas == 1
        page.leave("Quix Streams has an environment of its own, in which examples/quix runs the same class")


def test_a_multi_rack_cluster(
    open_page: OpenPage, first_port: int, unique_name: Callable[[], str], tmp_path: Path
) -> None:
    document, name = "docs/how-to/test-on-a-multi-rack-cluster.md", unique_name().replace("-", "_")
    [settings] = (block.text for block in blocks(document) if block.language == "toml")
    (tmp_path / "pyproject.toml").write_text(settings, "utf-8")
    up = {"cluster up": f"cluster up --name {name} --port {first_port}"}
    with open_page(
        document, **up, **{f"cluster {word}": f"cluster {word} --name {name}" for word in ("kill-rack c", "down")}
    ) as page:
        page.bootstrap = f"localhost:{first_port}"
        page.leave(INSTALLED)
        modules = [page.text() for _ in range(5)]
        (tmp_path / "test_mine.py").write_text("\n\n".join(["import pytest", *modules]), "utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "test_mine.py"],
            capture_output=True,
            check=False,
            cwd=tmp_path,
            text=True,
            timeout=3600,
        )
        assert "6 passed" in done.stdout, done.stdout[-8000:]
        page.execute()
        with page.started() as cluster:
            cluster.wait_for_output("cluster down")
        for _ in range(4):
            page.leave(
                "integration/testing/test_docker_cluster.py, and `make test`, run the suite and the composed racks"
            )
        with page.program() as reading:
            reading.wait_for_output("batch 0: 100.0% of")
            assert reading.wait() == 0
