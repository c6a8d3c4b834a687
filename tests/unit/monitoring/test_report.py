"""The JSON of a report follows its published schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from typing import TypeVar

import pytest
from jsonschema import Draft202012Validator

from rackassign import __version__
from rackassign.model import TopicPartition
from rackassign.monitoring import ClusterReport, Price, RackMap, ReadRates, SkippedGroup, Throughput, as_json
from rackassign.monitoring.live_groups import snapshot, topics_of
from tests.helpers.builders import brokers, cluster, group, inspected, member, rates
from tests.helpers.json_schemas import check, schema, strict

SCHEMA = schema("inspection")
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)

THERE = cluster({"t": [[1, 2], [2], [3]], "gone": [[1]]}, brokers(("a", "b", None)))
KNOWN = rates({("t", p): 1000.0 * (p + 1) for p in range(3)})
LAGGING = ReadRates(
    {TopicPartition("t", 0): 5.0}, {TopicPartition("t", 0): 50.0}, {TopicPartition("t", 0): 7}, frozenset()
)


@pytest.mark.parametrize("measured", [True, False])
def test_it_follows_the_schema(*, measured: bool) -> None:
    known = KNOWN if measured else Throughput()
    groups = (
        inspected(
            group(member("m1", "a", {"t": [0, 1]}), member("m2", None, {"t": [2]}), name="odd"),
            THERE,
            known,
            RackMap({"m2": "b"}),
        ),
        inspected(group(member("m1", None, {"t": [0]}), name="silent"), THERE, LAGGING if measured else known),
        inspected(group(name="empty"), THERE, known),
    )
    report = ClusterReport(THERE, groups, (SkippedGroup("", "odd"), SkippedGroup("x", "odd")), known)
    found = json.loads(json.dumps(as_json(report, Price(), AT)))
    check("inspection", found)
    assert (found["version"], found["time"]) == (__version__, "2026-01-02T03:04:05+00:00")
    assert (found["groups"][0]["savings"] is not None) == measured
    if measured:
        assert found["groups"][1]["lag"] == {
            "records": 7,
            "partitions": {"t": {"0": 7}},
            "racks": [{"rack": None, "records": 7}],
        }


def test_the_schema_finds_what_is_undocumented_or_missing() -> None:
    report = ClusterReport(THERE, (inspected(group(member("m1", "a", {"t": [0]})), THERE, KNOWN),), (), KNOWN)
    found = as_json(report, Price(), AT)
    found["groups"][0]["lagg"] = found["groups"][0].pop("lag")
    assert len(list(Draft202012Validator(strict(SCHEMA)).iter_errors(found))) == 2
    assert len(list(Draft202012Validator(SCHEMA).iter_errors(found))) == 1


T = TypeVar("T")


class Counted(tuple[T, ...]):  # noqa: SLOT001 - it counts
    """A tuple that counts how often it is iterated over."""

    passes = 0

    def __iter__(self) -> Iterator[T]:
        self.passes += 1
        return super().__iter__()


def passes(members: int) -> tuple[int, int, int]:
    """Return how often all members, and all partitions, are looked at for a snapshot and for the JSON of a group."""
    there = cluster({"t": [[1]] * members})
    asked = Counted(member(f"m{i}", "a", {"t": [i]}) for i in range(members))
    live = replace(group(), members=asked)
    shot = snapshot(live, there.topology, RackMap())
    topics_of(live)
    seen = inspected(group(*asked), there)
    reads, kept = Counted(seen.now), Counted(shot.group.members)
    seen = replace(seen, now=reads, snapshot=replace(shot, group=replace(shot.group, members=kept)))
    before = kept.passes
    as_json(ClusterReport(there, (seen,), (), Throughput()), Price())
    return asked.passes, reads.passes, kept.passes - before


def test_a_large_group_is_not_looked_at_once_for_each_member() -> None:
    assert passes(40) == passes(4)
