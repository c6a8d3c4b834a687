"""The pages on creating topics during an outage and on repairing a layout, one after the other, on one cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer

from rackassign import RackAwareConsumer
from rackassign.admin.describe import describe_topics
from rackassign.testing import Cluster, create_topic
from rackassign.testing.harness import GroupHarness, KafkaPythonMember, wait_until
from rackassign.testing.pytest_plugin import MakeCluster
from tests.helpers.kafka.documented_page import Page
from tests.helpers.kafka.layout_states import fenced, moving, whole
from tests.helpers.machine_speed import machine_factor

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.docs]

RACKS = ("a", "b", "c", "a", "b", "a")
CREATE = "--partitions 6 --replication-factor 3 --policy enabled --config min.insync.replicas=2"
STARVED = [[1, 3], [3, 4]]
"""Replicas of a topic which only rack b can complete."""
LED_BY_ONE = [[1, 2, 3]] * 7
FAR = [[3]] * 6
"""Replicas of a topic in rack c, where the group has no member."""
LOG_BYTES = 3_000_000
"""Of a partition: a throttle counts only after the first fetch of a follower, which is of a megabyte."""
# So slow that partitions still move when the test looks, also on a busy machine. One of them is awaited, one is not.
SLOW, STOPPED = str(round(1_000_000 / machine_factor())), "5k"


def fill(cluster: Cluster, topic: str, partitions: int) -> None:
    with closing(KafkaProducer(**cluster.client_config(), acks="all")) as producer:
        for number in range(partitions):
            for _ in range(LOG_BYTES // 10_000):
                producer.send(topic, b"x" * 10_000, partition=number)
        producer.flush()


@contextmanager
def group_in_two_racks(cluster: Cluster, topic: str) -> Iterator[None]:
    """The group of the page: a member in rack a, one in rack b, and none in rack c, where everything is."""
    access = cluster.client_config()

    def member(rack: str) -> KafkaPythonMember:
        return KafkaPythonMember(lambda: RackAwareConsumer(topic, **access, group_id="billing", client_rack=rack))

    group: GroupHarness[KafkaPythonMember] = GroupHarness(access, "billing", {topic: len(FAR)})
    with group:
        for rack in "ab":
            group.add(rack, member(rack))
        group.settle()
        yield


def test_topics_of_an_outage_are_created_and_repaired(make_cluster: MakeCluster, tmp_path: Path) -> None:
    six = make_cluster(RACKS)
    with closing(KafkaAdminClient(bootstrap_servers=six.bootstrap)) as admin:
        follow_both_pages(six, admin, tmp_path)


def follow_both_pages(six: Cluster, admin: KafkaAdminClient, tmp_path: Path) -> None:
    here = f"--bootstrap-server {six.bootstrap}"
    six.kill_rack("b")
    wait_until(lambda: fenced(admin) == [2, 5], "an outage of rack b")
    with Page("docs/how-to/create-a-topic-during-an-outage.md", tmp_path, six.bootstrap) as page:
        for _ in range(3):
            page.run(more=here)
    admin.delete_topics(["orders"])
    wait_until(lambda: describe_topics(admin, ["orders"])["orders"].problem is not None, "the topic deleted")

    with Page("docs/how-to/repair-a-layout.md", tmp_path, six.bootstrap, {"100k": STOPPED}) as page:
        page.leave("the test's cluster, outage and topic are the same", 5)
        with page.beside(f"rackassign create-topic orders {CREATE} {here}") as creating:
            assert creating.wait() == 0
        fill(six, "orders", 6)
        assert "broker" in page.run(1, more=here)
        six.start_rack("b")
        wait_until(lambda: fenced(admin) == [] and whole(admin, ["orders"]), "the end of the outage")
        for code in (1, 0, 0, 0):
            page.run(code, more=here)

        create_topic(six.bootstrap, "far", FAR)
        with group_in_two_racks(six, "far"):
            page.run(more=here)
            page.run(more=here)

        with page.beside(f"rackassign reassign plan {here}") as planning:
            assert planning.wait() == 0
        with page.started(130, more=here) as applying:
            applying.wait_until(lambda: moving(admin), "partitions that move")
        with page.beside(f"rackassign reassign apply --throttle {SLOW} --batch-size 2 {here}") as applying:
            applying.wait_until(lambda: moving(admin), "partitions that move")
            applying.kill()
        wait_until(lambda: not moving(admin), "the end of what was submitted")
        page.run(2, more=here)
        page.run(more=here)

        create_topic(six.bootstrap, "bills", STARVED)
        create_topic(six.bootstrap, "clicks", LED_BY_ONE)
        (tmp_path / "constraints.json").write_text(json.dumps({"max_per_rack": 1}), "utf-8")
        six.kill_rack("b")
        wait_until(lambda: fenced(admin) == [2, 5], "another outage of rack b")
        page.run(more=here)
        with page.started(more=here) as applying:
            six.start_rack("b")
            assert applying.wait() == 0
        wait_until(lambda: fenced(admin) == [] and whole(admin, ["clicks"]), "the end of the outage")
        page.run(more=here)
