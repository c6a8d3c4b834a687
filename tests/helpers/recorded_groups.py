"""The groups of `tests/data` that Java's assignors were recorded with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rackassign.model import Broker, Group, Member, Partition, Topology

DATA = Path(__file__).parents[1] / "data"


def recorded(file: str) -> dict[str, list[dict[str, Any]]]:
    """Return the cases of a file, by kind."""
    cases: dict[str, list[dict[str, Any]]] = json.loads((DATA / file).read_text("utf-8"))
    return cases


def group_of(vector: dict[str, Any]) -> Group:
    """Return the group of a case; the first replica of a partition leads."""
    brokers = tuple(Broker(broker["id"], broker["rack"]) for broker in vector["brokers"])
    topics = {
        topic: tuple(Partition(tuple(replicas), replicas[0] if replicas else None) for replicas in partitions)
        for topic, partitions in vector["topics"].items()
    }
    members = tuple(
        Member(
            m["id"],
            frozenset(m["topics"]),
            rack=m["rack"],
            instance_id=m.get("instance_id") or m.get("group_instance_id"),
            owned={topic: tuple(partitions) for topic, partitions in (m.get("owned") or {}).items()},
            generation=m.get("generation"),
        )
        for m in vector["members"]
    )
    return Group(Topology(brokers, topics), members)
