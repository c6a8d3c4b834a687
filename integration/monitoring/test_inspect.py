"""`inspect` on real brokers: its figures are those that consumers meter, and what it foretells comes true."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata
from kafka import TopicPartition as KafkaPythonPartition
from kafka.protocol.consumer import JoinGroupRequest
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.parser import text_string_to_metric_families

from rackassign import (
    RackAwareConsumer,
    RackAwareCooperativeStickyAssignor,
    RackAwareProducer,
    RackAwareRangeAssignor,
)
from rackassign.admin.raw_requests import GroupCoordinators
from rackassign.clients.aiokafka import RackAwareRangeAssignor as AioRangeAssignor
from rackassign.monitoring import GroupAnalysis, GroupCollector, RackMap
from rackassign.monitoring.prometheus import ProducerMetrics
from rackassign.monitoring.traffic import traffic_matrix
from rackassign.scenario import read_group
from rackassign.testing import Cluster, Progress
from rackassign.testing.harness import TIMEOUT_S, wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.http_get import fetched
from tests.helpers.java.group_member import java_command
from tests.helpers.kafka.command import rackassign
from tests.helpers.kafka.consumers import CONSUMER, consumers, polled, settled, together
from tests.helpers.kafka.layout_states import fenced
from tests.helpers.kafka.metered_members import (
    MeteredMember,
    aiokafka,
    java,
    kafka_python,
    librdkafka,
    properties,
)
from tests.helpers.kafka.rack_group import RackGroup

pytestmark = [pytest.mark.brokers, pytest.mark.local]

RACKASSIGN = [sys.executable, "-m", "rackassign"]

RECORD = 4000
"""Bytes, so that what clients count beside them matters little."""


ROUNDS = 3


@pytest.fixture
def admin(rack_cluster: Cluster) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=rack_cluster.bootstrap)) as made:
        yield made


def write(bootstrap: str, topics: list[str], counts: list[list[int]]) -> None:
    """Write so many records to each partition of each topic."""
    with closing(KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=20, batch_size=10 * RECORD)) as to:
        for topic, row in zip(topics, counts, strict=True):
            for partition, count in enumerate(row):
                for _ in range(count):
                    to.send(topic, os.urandom(RECORD), partition=partition)
        to.flush()


def commit_zero(bootstrap: str, group: str, topics: Mapping[str, int]) -> None:
    """Commit offset 0 of all partitions of a group that has no members yet.

    librdkafka (2.16) goes on reading a partition that is revoked while it asks where an unread one begins, and then
    counts, rightly, bytes that no other client reads.
    """
    with closing(KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)) as committing:
        tps = [KafkaPythonPartition(topic, p) for topic, count in topics.items() for p in range(count)]
        committing.commit({tp: OffsetAndMetadata(0, "", -1) for tp in tps})


def with_racks(bootstrap: str, group: str, topics: list[str]) -> list[MeteredMember]:
    """Return a member of each client; all send their racks but aiokafka's own, since it cannot."""
    config = partial(properties, bootstrap, group)
    python = {"bootstrap_servers": bootstrap, "group_id": group, **CONSUMER}
    aio = {k: v for k, v in python.items() if k != "max_poll_interval_ms"}
    return [
        kafka_python(
            lambda: RackAwareConsumer(
                *topics, **python, client_rack="a", partition_assignment_strategy=[RackAwareRangeAssignor(rack="a")]
            ),
            "a",
        ),
        librdkafka(config("librdkafka"), topics, "b", sends_rack=True),
        java(java_command(), config("java"), topics, "b", sends_rack=True),
        aiokafka(
            lambda: AIOKafkaConsumer(
                *topics, **aio, client_rack="a", partition_assignment_strategy=[AioRangeAssignor(rack="a")]
            ),
            "a",
        ),
    ]


def without_racks(bootstrap: str, group: str, topics: list[str]) -> list[MeteredMember]:
    """Return the same without a rack, each with a client id that says where it stands."""
    config = partial(properties, bootstrap, group)
    python = {"bootstrap_servers": bootstrap, "group_id": group, **CONSUMER}
    aio = {k: v for k, v in python.items() if k != "max_poll_interval_ms"}
    return [
        kafka_python(lambda: KafkaConsumer(*topics, **python, client_id="in-c-python"), "c"),
        librdkafka(config("in-a-librdkafka"), topics, "a", sends_rack=False),
        java(java_command(), config("in-b-java"), topics, "b", sends_rack=False),
        aiokafka(
            lambda: AIOKafkaConsumer(
                *topics, **aio, client_id="in-a-aio", partition_assignment_strategy=[RangePartitionAssignor]
            ),
            "a",
        ),
    ]


Pairs = dict[tuple[str | None, str], int]


def metered(members: list[MeteredMember]) -> Pairs:
    """Return what all of them have read, by the rack it came from and the one they are in."""
    pairs: Pairs = {}
    for member in members:
        for source, size in member.read().bytes_from.items():
            pairs[source, member.rack] = pairs.get((source, member.rack), 0) + size
    return pairs


@pytest.mark.long
@pytest.mark.java
def test_its_figures_are_those_that_all_clients_meter(
    rack_cluster: Cluster, admin: KafkaAdminClient, make_topic: MakeTopic, unique_name: Callable[[], str]
) -> None:
    bootstrap, names = rack_cluster.bootstrap, (unique_name(), unique_name())
    topics = [make_topic(replicas=[[1, 2], [2, 3], [3, 1], [3, 2]]), make_topic(replicas=[[1], [2], [3], [3], [2]])]
    ones, counts = [[1] * 4, [1] * 5], [[20, 40, 60, 20], [40, 60, 20, 40, 60]]
    groups = [make(bootstrap, name, topics) for make, name in zip((with_racks, without_racks), names, strict=True)]
    for name in names:
        commit_zero(bootstrap, name, {topic: len(row) for topic, row in zip(topics, counts, strict=True)})
    with ExitStack() as opened:
        for member in (*groups[0], *groups[1]):
            opened.enter_context(member.member)
        inspector = GroupCollector(admin, RackMap({"in-a-*": "a", "in-b-*": "b", "in-c-*": "c"}))
        for name in names:
            wait_until(partial(whole, inspector, name, 4), f"{name} with four members that share all")
        # By the second record of a partition its reader knows which replica to read from.
        for round_ in range(1, ROUNDS + 1):
            write(bootstrap, topics, ones)
            wait_until(partial(have_read, groups, 9 * round_), "all read")
        before = [metered(group) for group in groups]
        wrote = False

        def while_measuring(progress: Progress) -> None:
            nonlocal wrote
            if progress.step.startswith("Measuring") and not wrote:
                wrote = True
                write(bootstrap, topics, counts)
                wait_until(partial(have_read, groups, 9 * ROUNDS + sum(map(sum, counts))), "all read")

        survey = inspector.report(names, interval_s=0.2, report_progress=while_measuring)
        after = [metered(group) for group in groups]
    assert wrote
    found = {inspection.snapshot.live.name: inspection for inspection in survey.inspections}
    for name, then, now in zip(names, before, after, strict=True):
        counted = {pair: size - then.get(pair, 0) for pair, size in now.items()}
        # What has come is what was written in the seconds between, and Java counts answers without records as well.
        read = {pair: size for pair, size in counted.items() if size > 0.01 * sum(counted.values())}
        written = traffic_matrix(found[name].now, survey.measured.bytes_written)
        foretold = {pair: size for pair, size in written.pairs.items() if size}
        assert {pair for pair, rate in found[name].flows.pairs.items() if rate} == foretold.keys()
        assert read.keys() == foretold.keys()
        assert read == {pair: pytest.approx(size, rel=0.05) for pair, size in foretold.items()}
    assert not found[names[0]].snapshot.rack_map_members
    assert len(found[names[1]].snapshot.rack_map_members) == 4
    assert found[names[1]].partitions.cross > 0


def have_read(groups: list[list[MeteredMember]], records: int) -> bool:
    """Tell whether each group has read so many."""
    return all(sum(member.read().records for member in group) >= records for group in groups)


def whole(inspector: GroupCollector, name: str, members: int) -> bool:
    """Tell whether the group is at rest with so many members, and nothing is without a reader."""
    inspections = inspector.report(None).inspections
    return any(
        i.snapshot.live.name == name and len(i.snapshot.live.members) == members and not i.unassigned and i.now
        for i in inspections
    )


def inspected(admin: KafkaAdminClient, group: str, racks: RackMap) -> GroupAnalysis:
    (inspection,) = GroupCollector(admin, racks).report([group]).inspections
    return inspection


def test_the_gain_that_was_foretold_is_the_gain_that_comes(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str]
) -> None:
    replicas = [[2], [3], [1], [2], [3], [1]]
    topic = make_topic(replicas=replicas)
    racks = RackMap({"a*": "a", "b*": "b"}, follower_fetchers=("*",))
    with RackGroup(rack_cluster.bootstrap, unique_name(), topic, replicas) as group:
        with group.traffic() as traffic:
            for name in ("a1", "b1"):
                group.start(name, KafkaConsumer, client_id=name)
            group.settle()
            before = inspected(group.admin, group.group, racks)
            (switch,) = (action for action in before.actions if action.kind == "strategy")
            assert before.partitions.local + switch.gain == 4
            traffic.wait_for_more()
            for name in ("a1", "b1"):
                group.end(name)
                group.start(
                    name,
                    client_id=name,
                    partition_assignment_strategy=[
                        RackAwareCooperativeStickyAssignor(rack=name[0]),
                        RackAwareRangeAssignor(rack=name[0]),
                    ],
                )
                group.settle()
                traffic.wait_for_more()
            after = inspected(group.admin, group.group, RackMap())
        wait_until(lambda: group.processed() >= traffic.written(), "everything processed")
    assert before.partitions.local < 4
    assert (after.snapshot.live.strategy, after.partitions.local, after.partitions.cross) == (
        "cooperative-sticky",
        4,
        2,
    )
    assert after.actions[0].kind != "strategy"


@contextmanager
def responding_once(content: bytes) -> Iterator[str]:
    """Yield the address of a process that ends after its first response."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content)

    server = HTTPServer(("127.0.0.1", 0), Handler)

    def respond() -> None:
        with server:
            server.handle_request()

    thread = threading.Thread(target=respond)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    thread.join()


@pytest.mark.release
def test_what_is_written_is_beside_what_is_read(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str], tmp_path: Path
) -> None:
    topic, group, stopped = make_topic(replicas=[[1], [2], [3]]), unique_name(), threading.Event()
    with ExitStack() as opened:
        metered = opened.enter_context(closing(RackAwareProducer(**rack_cluster.client_config(), client_rack="a")))
        plain = opened.enter_context(closing(KafkaProducer(**rack_cluster.client_config())))
        registry = CollectorRegistry()
        registry.register(ProducerMetrics(metered))
        server, thread = start_http_server(0, "127.0.0.1", registry)
        opened.callback(server.server_close)
        opened.callback(server.shutdown)
        url = f"http://127.0.0.1:{server.server_port}/metrics"

        def produce() -> None:
            """Write as much with metrics as without, to leaders in all racks."""
            while not stopped.wait(0.01):
                for partition in range(3):
                    for producer in (metered, plain):
                        producer.send(topic, os.urandom(RECORD), partition=partition)

        writing = threading.Thread(target=produce)
        writing.start()
        opened.callback(writing.join)
        opened.callback(stopped.set)
        config = {**rack_cluster.client_config(), **CONSUMER, "group_id": group, "client_rack": "b"}
        consumer = opened.enter_context(closing(RackAwareConsumer(topic, **config)))
        wait_until(lambda: consumer.poll(100), "records")
        command = ("inspect", rack_cluster.bootstrap, "--group", group)
        seen = json.loads(rackassign(*command, "--interval", "4", "--output", "json", "--producers", url).stdout)
        metrics = tmp_path / "metrics.txt"
        metrics.write_text(fetched(url)[1], "utf-8")
        by_totals = rackassign(*command, "--interval", "2", "--producers", str(metrics))
        with responding_once(metrics.read_bytes()) as ending:
            lost = rackassign(*command, "--interval", "2", "--producers", ending, code=3)
    assert not thread.is_alive()
    written = seen["producers"]
    (of_topic,) = written["topics"]
    assert of_topic["explained"] == pytest.approx(0.5, abs=0.1)
    rates = of_topic["written"]["bytes_per_second"]
    assert rates["cross"] / (rates["local"] + rates["cross"]) == pytest.approx(2 / 3, abs=0.02)
    assert {(flow["from"], flow["to"]) for flow in of_topic["written"]["flows"]} == {("a", rack) for rack in "abc"}
    # One member reads everything in rack b.
    log = of_topic["log_bytes_per_second"]
    assert of_topic["read"]["bytes_per_second"]["cross"] == pytest.approx(2 / 3 * log, rel=0.2)
    assert "have not changed in" in by_totals.stderr
    assert "written cross/s" in by_totals.stdout
    # What was measured of the groups is shown all the same.
    assert "what producers write could not be measured: http://127.0.0.1" in lost.stderr
    assert topic in lost.stdout


@pytest.mark.long
def test_a_dead_broker_and_odd_groups_spoil_nothing_of_the_rest(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str], tmp_path: Path
) -> None:
    bootstrap, group, odd = rack_cluster.bootstrap, unique_name(), unique_name()
    topic = make_topic(replicas=[[1, 3], [2, 1], [1, 2]])
    make = partial(RackAwareConsumer, topic, bootstrap_servers=bootstrap, group_id=group, client_rack="c", **CONSUMER)
    with consumers(make) as members, closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as asking:
        wait_until(settled(members, topic, 3), "a member with all of it")
        rack_cluster.kill(3)
        wait_until(lambda: fenced(asking) == [3], "the broker is given up")
        wait_until(settled(members, topic, 3), "a member with all of it again")
        # A coordinator that dies takes a group along that was never complete.
        join_as_connect(asking, odd)
        page = tmp_path / "page.html"
        # On a busy machine the commands take longer than a member may go without a poll.
        with polled(members):
            told = rackassign(
                "inspect", bootstrap, "--all-groups", "--interval", "1", "--html", str(page), "--output", "json"
            )
            shot = rackassign("snapshot", bootstrap, "--group", group)
            doctor = rackassign("doctor", bootstrap, "--group", group, "--output", "json", code=1)
    (offline,) = [row for row in json.loads(doctor.stdout)["findings"] if row["kind"] == "brokers-offline"]
    assert offline["brokers"] == [3]
    found = json.loads(told.stdout)
    ours = next(row for row in found["groups"] if row["group"] == group)
    # Its rack is remembered, so the copy there would be near; it serves nobody now.
    assert ours["partitions"] == {"local": 0, "cross": 3, "unknown": 0}
    assert ours["out_of_sync"] == 1
    assert [row["problem"] for row in found["skipped"] if row["group"] == odd] == [
        "not a group of consumers but of type 'connect', which is not supported"
    ]
    assert f"{odd}: not a group" in told.stderr
    assert group in page.read_text("utf-8")
    scenario = json.loads(shot.stdout)
    assert {"id": 3, "rack": "c", "fenced": True} in scenario["brokers"]
    assert read_group(scenario).members[0].owned == {topic: (0, 1, 2)}


def join_as_connect(admin: KafkaAdminClient, group: str) -> None:
    """Let a member join as Kafka Connect's do; nobody ever tells it what to do."""
    coordinators = GroupCoordinators(admin)
    member = ""
    for _ in range(2):
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="default", metadata=b"")
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id=member,
            protocol_type="connect",
            protocols=[protocol],
            min_version=4,
        )
        member = coordinators.ask(group, request).member_id


def test_top_in_a_terminal_shows_groups_follows_keys_and_restores_the_terminal(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str]
) -> None:
    bootstrap, topic, group = rack_cluster.bootstrap, make_topic(replicas=[[1], [2]]), f"top-{unique_name()[-8:]}"
    make = partial(RackAwareConsumer, topic, bootstrap_servers=bootstrap, group_id=group, client_rack="a", **CONSUMER)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(theirs)
    seen = bytearray()

    def shown(*texts: str) -> bool:
        while select.select([ours], [], [], 0)[0]:
            seen.extend(os.read(ours, 65536))
        return all(text.encode() in seen for text in texts)

    command = [*RACKASSIGN, "top", "--bootstrap-server", bootstrap, "--group", group, "--interval", "1"]
    with consumers(make) as members, polled(members):
        wait_until(lambda: together(members, topic, 2), "a member with all of it")
        environment = {**os.environ, "TERM": "xterm"}
        top = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        with top, ExitStack() as opened:
            # Where it does not show what it should, nothing waits for it.
            opened.callback(top.kill)
            wait_until(lambda: shown(group, "50.0 %", "1 group by money"), "the table")
            os.write(ours, b"s")
            wait_until(lambda: shown("1 group by saving"), "another order")
            os.write(ours, b"p")
            wait_until(lambda: shown("paused; this is the state of"), "a table that stays")
            os.write(ours, b"pq")
            wait_until(lambda: shown("\x1b[?1049l"), "the screen as it was")
            assert top.wait(TIMEOUT_S) == 0
        assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


@pytest.mark.long
def test_groups_are_watched_and_exported(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str]
) -> None:
    bootstrap, group = rack_cluster.bootstrap, unique_name()
    topic = make_topic(replicas=[[1], [2]])
    make = partial(RackAwareConsumer, topic, bootstrap_servers=bootstrap, group_id=group, client_rack="a", **CONSUMER)
    with consumers(make) as members, polled(members):
        wait_until(lambda: together(members, topic, 2), "a member with all of it")
        shown = rackassign("top", bootstrap, "--group", group, "--interval", "1", "--iterations", "2")
        assert shown.stdout.count("50.0 %") >= 4
        # Nothing is read, so a replica would cost a disk and save nothing.
        assert "add a replica" not in shown.stdout
        missing = rackassign("inspect", bootstrap, "--group", f"{group}-", code=2)
        assert (
            missing.stderr.splitlines()[-1]
            == f'rackassign: group: there is no consumer group "{group}-" on this cluster'
        )
        rackassign("inspect", bootstrap, "--group", group, "--interval", "0", "--fail-under", "50%")
        rackassign("inspect", bootstrap, "--group", group, "--interval", "0", "--fail-under", "51", code=1)
        exporting = subprocess.Popen(
            [*RACKASSIGN, "exporter", "--bootstrap-server", bootstrap, "--listen", "127.0.0.1:0", "--interval", "1"],
            stderr=subprocess.PIPE,
            text=True,
        )
        with exporting:
            try:
                assert exporting.stderr is not None
                address = exporting.stderr.readline().split()[-1]

                def counted() -> bool:
                    # What was written before the first look is of no account.
                    write(bootstrap, [topic], [[0, 1]])
                    return scraped(address, group).get("b", 0) > RECORD

                wait_until(counted, "what was written in the metrics")
            finally:
                exporting.terminate()
        assert exporting.returncode == 0


def scraped(address: str, group: str) -> dict[str, float]:
    """Return the bytes that were read by the group, by the rack they come from."""
    families: list[Any] = list(text_string_to_metric_families(fetched(address)[1]))
    return {
        sample.labels["from_rack"]: sample.value
        for family in families
        for sample in family.samples
        if sample.name == "rackassign_read_bytes_total" and sample.labels["group"] == group
    }
