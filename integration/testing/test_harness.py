"""The documented example of the consumer harness, and a group of all three clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from kafka.protocol.metadata import CoordinatorType

from rackassign import RackAwareConsumer, RackAwareRangeAssignor
from rackassign.clients import aiokafka, confluent
from rackassign.testing import Cluster
from rackassign.testing.harness import (
    AiokafkaMember,
    ConfluentMember,
    GroupHarness,
    KafkaPythonMember,
    ThreadedMember,
    Traffic,
    wait_until,
)
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.documents import blocks

pytestmark = [pytest.mark.brokers, pytest.mark.local]

GUIDE = "docs/how-to/test-on-a-multi-rack-cluster.md"


def test_the_example_of_the_guide_passes(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str]
) -> None:
    example = "test_each_member_reads_in_its_rack_and_nothing_is_lost"
    [block] = [block for block in blocks(GUIDE) if example in block.text]
    names: dict[str, Any] = {}
    exec(compile(block.text, block.place, "exec"), names)  # noqa: S102 - our own documentation
    names[example](rack_cluster, make_topic, unique_name)


def test_all_three_clients_in_one_group(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str]
) -> None:
    topic, name = make_topic(replicas=[[1], [2], [3]] * 2), unique_name()
    access = rack_cluster.client_config()
    config = {"group_id": name, "auto_offset_reset": "earliest"}

    def python() -> Any:
        return RackAwareConsumer(
            topic, **access, **config, client_rack="a", partition_assignment_strategy=[RackAwareRangeAssignor]
        )

    def aio() -> Any:
        strategy = [aiokafka.RackAwareRangeAssignor(rack="b")]
        return AIOKafkaConsumer(topic, **access, **config, client_rack="b", partition_assignment_strategy=strategy)

    def librdkafka() -> Any:
        properties = {"bootstrap.servers": rack_cluster.bootstrap, "client.rack": "c", "group.id": name}
        consumer = confluent.RackAwareConsumer(
            {**properties, "auto.offset.reset": "earliest"}, assignors=[RackAwareRangeAssignor(rack="c")]
        )
        consumer.subscribe([topic])
        return consumer

    with GroupHarness[ThreadedMember](access, name, {topic: 6}) as group, Traffic(access, [topic]) as traffic:
        for rack, member in {"a": KafkaPythonMember(python), "b": AiokafkaMember(aio)}.items():
            group.add(rack, member)
        group.add("c", ConfluentMember(librdkafka))
        owned = group.settle()
        assert {rack: {tp.partition for tp in tps} for rack, tps in owned.items()} == {
            "a": {0, 3},
            "b": {1, 4},
            "c": {2, 5},
        }
        # Its admin client has the coordinator of another time.
        known = group.admin._manager.cluster._coordinators
        assert list(known) == [(CoordinatorType.GROUP, name)]
        known[CoordinatorType.GROUP, name] = known[CoordinatorType.GROUP, name] % 3 + 1
        assert group.settle() == owned
        since = len(traffic.written())
        traffic.wait_for_more()
        wait_until(lambda: all(len(member.records) > 0 for member in group.members.values()), "records of all")
        for member in group.members.values():
            member.poll()
    assert len(traffic.written()) > since
