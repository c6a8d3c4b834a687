"""Weights that the leader of a group measures: bytes per second of each partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing

import pytest
from kafka import KafkaConsumer, KafkaProducer

from rackassign import ByteRates, RackAwareConsumer, RackAwareCooperativeStickyAssignor
from rackassign.assignor.optimal_planner import Weigher
from rackassign.testing import Cluster
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.consumers import CONSUMER
from tests.helpers.machine_speed import scaled_ms

pytestmark = pytest.mark.brokers

OTHERS = 35
BUSY, OTHER = b"x" * 60_000, b"x" * 2_000
"""A tick's records: one partition is written as much as 30 others."""


class NothingMeasured:
    """A weigher that has just begun."""

    def weigh(self, partition_counts: Mapping[str, int]) -> None:
        """Return that nothing is known."""

    def pause(self) -> None:
        """Do nothing."""


def test_a_busy_partition_is_weighed_and_a_new_leader_that_knows_no_rates_keeps_what_members_have(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str]
) -> None:
    # The busy partition is local to `b` only, so the leader can leave without it.
    busy, others = make_topic(replicas=[[2]]), make_topic(replicas=[[1, 2, 3]] * OTHERS)
    every = [(busy, 0), *((others, partition) for partition in range(OTHERS))]
    group = unique_name()
    rates = ByteRates(interval_s=1.0, bootstrap_servers=rack_cluster.bootstrap)
    members: dict[str, KafkaConsumer] = {}
    with ExitStack() as opened:
        opened.callback(rates.close)
        producer = opened.enter_context(closing(KafkaProducer(bootstrap_servers=rack_cluster.bootstrap)))

        def start(name: str, weigher: Weigher) -> None:
            members[name] = RackAwareConsumer(
                busy,
                others,
                bootstrap_servers=rack_cluster.bootstrap,
                group_id=group,
                client_rack=name,
                partition_assignment_strategy=[RackAwareCooperativeStickyAssignor(rack=name, weights=weigher)],
                **CONSUMER,
            )
            opened.callback(members[name].close, timeout_ms=scaled_ms(5000))

        def owned(name: str) -> set[tuple[str, int]]:
            return {(tp.topic, tp.partition) for tp in members[name].assignment()}

        def settled() -> bool:
            """Write and poll once; return whether each partition has an owner, each member one, and none joins again.

            A member that is about to join again may have to give up partitions.
            """
            for topic, partition in every:
                producer.send(topic, BUSY if topic == busy else OTHER, partition=partition)
            producer.flush()
            for member in members.values():
                member.poll(timeout_ms=50)
            coordinators = [member._coordinator for member in members.values()]
            generations = {coordinator._generation.generation_id for coordinator in coordinators}
            if len(generations) > 1 or any(coordinator.need_rejoin() for coordinator in coordinators):
                return False
            each = [owned(name) for name in members]
            return all(each) and sorted(tp for some in each for tp in some) == sorted(every)

        def busy_is_known() -> bool:
            settled()
            known = rates.weigh({busy: 1, others: OTHERS})
            return known is not None and known[busy][0] > 10 * max(known[others])

        start("a", rates)
        wait_until(settled, "the first member has all partitions")
        wait_until(busy_is_known, "the rate of the busy partition is known to the leader")
        for name in "bc":
            start(name, NothingMeasured())
            wait_until(settled, f"{name} has joined")
        # Counted, each would have twelve.
        assert (busy, 0) in owned("b")
        assert len(owned("b")) <= 4
        before = {name: owned(name) for name in "bc"}
        members.pop("a").close()
        wait_until(settled, "the partitions of the leader that left are assigned")
        after = {name: owned(name) for name in "bc"}
        assert all(after[name] >= before[name] for name in before), (before, after)
        # Counted, `b` would have been given nearly all that came free.
        assert len(after["b"]) < len(after["c"]), (before, after)
