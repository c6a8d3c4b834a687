"""Placers that place as Elasticsearch, HDFS and Redis do."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rackassign.errors import ConfigError
from rackassign.model import Broker
from rackassign.placement import ReplicaPlacementError, load_placer
from tests.helpers.generators.layouts import brokers_in


def test_forced_awareness_leaves_room_for_the_rack_that_is_down() -> None:
    lists = load_placer("elasticsearch", {"forced_racks": ["a", "b"]}).place(0, 8, 4, brokers_in(4))
    assert all(sum(broker >= 0 for broker in replicas) == 2 for replicas in lists)
    whole = load_placer("elasticsearch", {"forced_racks": ["a", "b"]}).place(0, 8, 4, brokers_in(4, 2))
    assert all(sum(broker > 4 for broker in replicas) == 2 for replicas in whole)


@pytest.mark.parametrize("sizes", [(3, 3, 3, 3), (3, 3), (4, 1), (6,), (1, 1, 1, 1, 1), (2, 1, 1, 1)])
@pytest.mark.parametrize("replicas", [1, 2, 3, 4, 5])
def test_hadoop_limits_a_rack_as_hdfs_does_and_has_two_share_one(replicas: int, sizes: tuple[int, ...]) -> None:
    brokers = brokers_in(*sizes)
    racks = {broker.id: broker.rack for broker in brokers}
    # BlockPlacementPolicyDefault.getMaxNodesPerRack.
    most = replicas if len(sizes) == 1 or replicas == 1 else (replicas - 1) // len(sizes) + 2
    most -= most == replicas > 1 and len(sizes) > 1
    for own in load_placer("hadoop").place(0, 24, replicas, brokers):
        used = Counter(racks[broker] for broker in own)
        assert len(own) == len(set(own)) == replicas
        assert max(used.values()) <= most
        assert len(used) >= min(2, replicas, len(sizes))
        if replicas > 2 and sizes == (3, 3, 3, 3):
            assert len(used) < replicas


def test_elasticsearch_leaves_out_what_a_small_rack_cannot_take_and_nodes_without_the_attribute() -> None:
    for own in load_placer("elasticsearch").place(0, 8, 4, brokers_in(1, 3)):
        assert sum(broker < 0 for broker in own) == 1
        assert sum(broker > 1 for broker in own) == 2
    some = [*brokers_in(2, 2), Broker(9, None)]
    assert all(set(own) <= {1, 2, 3, 4} for own in load_placer("elasticsearch").place(0, 8, 4, some))


def test_elasticsearch_counts_racks_that_are_down_only_if_they_are_forced() -> None:
    brokers = [*brokers_in(2), Broker(3, "down", fenced=True), Broker(4, "down", fenced=True)]
    (racks,) = {broker.rack for broker in brokers[:2]}
    for own in load_placer("elasticsearch").place(0, 8, 2, brokers):
        assert set(own) == {1, 2}
    for own in load_placer("elasticsearch", {"forced_racks": [racks, "down"]}).place(0, 8, 2, brokers):
        assert sum(broker < 0 for broker in own) == 1


@pytest.mark.parametrize(
    ("placer", "settings"),
    [
        ("elasticsearch", {"max_per_rack": 2}),
        ("elasticsearch", {"on_shortage": "error"}),
        ("elasticsearch", {"rackless": "rack"}),
        ("hadoop", {"min_racks": 3, "max_racks": 3}),
        ("redis", {"max_per_rack": 2}),
        ("redis", {"on_shortage": "relax"}),
    ],
)
def test_settings_that_a_preset_determines_are_refused(placer: str, settings: dict[str, Any]) -> None:
    names = ", ".join(sorted(settings))
    with pytest.raises(ConfigError, match=rf"^{names} cannot be set: the rules of this placer determine it$"):
        load_placer(placer, settings)
    load_placer(placer, {"weights": {"1": 2}, "leaders": "rack"})


def test_redis_never_has_two_in_a_rack() -> None:
    assert all(len(own) == 3 for own in load_placer("redis").place(0, 8, 3, brokers_in(2, 2, 2)))
    with pytest.raises(ReplicaPlacementError, match="at most 1 in a rack, but the 2 racks take only 2"):
        load_placer("redis").place(0, 8, 3, brokers_in(2, 2))
