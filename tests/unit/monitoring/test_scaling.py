"""Members of each rack: exact against all distributions, and against the plan of each."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from itertools import islice

import pytest

from rackassign.errors import ConfigError
from rackassign.locality import Locality
from rackassign.model import LOCALITY_MODES, Broker, Group, LocalityMode, Member, Partition, TopicPartition, Topology
from rackassign.monitoring.analysis import counting_replicas
from rackassign.monitoring.scaling import MOST_RACKS, ReplicaRacks, Scaling, scale_group, step_down, step_up
from rackassign.strategies import Options, plan_cooperative
from tests.helpers.examples import seeds
from tests.helpers.machine_speed import machine_factor

RACKS = "abcdefgh"


def topology(rows: Sequence[Sequence[int]], racks: int) -> Topology:
    """Return a broker in each rack, and topics of up to 20 partitions; a broker that is not there has no rack."""
    brokers = tuple(Broker(number, rack) for number, rack in enumerate(RACKS[:racks]))
    partitions = iter(Partition(tuple(row), row[0]) for row in rows)
    topics: dict[str, tuple[Partition, ...]] = {}
    while part := tuple(islice(partitions, 20)):
        topics[f"t{len(topics)}"] = part
    return Topology(brokers, topics)


def with_members(there: Topology, counts: Sequence[int]) -> Group:
    topics = frozenset(there.topics)
    racks = [RACKS[at] for at, count in enumerate(counts) for _ in range(count)]
    return Group(there, tuple(Member(f"m{number:03}", topics, rack) for number, rack in enumerate(racks)))


def scaled(group: Group, mode: LocalityMode = "any-replica") -> Scaling:
    return scale_group(group, mode, counting_replicas(group.topology, mode))


def distributions(members: int, racks: int) -> Iterator[tuple[int, ...]]:
    if racks == 1:
        yield (members,)
        return
    for here in range(members + 1):
        yield from ((here, *rest) for rest in distributions(members - here, racks - 1))


@pytest.mark.parametrize("seed", seeds(40, 2000))
def test_no_other_members_of_each_rack_have_more_local_partitions_or_are_as_good_and_come_first(seed: int) -> None:
    rng = random.Random(seed)
    racks, mode = rng.randint(1, 4), rng.choice(LOCALITY_MODES)
    likely = [rng.random() ** rng.choice([0, 1, 3]) for _ in range(racks)]
    # Of broker 9 no rack is known.
    rows = [[rng.randrange(racks)]]
    rows += [
        rng.choices(range(racks), likely, k=rng.randint(1, racks)) if rng.random() < 0.95 else [9]
        for _ in range(rng.randint(0, 23))
    ]
    there, members = topology(rows, racks), rng.randint(1, 6)
    homes = {rack: rng.randint(0, 3) for rack in RACKS[:racks]}
    asked = ReplicaRacks.of(with_members(there, (1,)), mode)

    found = asked.distribute(members, homes)

    def key(counts: Sequence[int]) -> tuple[float, ...]:
        group = with_members(there, counts)
        local = Locality.of(group, plan_cooperative(group, Options(locality=mode))).local
        changes = sum(abs(count - now) for count, now in zip(counts, homes.values(), strict=True))
        return (local, -sum(count * count for count in counts), -changes, *counts)

    # Racks without a replica that counts have no members.
    every = [
        counts
        for counts in distributions(members, racks)
        if all(count == 0 or rack in asked.racks for rack, count in zip(RACKS, counts, strict=False))
    ]
    assert tuple(found.get(rack, 0) for rack in RACKS[:racks]) == max(every, key=key)


@pytest.mark.parametrize("seed", seeds(3, 60))
@pytest.mark.parametrize(("racks", "most"), [(3, 30), (5, 9)])
def test_no_other_members_of_more_racks_have_more_local_partitions_by_the_cut(seed: int, racks: int, most: int) -> None:
    rng = random.Random(seed)
    rows = [rng.sample(range(racks), rng.choice([1, 2, 2, racks])) for _ in range(rng.randint(1, 300))]
    asked, members = ReplicaRacks.of(with_members(topology(rows, racks), (1,)), "any-replica"), rng.randint(1, most)
    each, more = divmod(len(rows), members)
    sets = [
        (places, sum(set(row) <= set(places) for row in rows))
        for places in (tuple(at for at in range(racks) if bits >> at & 1) for bits in range(1 << racks))
    ]

    def local(counts: Sequence[int]) -> int:
        """Return the least cut of the network of partitions, racks and members."""
        heads = ((sum(counts[at] for at in places), inside) for places, inside in sets)
        return min(len(rows) - inside + each * head + min(head, more) for head, inside in heads)

    found = asked.distribute(members, {})
    counts = [found.get(rack, 0) for rack in RACKS[:racks]]

    assert sum(counts) == members
    assert local(counts) == max(map(local, distributions(members, racks)))


def test_a_step_is_where_the_largest_number_of_partitions_changes() -> None:
    for partitions in range(1, 130):
        for members in range(1, 140):
            largest = [-(-partitions // count) for count in range(1, 140)]
            now = largest[members - 1]
            assert step_down(partitions, members) == largest.index(now) + 1
            up = next((count for count, most in enumerate(largest, 1) if most < now), None)
            assert step_up(partitions, members) == up


def test_the_table_is_from_three_fewer_to_six_more_with_what_they_read() -> None:
    rows = [[at % 3, (at + 1) % 3] for at in range(126)]
    group = with_members(topology(rows, 3), (5, 1, 1))
    read = {TopicPartition(topic, at): 1.0 for topic in group.topology.topics for at in range(20)}

    found = scale_group(group, "any-replica", group.topology, read)

    assert [row.members for row in found.counts] == list(range(4, 14))
    assert (found.now.by_rack, found.now.partitions) == ({"a": 5, "b": 1, "c": 1}, (18, 18))
    assert (found.now.locality.cross, found.now.flows.cross) == (6, 6.0)
    assert [dict(row.by_rack) for row in found.counts[2:5]] == [
        {"a": 2, "b": 2, "c": 2},
        {"a": 3, "b": 2, "c": 2},
        {"a": 3, "b": 3, "c": 2},
    ]
    assert {row.locality.cross for row in found.counts} == {0}
    assert found.up is not None
    assert (found.up.members, found.up.partitions, found.down.members) == (8, (15, 16), 7)
    assert not found.anywhere
    # Divisors of 126 are 21 and 42; 25 members read 6 partitions at most, as 21 do, and 26 read 5.
    many = scaled(with_members(topology(rows, 3), (9, 8, 8)))
    assert many.up is not None
    assert (many.down.members, many.up.members) == (21, 26)


def test_if_each_rack_has_a_replica_of_each_partition_any_number_is_local() -> None:
    there = topology([[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1]], 3)
    found = scaled(with_members(there, (3, 0, 0)))
    assert found.anywhere
    assert {row.locality.cross for row in (found.now, *found.counts)} == {0}
    # The most even members, and of them those nearest to now.
    assert [dict(row.by_rack) for row in found.counts[:4]] == [
        {"a": 1, "b": 0, "c": 0},
        {"a": 1, "b": 1, "c": 0},
        {"a": 1, "b": 1, "c": 1},
        {"a": 2, "b": 1, "c": 1},
    ]
    assert found.counts[-1].partitions == (0, 1)
    assert scaled(with_members(there, (2, 2, 0))).up is None
    assert not scaled(with_members(there, (3, 0, 0)), "leader").anywhere


def test_what_cannot_be_scaled_is_refused_with_what_is_needed() -> None:
    there = topology([[0], [1]], 2)
    differ = Group(there, (Member("m", frozenset({"t0"})), Member("n", frozenset({"t0", "u"}))))
    for group in (Group(there, ()), differ):
        with pytest.raises(ConfigError, match="members, all of which subscribe to the same topics"):
            scaled(group)
    members = with_members(there, (1, 1)).members
    with pytest.raises(ConfigError, match="without weights, costs and copartition"):
        scaled(Group(there, members, costs={"a": {"b": 2.0}}))
    with pytest.raises(ConfigError, match=f"replicas in 1 to {MOST_RACKS} known racks, got 0"):
        scaled(with_members(topology([[9]], 2), (1, 1)))


@pytest.mark.parametrize(("racks", "members"), [(3, 100), (6, 100), (8, 60)])
def test_hundreds_of_members_take_no_time(racks: int, members: int) -> None:
    rng = random.Random(racks)
    rows = [rng.choices(range(racks), range(1, racks + 1), k=2) for _ in range(10_000)]
    asked = ReplicaRacks.of(with_members(topology(rows, racks), (1,)), "any-replica")
    begin = time.perf_counter()
    for count in range(members, members + 10):
        assert sum(asked.distribute(count, {}).values()) == count
    assert time.perf_counter() - begin < 5 * machine_factor()
