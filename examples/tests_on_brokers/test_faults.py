"""A rack is killed, and a member: all records are counted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

from app import Counting
from kafka import KafkaProducer

from rackassign.testing import Cluster
from rackassign.testing.harness import wait_until


def test_nothing_is_lost_with_a_rack_and_a_member(
    rack_cluster: Cluster, make_topic: Callable[..., str], unique_name: Callable[[], str]
) -> None:
    topic, group = make_topic(partitions=6), unique_name()
    access: dict[str, Any] = rack_cluster.client_config()
    with closing(KafkaProducer(**access, acks="all")) as producer:
        for number in range(60):
            producer.send(topic, b"%d" % number, partition=number % 6).get()
    first = Counting(topic, "a", group_id=group, **access)
    with closing(first):
        wait_until(lambda: first.step() > 0, "some records counted")
        rack_cluster.kill_rack("b")
        first.step()
    with closing(Counting(topic, "c", group_id=group, **access)) as second:

        def all_counted() -> bool:
            second.step()
            # A record that both have counted is no loss.
            return len({*first.counts, *second.counts}) == 60

        wait_until(all_counted, "all records counted")
