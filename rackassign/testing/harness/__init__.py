"""Consumer groups in tests: members in threads, a group that settles, and records that keep coming.

A group can have members of kafka-python, aiokafka and confluent-kafka. `GroupHarness.settle` waits until every member
has the partitions that the group coordinator assigned to it, and `Traffic` writes records meanwhile:

    with GroupHarness(cluster.client_config(), "g", {topic: 6}) as group, Traffic(cluster.client_config(), [topic]):
        for rack in "abc":
            group.add(rack, KafkaPythonMember(lambda rack=rack: RackAwareConsumer(topic, client_rack=rack, ...)))
        assert len(group.settle()["a"]) == 2

Every wait ends with a `TimeoutError` that states what was waited for. No wait decides by time alone: a member is asked
for its assignment and the coordinator for what it assigned, until the two agree.
"""

from __future__ import annotations

from rackassign.testing.harness.group import GroupHarness, assigned, settle
from rackassign.testing.harness.members import (
    TIMEOUT_S,
    AiokafkaMember,
    ConfluentMember,
    GroupMember,
    KafkaPythonMember,
    Owned,
    Record,
    ThreadedMember,
    commit_records,
    poll_records,
    to_owned,
    wait_until,
)
from rackassign.testing.harness.traffic import Traffic

__all__ = [
    "TIMEOUT_S",
    "AiokafkaMember",
    "ConfluentMember",
    "GroupHarness",
    "GroupMember",
    "KafkaPythonMember",
    "Owned",
    "Record",
    "ThreadedMember",
    "Traffic",
    "assigned",
    "commit_records",
    "poll_records",
    "settle",
    "to_owned",
    "wait_until",
]
