"""What brokers report of a layout: which of them are fenced, which replicas are in sync, and what is being moved."""

from __future__ import annotations

from collections.abc import Sequence

from kafka import KafkaAdminClient

from rackassign.admin.cluster import describe_topics, list_brokers
from rackassign.admin.raw_requests import forget_controller
from rackassign.admin.reassignments import OngoingReassignment, ReassignmentAdmin
from rackassign.model import TopicPartition


def fenced(admin: KafkaAdminClient) -> list[int]:
    """Return the IDs of brokers that are registered and do not run."""
    return [broker.id for broker in list_brokers(admin) if broker.fenced]


def whole(admin: KafkaAdminClient, names: Sequence[str]) -> bool:
    """Return whether all replicas of the topics are in sync."""
    found = describe_topics(admin, names)
    return all(
        set(partition.replicas) == set(in_sync)
        for topic in found.values()
        for partition, in_sync in zip(topic.partitions, topic.in_sync, strict=True)
    )


def moving(admin: KafkaAdminClient) -> dict[TopicPartition, OngoingReassignment]:
    """Return the reassignments in progress, as the controller of this moment knows them."""
    forget_controller(admin)
    return ReassignmentAdmin(admin).list_reassignments()
