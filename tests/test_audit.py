"""What an audit finds in how replicas lie, and does not find in a sound cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from rackassign.clients.kafka_python.admin import DescribedTopic
from rackassign.model import Broker, Partition, TopicPartition
from rackassign.placement.audit import Audit, Load, audit
from rackassign.placement.state import ClusterState

BROKERS = tuple(Broker(i, rack) for i, rack in enumerate("aabbcc", 1))
SOUND = [[1, 3, 5], [4, 6, 2], [5, 1, 3]]


def topic(rows: Sequence[Sequence[int]], **more: Any) -> DescribedTopic:
    made = {"in_sync": tuple(map(tuple, rows)), "offline": ((),) * len(rows), **more}
    return DescribedTopic(tuple(Partition(tuple(row), row[0]) for row in rows), **made)


def state(rows: Sequence[Sequence[int]] = SOUND, *, min_isr: int = 2, **more: Any) -> ClusterState:
    found = {name: more.pop(name) for name in ("brokers", "in_flight", "differing") if name in more}
    return ClusterState(found.pop("brokers", BROKERS), {"t": topic(rows, **more)}, {"t": min_isr}, **found)


def kinds(of: Audit) -> dict[str, list[int]]:
    return {finding.kind: [place.partition for place in finding.partitions] for finding in of.findings}


def test_nothing_is_found_in_a_sound_cluster() -> None:
    seen = audit(state(), want_rf=3)
    assert seen.findings == ()
    assert seen.reliable
    assert seen.partitions == 3
    assert seen.by_broker[1] == Load(1, 2, 1 / 3, 2 / 9)
    assert seen.by_rack == {"a": Load(1, 3, 1 / 3, 1 / 3), "b": Load(1, 3, 1 / 3, 1 / 3), "c": Load(1, 3, 1 / 3, 1 / 3)}


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        (state([[1, 2, 3]]), {"shared-rack": [0]}),
        (state([[1, 2, 3]], brokers=tuple(Broker(i, "a") for i in (1, 2, 3))), {}),
        # Two racks and three copies: two of them must share one.
        (state([[1, 2, 3]], brokers=tuple(Broker(i, r) for i, r in enumerate("aab", 1))), {}),
        (state([[1, 3, 5]], min_isr=3), {"min-isr-is-rf": [0]}),
        (state([[1, 3, 5]], min_isr=4), {"min-isr-above-rf": [0]}),
        (state([[1]], min_isr=1), {}),
        (state([[1, 3, 5]], in_sync=((1, 3),)), {"at-min-isr": [0], "under-replicated": [0]}),
        (state([[1, 3, 5]], in_sync=((1, 3),), offline=((5,),)), {"at-min-isr": [0], "offline-replica": [0]}),
        (state([[1, 3, 5]], in_sync=((1,),), offline=((3, 5),)), {"under-min-isr": [0], "offline-replica": [0]}),
        (state(SOUND, differing=("x",)), {"views-differ": []}),
    ],
)
def test_what_is_wrong_is_found(seen: ClusterState, found: dict[str, list[int]]) -> None:
    assert kinds(audit(seen)) == found


def test_leaders_are_held_against_the_preferred_ones() -> None:
    moved = state()
    led = tuple(replace(p, leader=leader) for p, leader in zip(moved.topics["t"].partitions, (1, 6, None), strict=True))
    seen = replace(moved, topics={"t": replace(moved.topics["t"], partitions=led)})
    assert kinds(audit(seen)) == {"no-leader": [2], "leader-not-preferred": [1]}


def test_fewer_copies_than_wanted_are_found() -> None:
    assert kinds(audit(state([[1, 3], [3, 5, 1]], min_isr=1), want_rf=3)) == {"rf-below": [0]}


def test_what_is_in_flight_is_told_and_not_judged() -> None:
    seen = state([[1, 2, 3, 4]], min_isr=4, in_flight=frozenset({TopicPartition("t", 0)}))
    assert kinds(audit(seen, want_rf=5)) == {"in-flight": [0]}


def test_brokers_that_are_odd_are_named() -> None:
    odd = (replace(BROKERS[0], rack=None), replace(BROKERS[1], fenced=True), *BROKERS[2:5])
    seen = audit(state(SOUND, brokers=odd))
    named = {finding.kind: finding.brokers for finding in seen.findings}
    assert named == {"broker-without-rack": (1,), "broker-fenced": (2,), "broker-unknown": (6,)}
    assert seen.by_rack[None].replicas == 3
    nowhere = audit(state([[1, 2, 3]], brokers=tuple(replace(broker, rack=None) for broker in BROKERS)))
    assert [finding.problem for finding in nowhere.findings] == ["no broker has a rack"]


def test_a_broker_with_nothing_is_listed() -> None:
    seen = audit(state([[1, 3, 5]]))
    assert seen.by_broker[6] == Load(0, 0, 0.0, 0.0)
    assert audit(ClusterState(BROKERS, {})).by_rack["a"] == Load(0, 0, 0.0, 0.0)
