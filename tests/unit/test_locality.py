"""What is near."""

from __future__ import annotations

import pytest

from rackassign.errors import ConfigError
from rackassign.locality import Locality, RackSets, validate_locality_mode
from rackassign.model import Broker, Group, LocalityMode, Member, Partition, Topology

TOPOLOGY = Topology(
    (Broker(1, "a"), Broker(2, "b"), Broker(3)),
    {"t": (Partition((1, 2), 1), Partition((2,), None), Partition((3, 9), 3), Partition((), None))},
)


@pytest.mark.parametrize(
    ("mode", "rack", "expected"),
    [
        ("any-replica", "a", Locality(local=1, cross=1, unknown=2)),
        ("any-replica", "b", Locality(local=2, cross=0, unknown=2)),
        ("any-replica", "nowhere", Locality(local=0, cross=2, unknown=2)),
        ("any-replica", None, Locality(local=0, cross=0, unknown=4)),
        ("leader", "a", Locality(local=1, cross=0, unknown=3)),
        ("leader", "b", Locality(local=0, cross=1, unknown=3)),
    ],
)
def test_counts(mode: LocalityMode, rack: str | None, expected: Locality) -> None:
    group = Group(TOPOLOGY, (Member("m", frozenset({"t"}), rack=rack),))
    assert Locality.count(group, {"m": {"t": (0, 1, 2, 3)}}, RackSets.of(TOPOLOGY, mode)) == expected


def test_an_unknown_mode_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"one of any-replica, leader, got 'near'"):
        validate_locality_mode("near")
