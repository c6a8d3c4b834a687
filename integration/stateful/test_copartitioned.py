"""Co-partitioned topics on real brokers: the partitions of one number have one owner and one state."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer

from rackassign.errors import ConfigError
from rackassign.stateful import StatefulConsumer
from rackassign.testing import Cluster
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.stateful_group import UNHURRIED_MS, Fleet

pytestmark = [pytest.mark.brokers, pytest.mark.local]

TIMEOUT_S = 600.0
PARTITIONS = 6
RACKS_OF_ORDERS = [[1, 2], [2, 3], [3, 1]] * (PARTITIONS // 3)
RACKS_OF_PAYMENTS = [[2, 3], [3, 1], [1, 2]] * (PARTITIONS // 3)


@pytest.fixture
def topics(make_topic: MakeTopic) -> tuple[str, str]:
    return make_topic(replicas=RACKS_OF_ORDERS), make_topic(replicas=RACKS_OF_PAYMENTS)


@pytest.fixture
def group(unique_name: Callable[[], str]) -> str:
    return unique_name()


@pytest.fixture
def fleet(rack_cluster: Cluster, topics: tuple[str, str], group: str, tmp_path: Path) -> Iterator[Fleet]:
    unhurried: dict[str, Any] = {"session_timeout_ms": UNHURRIED_MS}
    with closing(Fleet(rack_cluster.bootstrap, group, ",".join(topics), tmp_path, 1, PARTITIONS, **unhurried)) as made:
        for name in ("ax", "bx", "cx"):
            made.start(name)
        yield made


def check_together(fleet: Fleet, topics: tuple[str, ...], partitions: int = PARTITIONS) -> None:
    """Check that each member has the partitions of one number of all topics, and each partition one owner."""
    owners = defaultdict[int, list[tuple[str, str]]](list)
    for name, tps in fleet.assigned().items():
        for topic, partition in tps:
            owners[partition].append((topic, name))
    for partition in range(partitions):
        here = sorted(owners[partition])
        assert [topic for topic, _ in here] == sorted(topics), owners
        assert len({name for _, name in here}) == 1, owners


def partitions(bootstrap: str, topic: str) -> int:
    with closing(KafkaConsumer(bootstrap_servers=bootstrap)) as reader:
        return len(reader.partitions_for_topic(topic) or ())


@pytest.mark.release
def test_one_member_has_both_partitions_and_its_successor_is_warm(fleet: Fleet, topics: tuple[str, str]) -> None:
    fleet.come_to_rest(1, TIMEOUT_S)
    check_together(fleet, topics)
    fleet.write(2000)
    wait_until(lambda: fleet.done() >= 1000, "records being processed", timeout_s=TIMEOUT_S)
    before, killed = fleet.now(), time.time()
    assert before["ax"][0]
    fleet.kill("ax")
    fleet.write(1000)
    fleet.come_to_rest(1, TIMEOUT_S)
    check_together(fleet, topics)
    for partition in before["ax"][0]:
        since = [(name, line) for name in fleet.running for line in fleet.output_lines(name) if line["at"] > killed]
        # Later it may move once more, to a member that has warmed up.
        _, heir = min((line["at"], name) for name, line in since if partition in line.get("runs", ()))
        assert partition in before[heir][1], f"{heir} runs {partition}, and another has the copy"
        restored = (line["restored"] for name, line in since if name == heir and "restored" in line)
        # Of a copy that is warm nothing is lacking.
        assert next(total for place, _, total in restored if place == partition) == 0
    fleet.counts_right(TIMEOUT_S)
    fleet.start("ay")
    fleet.write(1000)
    fleet.come_to_rest(1, TIMEOUT_S)
    check_together(fleet, topics)
    assert fleet.now()["ay"][0]
    fleet.counts_right(TIMEOUT_S)
    fleet.end()


def test_topics_of_different_sizes_are_refused_at_the_start(
    rack_cluster: Cluster, make_topic: MakeTopic, group: str, tmp_path: Path
) -> None:
    topics = make_topic(replicas=RACKS_OF_ORDERS), make_topic(replicas=RACKS_OF_ORDERS[:4])
    with pytest.raises(ConfigError) as raised:
        StatefulConsumer(
            *topics,
            copartitioned=True,
            process=lambda *_: None,
            state_dir=tmp_path,
            bootstrap_servers=rack_cluster.bootstrap,
            group_id=group,
        )
    assert f"equal numbers of partitions: {topics[0]} has 6, {topics[1]} has 4;" in str(raised.value)
    assert partitions(rack_cluster.bootstrap, f"{group}-{'-'.join(topics)}-changelog") == 0


@pytest.mark.release
@pytest.mark.parametrize("first", [pytest.param(0, id="orders-first"), pytest.param(1, id="payments-first")])
def test_a_topic_extended_alone_waits_for_the_other(
    rack_cluster: Cluster, fleet: Fleet, topics: tuple[str, str], group: str, first: int
) -> None:
    bootstrap, changelog = rack_cluster.bootstrap, f"{group}-{'-'.join(topics)}-changelog"
    extended, other = topics[first], topics[1 - first]
    fleet.come_to_rest(1, TIMEOUT_S)
    fleet.write(500)
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        admin.create_partitions({extended: PARTITIONS + 2})
        sizes = {extended: PARTITIONS + 2, other: PARTITIONS}
        counts = ", ".join(f"{topic} has {sizes[topic]}" for topic in sorted(topics))
        for partition in range(PARTITIONS, PARTITIONS + 2):
            fleet.write_one(extended, partition)
        wait_until(
            lambda: any(counts in fleet.errors(name) for name in fleet.running), "the warning", timeout_s=TIMEOUT_S
        )
        fleet.write(500)
        fleet.come_to_rest(1, TIMEOUT_S)
        check_together(fleet, topics)
        fleet.counts_right(TIMEOUT_S)
        assert partitions(bootstrap, changelog) == PARTITIONS
        admin.create_partitions({other: PARTITIONS + 2})
        fleet.partitions += 2
        fleet.write(500)
        fleet.come_to_rest(1, TIMEOUT_S)
    check_together(fleet, topics, PARTITIONS + 2)
    fleet.counts_right(TIMEOUT_S)
    assert partitions(bootstrap, changelog) == PARTITIONS + 2
    messages = [line for name in fleet.running for line in fleet.errors(name).splitlines() if counts in line]
    # Once for each member that has one of the new partitions or a copy of it.
    assert 0 < len(messages) <= len(fleet.running)
    fleet.end()
