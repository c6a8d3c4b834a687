"""The JSON of `kafka-reassign-partitions`, to export a plan to that tool or import one from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rackassign.errors import InputError
from rackassign.model import TopicPartition
from rackassign.placement.cluster_state import ClusterState
from rackassign.reassignment.partition_state import Replicas
from rackassign.reassignment.planner import ReassignmentPlan, plan_from_lists
from rackassign.util.text import short_repr

_VERSION = 1


def write_reassignment(lists: Mapping[TopicPartition, Replicas]) -> str:
    """Return lists in the format of `kafka-reassign-partitions --execute`."""
    partitions = [
        {"topic": topic, "partition": number, "replicas": list(replicas)}
        for (topic, number), replicas in sorted(lists.items())
    ]
    return json.dumps({"version": _VERSION, "partitions": partitions})


def read_reassignment(value: Any) -> dict[TopicPartition, Replicas]:  # noqa: ANN401 - parsed JSON
    """Return the lists in parsed JSON of `kafka-reassign-partitions`; log directories are ignored.

    Raises:
        InputError: A field does not have this format; the message names it.
    """
    if not isinstance(value, dict):
        raise InputError("", f"expected an object, got {short_repr(value)}")
    if value.get("version") != _VERSION:
        raise InputError("version", f"expected {_VERSION}, got {short_repr(value.get('version'))}")
    rows = value.get("partitions")
    if not isinstance(rows, list):
        raise InputError("partitions", f"expected an array, got {short_repr(rows)}")
    found: dict[TopicPartition, Replicas] = {}
    for i, row in enumerate(rows):
        tp, replicas = _row(f"partitions[{i}]", row)
        if tp in found:
            raise InputError(f"partitions[{i}]", f"{tp.topic}-{tp.partition} is listed twice")
        found[tp] = replicas
    return found


def plan_from_json(state: ClusterState, lists: Mapping[TopicPartition, Replicas]) -> ReassignmentPlan:
    """Return the plan for given lists.

    Raises:
        InputError: A partition or a broker does not exist.
    """
    brokers = {broker.id for broker in state.brokers}
    for (topic, number), replicas in sorted(lists.items()):
        known = state.topics.get(topic)
        if known is None or number >= len(known.partitions):
            raise InputError("partitions", f"partition {topic}-{number} does not exist")
        for broker in sorted(set(replicas) - brokers):
            raise InputError("partitions", f"{topic}-{number}: broker {broker} does not exist")
    return plan_from_lists(state, lists)


def _row(path: str, row: Any) -> tuple[TopicPartition, Replicas]:  # noqa: ANN401 - parsed JSON
    if not isinstance(row, dict):
        raise InputError(path, f"expected an object, got {short_repr(row)}")
    topic, number, replicas = row.get("topic"), row.get("partition"), row.get("replicas")
    if not isinstance(topic, str) or not topic:
        raise InputError(f"{path}.topic", f"expected the name of a topic, got {short_repr(topic)}")
    if type(number) is not int or number < 0:
        raise InputError(f"{path}.partition", f"expected 0 or more, got {short_repr(number)}")
    if not isinstance(replicas, list) or not replicas or any(type(broker) is not int for broker in replicas):
        raise InputError(f"{path}.replicas", f"expected broker IDs, got {short_repr(replicas)}")
    if len(set(replicas)) < len(replicas):
        raise InputError(f"{path}.replicas", "a broker is listed twice")
    return TopicPartition(topic, number), tuple(replicas)
