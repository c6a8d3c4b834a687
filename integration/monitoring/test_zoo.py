"""Six groups of all Python clients at once: what `inspect` shows of each is what the kernel counts."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError

from rackassign.errors import ConfigError
from rackassign.monitoring import GroupAnalysis, GroupCollector, RackMap
from rackassign.monitoring.traffic import traffic_matrix
from rackassign.testing import Cluster, Progress
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.command import rackassign
from tests.helpers.kafka.confluent_group import committed
from tests.helpers.kafka.member_process import Client, MemberProcess
from tests.helpers.threads import meanwhile

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.release]

RECORD = 20_000
"""Bytes, so that responses without records matter little."""

SMALL = 2000
"""Bytes of a record where many are written."""

ROUND, PARTITIONS = 20, 9
"""Records of a round in each partition."""

EARLIER, LAGGING = 800, 100
"""Records in each partition that are there at the beginning, and records that the slow member commits meanwhile."""

NO_COORDINATOR_YET = (CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError)

STOCK = RackMap({"*-in-a": "a", "*-in-b": "b", "*-in-c": "c"})

Zoo = dict[str, list[MemberProcess]]


def zoo(bootstrap: str, topic: str, name: Callable[[], str]) -> Zoo:
    """Return six groups, by name; the first and the last report no rack."""

    def members(client: Client, racks: str, *, slowly: bool = False) -> tuple[str, list[MemberProcess]]:
        group = name()
        return group, [
            MemberProcess(client, bootstrap, group, [topic], rack, client_id=f"{i}-in-{rack}", slowly=slowly)
            for i, rack in enumerate(racks)
        ]

    return dict(
        (
            members("kafka-python", "abc"),
            members("rackassign", "abc"),
            members("rackassign-range", "aa"),
            members("librdkafka", "ab"),
            members("aiokafka", "bc"),
            members("kafka-python", "a", slowly=True),
        )
    )


def write(bootstrap: str, topic: str, records: int, size: int = RECORD) -> None:
    """Write so many records to each partition."""
    with closing(KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=20, batch_size=10 * RECORD)) as to:
        for _ in range(records):
            for partition in range(PARTITIONS):
                to.send(topic, os.urandom(size), partition=partition)
        to.flush()


def counted(members: Sequence[MemberProcess], racks: Mapping[int, str]) -> dict[tuple[str, str], int]:
    """Return what the kernel has counted, by the broker's rack and the member's."""
    found: dict[tuple[str, str], int] = {}
    for member in members:
        for port, size in member.read()[1].items():
            found[racks[port], member.rack] = found.get((racks[port], member.rack), 0) + size
    return found


def records(members: Sequence[MemberProcess]) -> int:
    return sum(member.read()[0] for member in members)


def missing(inspector: GroupCollector, groups: Zoo) -> dict[str, str]:
    """Return what groups lack that have not all of their members, or partitions without a reader."""
    try:
        report = inspector.report(list(groups))
    except (ConfigError, *NO_COORDINATOR_YET) as error:
        # A group that does not exist yet; on a cluster that has just started, its coordinator neither.
        return {"": str(error)}
    found = {i.snapshot.live.name: i for i in report.inspections}
    lacks: dict[str, str] = {}
    for name, members in groups.items():
        group = found.get(name)
        if group is None:
            # The report skips a group that cannot be described now.
            lacks[name] = "not described"
        elif len(group.snapshot.live.members) != len(members) or not group.now or group.unassigned:
            live, unassigned = group.snapshot.live, group.unassigned
            lacks[name] = f"{live.state}, {len(live.members)} of {len(members)} members, {unassigned} unassigned"
    return lacks


def wait_for_all(inspector: GroupCollector, groups: Zoo) -> None:
    """Wait until every group has all of its members, and each partition a reader."""
    lacks: dict[str, str] = {}

    def complete() -> bool:
        nonlocal lacks
        for members in groups.values():
            records(members)  # raises if one of them has ended
        lacks = missing(inspector, groups)
        return not lacks

    try:
        wait_until(complete, "groups with all their members")
    except TimeoutError as error:
        # When the report of a failed test is made, the groups are empty.
        raise TimeoutError(f"{error}: {lacks}") from None


@contextmanager
def running(cluster: Cluster, topic: str, name: Callable[[], str]) -> Iterator[tuple[Zoo, KafkaAdminClient]]:
    """Run the six groups; all but the slow one know by now which replica to read from."""
    groups = zoo(cluster.bootstrap, topic, name)
    quick = list(groups.values())[:-1]
    with ExitStack() as opened:
        for members in groups.values():
            for member in members:
                opened.enter_context(member)
        admin = opened.enter_context(closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap)))
        inspector = GroupCollector(admin, STOCK)
        wait_for_all(inspector, groups)
        for round_ in (1, 2, 3):
            write(cluster.bootstrap, topic, 1)
            wait_until(lambda r=round_: all(records(m) >= r * PARTITIONS for m in quick), "all read")  # type: ignore[misc]
        yield groups, admin


def test_what_is_shown_of_six_groups_is_what_the_kernel_counts(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str]
) -> None:
    topic = make_topic(replicas=[[1 + p % 3, 1 + (p + 1) % 3] for p in range(PARTITIONS)])
    racks = {broker.port: str(broker.rack) for broker in rack_cluster.brokers}
    with running(rack_cluster, topic, unique_name) as (groups, admin):
        quick = dict(list(groups.items())[:-1])
        inspector = GroupCollector(admin, STOCK)
        before = {name: counted(members, racks) for name, members in quick.items()}
        wrote = False

        def while_measuring(progress: Progress) -> None:
            nonlocal wrote
            if progress.step.startswith("Measuring") and not wrote:
                wrote = True
                write(rack_cluster.bootstrap, topic, ROUND)
                wait_until(lambda: all(records(m) >= (3 + ROUND) * PARTITIONS for m in quick.values()), "all read")

        report = inspector.report(None, interval_s=0.2, report_progress=while_measuring)
        after = {name: counted(members, racks) for name, members in quick.items()}
    found = {i.snapshot.live.name: i for i in report.inspections}
    for name in quick:
        arrived = {pair: size - before[name].get(pair, 0) for pair, size in after[name].items()}
        read = {pair: size for pair, size in arrived.items() if size > 0.03 * sum(arrived.values())}
        shown = traffic_matrix(found[name].now, found[name].rates.bytes_read)
        assert read == {pair: pytest.approx(size, rel=0.05) for pair, size in shown.pairs.items() if size}, name
        assert sum(read.values()) == pytest.approx(ROUND * PARTITIONS * RECORD, rel=0.05)
    names = list(quick)
    # Stock members read from leaders, two in one rack have no near replica of each third partition, and librdkafka's
    # range looks at no rack.
    assert [found[name].flows.cross > 0 for name in names] == [True, False, True, True, False]


@contextmanager
def written_steadily(bootstrap: str, topic: str) -> Iterator[None]:
    """Write 4 records a second to each partition while the block lasts."""

    def work(over: threading.Event) -> None:
        with closing(KafkaProducer(bootstrap_servers=bootstrap, linger_ms=20)) as to:
            while not over.wait(0.25):
                for partition in range(PARTITIONS):
                    to.send(topic, os.urandom(SMALL), partition=partition)

    with meanwhile(work):
        yield


def test_a_group_that_lags_pays_for_what_it_reads_and_not_for_what_is_written(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str], tmp_path: Path
) -> None:
    topic = make_topic(replicas=[[2]] * PARTITIONS)
    bootstrap, slow, quick = rack_cluster.bootstrap, unique_name(), unique_name()
    file = tmp_path / "racks.json"
    file.write_text(json.dumps({"client_ids": {"*-in-a": "a"}}), "utf-8")
    write(bootstrap, topic, EARLIER, SMALL)
    with (
        MemberProcess("kafka-python", bootstrap, slow, [topic], "a", client_id="s-in-a", slowly=True) as lagging,
        MemberProcess("rackassign", bootstrap, quick, [topic], "a", client_id="q-in-a") as reading,
        written_steadily(bootstrap, topic),
        closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin,
    ):
        wait_until(lambda: records([lagging]) > 25 and records([reading]) > EARLIER * PARTITIONS, "both read")
        # Until then this group seems to lag by all that it has read.
        wait_until(
            lambda: min(committed(rack_cluster, quick, topic, PARTITIONS)) >= EARLIER,
            "commits of the quick one",
        )
        begin: list[int] = []

        def while_measuring(progress: Progress) -> None:
            if progress.step.startswith("Measuring") and not begin:
                begin.append(sum(committed(rack_cluster, slow, topic, PARTITIONS)))
                # Many times what it reads from one commit to the next. Not what it has read: a commit may be late.
                wait_until(
                    lambda: sum(committed(rack_cluster, slow, topic, PARTITIONS)) >= begin[0] + LAGGING,
                    "commits of the one that lags",
                )

        report = GroupCollector(admin, STOCK).report([slow, quick], interval_s=0.2, report_progress=while_measuring)
        read = sum(committed(rack_cluster, slow, topic, PARTITIONS)) - begin[0]
        # Several commits, of which one may be late.
        words = ("--group", slow, "--group", quick, "--interval", "20", "--rack-map", str(file))
        shown = json.loads(rackassign("inspect", bootstrap, *words, "--output", "json").stdout)
    found: dict[str, GroupAnalysis] = {i.snapshot.live.name: i for i in report.inspections}
    rates = found[slow].rates
    assert rates.measured_by == "committed"
    assert sum(rates.bytes_read.values()) == pytest.approx(read * SMALL, rel=0.5)
    assert sum(rates.bytes_s.values()) < rates.written_s / 3
    assert (found[quick].rates.measured_by, found[quick].rates.by_commits) == ("written", frozenset())
    assert (rates.total_lag or 0) > 100 > PARTITIONS
    by_name: dict[str, Any] = {row["group"]: row for row in shown["groups"]}
    assert by_name[slow]["measured_by"] == "committed"
    assert by_name[slow]["usd_per_month"]["cross"] < by_name[quick]["usd_per_month"]["cross"] / 3
    assert by_name[slow]["lag"]["records"] == sum(by_name[slow]["lag"]["partitions"][topic].values())
