"""What brokers report of a layout: which of them are fenced, which replicas are in sync, and what is being moved.

Each broker applies by itself what the controller has decided, and the next command may ask any of them. So a state is
one that all living brokers report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.protocol.metadata import MetadataRequest

from rackassign.admin.alter import OngoingReassignment, ReassignmentAdmin
from rackassign.admin.describe import DescribedTopic, describe_topics_on, list_brokers
from rackassign.admin.raw_requests import forget_controller, send
from rackassign.model import TopicPartition


def fenced(admin: KafkaAdminClient) -> list[int] | None:
    """Return the IDs of brokers that are registered and do not run; None while the living ones do not agree."""
    brokers = list_brokers(admin)
    living = {broker.id for broker in brokers if not broker.fenced}
    with suppress(KafkaError):
        if all(_listed(admin, broker) == living for broker in living):
            return [broker.id for broker in brokers if broker.fenced]
    # One that has just died is not fenced yet, and does not respond.
    return None


def _listed(admin: Any, broker: int) -> set[int]:
    """Return the brokers that run, according to one of them."""
    response = send(admin, MetadataRequest(topics=[], allow_auto_topic_creation=False), broker)
    return {row.node_id for row in response.brokers}


def whole(admin: KafkaAdminClient, names: Sequence[str]) -> bool:
    """Return whether all replicas of the topics are in sync, according to all living brokers."""
    living = [broker.id for broker in list_brokers(admin) if not broker.fenced]
    with suppress(KafkaError):
        return all(_in_sync(describe_topics_on(admin, broker, names), names) for broker in living)
    return False


def _in_sync(found: Mapping[str, DescribedTopic], names: Sequence[str]) -> bool:
    return all(
        found[name].partitions
        and all(
            set(partition.replicas) == set(in_sync)
            for partition, in_sync in zip(found[name].partitions, found[name].in_sync, strict=True)
        )
        for name in names
    )


def moving(admin: KafkaAdminClient) -> dict[TopicPartition, OngoingReassignment]:
    """Return the reassignments in progress, as the controller of this moment knows them."""
    forget_controller(admin)
    return ReassignmentAdmin(admin).list_reassignments()
