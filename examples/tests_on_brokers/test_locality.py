"""Each member reads in its own rack."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

from app import Counting
from kafka import KafkaProducer

from rackassign.testing import Cluster
from rackassign.testing.harness import wait_until


def test_each_member_reads_in_its_rack(
    rack_cluster: Cluster, make_topic: Callable[..., str], unique_name: Callable[[], str]
) -> None:
    # One replica each: only the member in its rack can read a partition locally.
    topic, group = make_topic(replicas=[[1], [2], [3]] * 2), unique_name()
    access: dict[str, Any] = rack_cluster.client_config()
    with ExitStack() as opened:
        members = [opened.enter_context(closing(Counting(topic, zone, group_id=group, **access))) for zone in "abc"]

        def settled() -> bool:
            for member in members:
                member.step()
            return [len(member.consumer.assignment()) for member in members] == [2, 2, 2]

        wait_until(settled, "two partitions for each member")
        with closing(KafkaProducer(**access, acks="all")) as producer:
            for number in range(60):
                producer.send(topic, b"%d" % number, partition=number % 6).get()

        wait_until(lambda: sum(member.step() for member in members) == 60, "all records counted")
        for member in members:
            assert member.consumer.locality().cross().records == 0
