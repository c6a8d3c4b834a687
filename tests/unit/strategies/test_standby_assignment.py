"""Standbys of whole groups: who takes over, who warms up, and where copies go.

Kafka's way to place copies, which is where the search begins, against what Kafka's own classes answered.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rackassign.errors import ConfigError
from rackassign.model import Broker, Group, Member, Partition, TopicPartition, Topology
from rackassign.strategies import client_tag_aware
from rackassign.strategies.client_tag_aware import Clients, balance, preserves_tags
from rackassign.strategies.standby import (
    Copies,
    StandbyOptions,
    StandbyPlan,
    assign_standbys,
    validate_client_tags,
)
from tests.helpers.examples import examples, seeds
from tests.helpers.standby_groups import KEYS as BOTH
from tests.helpers.standby_groups import carried_out, crowdedness, group_of, hash_order, placed_by_kafka

ZONES, CLUSTERS = ("a", "b", "c"), ("x", "y")


SIX = {f"{zone}{cluster}": {"zone": zone, "cluster": cluster} for zone in ZONES for cluster in CLUSTERS}


def owner_of(plan: StandbyPlan) -> dict[int, str]:
    return {partition: member for member, theirs in plan.plan.target.items() for partition in theirs.get("t", ())}


def holders_of(plan: StandbyPlan) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for member, theirs in plan.standbys.items():
        for partition in theirs.get("t", ()):
            found.setdefault(partition, set()).add(member)
    return found


def without(group: Group, copies: Copies, gone: set[str]) -> tuple[Group, Copies]:
    left = tuple(member for member in group.members if member.id not in gone)
    return replace(group, members=left), {name: theirs for name, theirs in copies.items() if name not in gone}


def test_a_zone_that_dies_is_taken_over_by_who_is_warm() -> None:
    options = StandbyOptions(1, BOTH)
    group = group_of(SIX, 12)
    first = assign_standbys(group, {}, options)
    assert (first.collisions, first.missing) == (0, {})
    assert not any(first.warmups.values())
    for partition, owner in owner_of(first).items():
        (holder,) = holders_of(first)[partition]
        assert owner[0] != holder[0]
        assert owner[1] != holder[1]
    group, copies = carried_out(group, first)
    group, copies = without(group, copies, {"ax", "ay"})
    after = assign_standbys(group, copies, options)
    for partition, owner in owner_of(after).items():
        before = owner_of(first)[partition]
        assert owner == before or (before[0] == "a" and owner in holders_of(first)[partition])
    assert after.missing == {}
    assert after.collisions == 0


def test_who_lives_keeps_a_partition_until_the_other_is_warm() -> None:
    group = group_of({"m": {}, "n": {}}, 4, m=(0, 1, 2, 3))
    cold = assign_standbys(
        group, {"m": dict.fromkeys((TopicPartition("t", p) for p in range(2)), 0)}, StandbyOptions(0)
    )
    assert cold.plan.assignment == {"m": {"t": (0, 1, 2, 3)}, "n": {}}
    assert cold.plan.withheld == {}
    assert cold.standbys == cold.warmups
    warming = cold.warmups["n"]["t"]
    assert len(warming) == 2
    nearly = {"n": dict.fromkeys((TopicPartition("t", p) for p in warming), 20_000)}
    assert assign_standbys(group, nearly, StandbyOptions(0)).warmups == cold.warmups
    warm = {"n": dict.fromkeys((TopicPartition("t", p) for p in warming), 10_000)}
    moving = assign_standbys(group, warm, StandbyOptions(0))
    assert moving.plan.target["n"] == {"t": warming}
    assert moving.plan.withheld == {"t": warming}
    assert moving.plan.assignment["n"] == {}


def test_of_several_that_are_warm_each_takes_over_a_part() -> None:
    group = group_of({"m": {}, "n": {}, "o": {}}, 6, m=(0,), n=(1,), o=(2,))
    copies = {name: dict.fromkeys((TopicPartition("t", p) for p in (3, 4, 5)), 7) for name in "mno"}
    taken = assign_standbys(group, copies, StandbyOptions(1))
    assert [len(taken.plan.assignment[name]["t"]) for name in "mno"] == [2, 2, 2]
    assert not any(taken.warmups.values())
    # One that lacks much stands behind one that does not, also where that is less even.
    copies = {"m": dict.fromkeys((TopicPartition("t", p) for p in (3, 4, 5)), 7), "n": {TopicPartition("t", 3): 10**6}}
    taken = assign_standbys(group, copies, StandbyOptions(1))
    assert taken.plan.assignment["m"] == {"t": (0, 3, 4, 5)}
    assert {len(theirs.get("t", ())) for theirs in taken.warmups.values()} == {0, 1}


def test_forced_values_leave_out_what_would_be_crowded() -> None:
    here = {name: tags for name, tags in SIX.items() if name[0] == "a"}
    crowded = assign_standbys(group_of(here, 4), {}, StandbyOptions(1, ("zone",)))
    assert all(len(who) == 1 for who in holders_of(crowded).values())
    forced = StandbyOptions(1, ("zone",), forced_tag_values={"zone": ["a", "b"]})
    alone = assign_standbys(group_of(here, 4), {}, forced)
    assert holders_of(alone) == {}
    assert alone.missing == {TopicPartition("t", p): 1 for p in range(4)}
    back = assign_standbys(group_of(SIX, 4), {}, forced)
    assert back.missing == {}
    assert back.collisions == 0


@pytest.mark.parametrize("partitions", [9, 27, 28])
def test_the_nine_nodes_of_the_kip_are_loaded_evenly_without_collisions(partitions: int) -> None:
    nine = {f"{zone}{cluster}": {"zone": zone, "cluster": cluster} for zone in "abc" for cluster in "xyz"}
    found = assign_standbys(group_of(nine, partitions), {}, StandbyOptions(2, BOTH))
    loads = [
        sum(map(len, (*found.plan.target[name].values(), *found.standbys[name].values()))) for name in sorted(nine)
    ]
    assert max(loads) - min(loads) <= 1
    assert (found.collisions, found.missing, found.proven) == (0, {}, True)


def test_more_copies_than_values_use_all_values() -> None:
    twelve = {f"{zone}{number}": {"zone": zone} for zone in "abcd" for number in range(3)}
    found = assign_standbys(group_of(twelve, 12), {}, StandbyOptions(4, ("zone",)))
    for partition, owner in owner_of(found).items():
        assert {name[0] for name in (owner, *holders_of(found)[partition])} == set("abcd")


@pytest.mark.parametrize("lags", [(9_000, 0), (0, 9_000), (20_000, 10_001)])
def test_at_equal_load_the_copy_that_lacks_least_takes_over(lags: tuple[int, int]) -> None:
    group = group_of({"m1": {"zone": "a"}, "m2": {"zone": "b"}}, 1)
    copies = {name: {TopicPartition("t", 0): lag} for name, lag in zip(("m1", "m2"), lags, strict=True)}
    found = assign_standbys(group, copies, StandbyOptions())
    assert owner_of(found) == {0: "m1" if lags[0] < lags[1] else "m2"}


@pytest.mark.parametrize("eager", [False, True])
def test_at_nearly_equal_load_a_file_that_was_left_over_does_not_take_over(*, eager: bool) -> None:
    group = group_of({"m": {}, "n": {}}, 6, m=(0,), n=(1, 2))
    left_over, caught_up = {TopicPartition("t", 3): 5_000}, {TopicPartition("t", 3): 0}
    copies = {"m": left_over | {TopicPartition("t", p): 0 for p in (4, 5)}, "n": caught_up}
    found = assign_standbys(group, copies, StandbyOptions(1), eager=eager)
    assert found.plan.assignment == {"m": {"t": (0, 4, 5)}, "n": {"t": (1, 2, 3)}}


def test_strict_never_has_two_copies_at_one_value() -> None:
    options = StandbyOptions(2, ("cluster",), rule="strict")
    strict = assign_standbys(group_of(SIX, 6), {}, options)
    assert set(strict.missing.values()) == {1}
    for partition, who in holders_of(strict).items():
        assert {name[1] for name in who}.isdisjoint({owner_of(strict)[partition][1]})


def test_hadoop_has_two_in_one_rack_and_one_in_another() -> None:
    found = assign_standbys(group_of(SIX, 6), {}, StandbyOptions(2, ("zone",), rule="hadoop"))
    for partition, who in holders_of(found).items():
        zones = Counter(name[0] for name in (*who, owner_of(found)[partition]))
        assert sorted(zones.values()) == [1, 2]
    assert found.collisions == 0


def test_hadoop_has_two_copies_in_two_racks() -> None:
    found = assign_standbys(group_of(SIX, 6), {}, StandbyOptions(1, ("zone",), rule="hadoop"))
    assert found.collisions == 0
    for partition, (holder,) in holders_of(found).items():
        assert holder[0] != owner_of(found)[partition][0]


@pytest.mark.parametrize("standbys", [1, 2, 3])
def test_hadoop_with_a_single_rack_has_all_copies_there_and_counts_them(standbys: int) -> None:
    members = {f"m{number}": {"zone": "a"} for number in range(4)}
    found = assign_standbys(group_of(members, 6), {}, StandbyOptions(standbys, ("zone",), rule="hadoop"))
    assert found.missing == {}
    assert {len(who) for who in holders_of(found).values()} == {standbys}
    assert found.collisions >= 6


tags = st.fixed_dictionaries({}, optional={"zone": st.sampled_from("abc"), "cluster": st.sampled_from("xy")})


@st.composite
def groups(draw: st.DrawFn) -> tuple[Group, Copies]:
    names = [f"m{number}" for number in range(draw(st.integers(1, 5)))]
    partitions = draw(st.integers(1, 6))
    some = st.lists(st.integers(0, partitions - 1), unique=True).map(tuple)
    group = group_of({name: draw(tags) for name in names}, partitions, **{name: draw(some) for name in names})
    if draw(st.booleans()):
        # Two crowds.
        topology = replace(group.topology, topics={**group.topology.topics, "u": (Partition((1,), 1),) * 2})
        odd = replace(group.members[0], topics=frozenset({"t", "u"}))
        group = replace(group, topology=topology, members=(odd, *group.members[1:]))
    lags = st.dictionaries(st.integers(0, partitions), st.sampled_from([0, 5, 20_000]), max_size=4)
    copies = {name: {TopicPartition("t", p): lag for p, lag in draw(lags).items()} for name in (*names, "gone")}
    return group, copies


@given(groups(), st.integers(0, 3), st.sampled_from([(), ("zone",), BOTH]))
@settings(max_examples=examples(150))
def test_every_partition_has_an_owner_and_its_copies(drawn: Any, standbys: int, keys: Any) -> None:
    group, copies = drawn
    found = assign_standbys(group, copies, StandbyOptions(standbys, keys))
    subscribed = {topic for member in group.members for topic in member.topics}
    owner: dict[TopicPartition, str] = {}
    for member, theirs in found.plan.target.items():
        for topic, ids in theirs.items():
            for partition in ids:
                assert owner.setdefault(TopicPartition(topic, partition), member) == member
    assert set(owner) == {TopicPartition(t, p) for t in subscribed for p in range(len(group.topology.topics[t]))}
    given_out = Counter(
        TopicPartition(t, p) for theirs in found.plan.assignment.values() for t, ids in theirs.items() for p in ids
    )
    withheld = [TopicPartition(t, p) for t, ids in found.plan.withheld.items() for p in ids]
    assert given_out + Counter(withheld) == Counter(owner.keys())
    members = {member.id: member for member in group.members}
    held = Counter[TopicPartition]()
    for member, theirs in found.standbys.items():
        for topic, ids in theirs.items():
            assert topic in members[member].topics
            for partition in ids:
                place = TopicPartition(topic, partition)
                # Only who waits for a partition keeps a copy of what is its own.
                assert (owner[place] == member) <= (place in withheld)
                held[place] += owner[place] != member
        assert all(set(ids) <= set(theirs.get(topic, ())) for topic, ids in found.warmups[member].items())
    for place in owner:
        # More than asked for only while some are not warm yet.
        assert standbys <= held[place] + found.missing.get(place, 0) <= 2 * standbys + 1
    again = assign_standbys(
        replace(group, members=group.members[::-1]),
        dict(reversed(copies.items())),
        StandbyOptions(standbys, keys),
    )
    assert replace(again, plan=found.plan) == found
    assert again.plan.target == found.plan.target


def test_topics_with_different_readers_are_not_called_proven_and_the_fewest_readers_come_first() -> None:
    rows = (Partition((1,), 1),)
    topology = Topology((Broker(1, "a"),), {"x": rows * 2, "y": rows * 4})
    members = tuple(Member(f"m{i}", frozenset("xy" if i in {0, 1, 4, 5} else "y")) for i in range(6))
    found = assign_standbys(Group(topology, members), {}, StandbyOptions(1))
    copies = (*found.plan.target.items(), *found.standbys.items())
    loads = Counter({member.id: 0 for member in members})
    for member, theirs in copies:
        loads[member] += sum(map(len, theirs.values()))
    assert set(loads.values()) == {2}
    assert not found.proven
    # Without a common reader each set is placed as if it were alone.
    apart = tuple(Member(f"m{i}", frozenset("x" if i < 3 else "y")) for i in range(6))
    assert assign_standbys(Group(topology, apart), {}, StandbyOptions(1)).proven


@pytest.mark.parametrize("seed", seeds(1, 4))
def test_no_dead_end_is_met_where_there_is_a_way(seed: int) -> None:
    dice = random.Random(seed)
    misses = 0
    for _ in range(400):
        members = {
            f"m{number}": {"zone": f"z{dice.randrange(3)}", "cluster": f"c{dice.randrange(4)}"}
            for number in range(dice.randint(3, 7))
        }
        standbys = dice.randint(1, 3)
        group = group_of(members, 1, **{dice.choice(list(members)): (0,)})
        copies = min(standbys, len(members) - 1) + 1
        found = assign_standbys(group, {}, StandbyOptions(standbys, BOTH))
        owner = owner_of(found)[0]
        kafkas = placed_by_kafka(members, {0: owner}, standbys)[0]
        others = [name for name in members if name != owner]
        possible = min(crowdedness(members, {*chosen, owner}, copies) for chosen in combinations(others, copies - 1))
        assert crowdedness(members, {*holders_of(found)[0], owner}, copies) == possible
        misses += crowdedness(members, {*kafkas, owner}, copies) > possible
    # What it is for: Kafka's way misses it now and then.
    assert misses


def distinct(members: Mapping[str, Mapping[str, str]], own: set[str]) -> int:
    """Return the number of distinct values of all tags: KIP-708's measure of a placement."""
    return sum(len({members[name][key] for name in own if key in members[name]}) for key in BOTH)


@given(groups(), st.integers(1, 4))
@settings(max_examples=examples(200))
def test_a_placement_is_never_worse_than_kafka_s(drawn: Any, standbys: int) -> None:
    group, _ = drawn
    assume("u" not in group.topology.topics)
    # What warms up or waits would count as load.
    group = replace(group, members=tuple(replace(member, owned={}) for member in group.members))
    found = assign_standbys(group, {}, StandbyOptions(standbys, BOTH))
    members = {member.id: dict(member.tags) for member in group.members}
    owners = owner_of(found)
    copies = min(standbys, len(members) - 1) + 1

    def cost(holders: Mapping[int, set[str]]) -> tuple[int, int, int]:
        sets = [{*holders.get(p, ()), owner} for p, owner in owners.items()]
        load = Counter(name for own in sets for name in own)
        crowded = sum(crowdedness(members, own, copies) for own in sets)
        return -sum(distinct(members, own) for own in sets), crowded, sum(n**2 for n in load.values())

    assert cost(holders_of(found)) <= cost(placed_by_kafka(members, owners, standbys))


def places_of(theirs: Any) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, partition): 0 for topic, ids in theirs.items() for partition in ids}


def assert_nothing_warm_is_lost(group: Group, copies: Copies, found: StandbyPlan, standbys: int) -> None:
    """See that there are as many warm copies of each partition as there should be, if there were."""
    owner = {place: member for member, theirs in found.plan.target.items() for place in places_of(theirs)}
    for place, runs in owner.items():
        warm = {
            member.id
            for member in group.members
            if place.topic in member.topics
            and member.id != runs
            and copies.get(member.id, {}).get(place, 1 << 62) <= StandbyOptions().acceptable_recovery_lag
        }
        left = {member for member in warm if place in places_of(found.standbys[member])}
        assert len(left) >= min(standbys, len(warm))


@given(groups(), st.integers(0, 2), st.booleans())
@settings(max_examples=examples(150))
def test_rounds_come_to_an_end(drawn: Any, standbys: int, keeps: bool) -> None:  # noqa: FBT001
    group, copies = drawn
    options = StandbyOptions(standbys, BOTH)
    for _ in range(20):
        found = assign_standbys(group, copies, options)
        assert_nothing_warm_is_lost(group, copies, found, standbys)
        done = not found.plan.withheld and not any(found.warmups.values())
        members = tuple(replace(m, owned=found.plan.assignment[m.id], generation=1) for m in group.members)
        after = replace(group, members=members)
        # A member may throw away what it need not keep, or not yet; what it keeps is warm by the next round.
        kept = {
            m.id: {
                **(copies.get(m.id, {}) if keeps else {}),
                **places_of(found.plan.assignment[m.id]),
                **places_of(found.standbys[m.id]),
            }
            for m in members
        }
        if done and after == group and kept == copies:
            break
        group, copies = after, kept
    assert done
    assert found.plan.moved == 0


RESTLESS = (
    {
        f"m{number}": dict(zip("zch", values, strict=True))
        for number, values in enumerate(("301", "516", "015", "604", "104", "114", "611", "403", "406"))
    },
    {"m0": (4, 8), "m1": (2, 5), "m2": (1,), "m3": (10,), "m4": (7,), "m5": (6,), "m6": (0,), "m7": (9,), "m8": (3,)},
)
"""Members and what they own: from one placement of their copies another one was found, and from both the first."""


def nine_members(seed: int) -> tuple[dict[str, dict[str, str]], dict[str, tuple[int, ...]]]:
    dice = random.Random(seed)
    sizes = [dice.randint(2, 9) for _ in range(3)]
    share = dice.choice((0, 0, 0.2))
    tags = {
        f"m{number}": {
            key: str(dice.randrange(size)) for key, size in zip("zch", sizes, strict=True) if dice.random() >= share
        }
        for number in range(9)
    }
    places = dice.sample(range(11), 11)
    return tags, {name: tuple(sorted(places[number::9])) for number, name in enumerate(tags)}


@pytest.mark.parametrize("seed", [None, *seeds(8, 100)])
def test_copies_come_to_rest_with_three_tags(seed: int | None) -> None:
    tags, owned = RESTLESS if seed is None else nine_members(seed)
    group: Group = group_of(tags, 11, **owned)
    copies: Copies = {}
    plans: list[StandbyPlan] = []
    while len(plans) < 3 or plans[-1] != plans[-2]:
        found = assign_standbys(group, copies, StandbyOptions(3, tuple("zch")))
        plans.append(replace(found, plan=replace(found.plan, seconds=0.0)))
        group, copies = carried_out(group, found)
        assert len(plans) < 9, "copies move for ever"


@pytest.mark.parametrize("bx", list(combinations(range(6), 2)))
def test_half_of_an_exchange_is_not_made(bx: tuple[int, int]) -> None:
    """One that is warm for all must not take what a cold one has, for which it cannot take anything in return."""
    for cx in combinations([partition for partition in range(6) if partition not in bx], 2):
        tags = {name: {"zone": name[0]} for name in ("bx", "cx")}
        group = group_of(tags, 6, bx=bx, cx=cx)
        spread = {"t": tuple(Partition(own, own[0]) for own in [(1, 2), (2, 3), (3, 1)] * 2)}
        topology = Topology(tuple(Broker(number, rack) for number, rack in enumerate("abc", 1)), spread)
        group = replace(group, topology=topology, members=tuple(replace(m, rack=m.id[0]) for m in group.members))
        copies = {
            "bx": {TopicPartition("t", p): 0 for p in range(6)},
            "cx": {TopicPartition("t", p): 0 if p in cx else 50_000 for p in range(6)},
        }
        found = assign_standbys(group, copies, StandbyOptions(2, ("zone",)))
        assert {name: len(theirs["t"]) for name, theirs in found.plan.target.items()} == {"bx": 4, "cx": 2}
        assert found.plan.moved == 0


def test_who_joins_takes_nothing_warm_away_and_is_given_only_what_it_keeps() -> None:
    six = group_of(SIX, 60)
    group, copies = carried_out(six, assign_standbys(six, {}, StandbyOptions(1, ("zone",))))
    group = replace(group, members=(*group.members, Member("az", frozenset({"t"}), tags={"zone": "a"})))
    begun = 0
    for _ in range(20):
        found = assign_standbys(group, copies, StandbyOptions(1, ("zone",)))
        group, after = carried_out(group, found)
        begun += sum(len(theirs.keys() - copies.get(name, {}).keys()) for name, theirs in after.items())
        copies = after
        if not found.plan.withheld and not any(found.warmups.values()):
            break
    loads = [sum(map(len, (found.plan.target[name]["t"], found.standbys[name]["t"]))) for name in after]
    assert max(loads) - min(loads) <= 1
    # What the new one has in the end, and hardly anything besides.
    assert begun <= loads[-1] + 2


def test_options_that_cannot_be_are_refused() -> None:
    for options, told in (
        ({"num_standby_replicas": -1}, "num_standby_replicas must be an integer, 0 or more, got -1"),
        ({"rule": "evn"}, "rule must be one of even, strict, hadoop"),
        ({"rack_aware_assignment_tags": "zone"}, "must be up to 5 different keys"),
        ({"rack_aware_assignment_tags": ["a"] * 2}, "must be up to 5 different keys"),
        ({"forced_tag_values": {"zone": ["a"]}}, '"zone" is not one of rack_aware_assignment_tags'),
        ({"rack_aware_assignment_tags": ["z"], "forced_tag_values": {"z": "ab"}}, "expected values"),
    ):
        with pytest.raises(ConfigError, match=told):
            StandbyOptions(**options)


def test_eager_members_get_cold_partitions_at_once_and_warm_ones_where_owners_are_gone() -> None:
    options = StandbyOptions(1, BOTH)
    group = group_of(SIX, 12)
    first = assign_standbys(group, {}, options, eager=True)
    assert (first.collisions, first.missing) == (0, {})
    group, copies = carried_out(group, first)
    fresh = {"aw": {"zone": "a", "cluster": "w"}}
    joined = replace(group, members=(*group.members, *group_of(fresh, 12).members))
    more = assign_standbys(joined, copies, options, eager=True)
    # 12 partitions of 7 members: the new one has its share without a copy, and nothing waits.
    assert Counter(owner_of(more).values())["aw"] == 1
    assert (more.plan.withheld, more.plan.moved) == ({}, 1)
    assert more.plan.assignment == more.plan.target
    assert not any(more.warmups.values())
    dead = "ax"
    left, warm = without(group, copies, {dead})
    after = assign_standbys(left, warm, options, eager=True)
    for partition, owner in owner_of(after).items():
        if owner_of(first)[partition] != dead:
            assert owner == owner_of(first)[partition]
        else:
            assert {owner} == holders_of(first)[partition]
    assert after.plan.moved == 0


class Looked(frozenset[str]):
    """Topics of members, which count how often one of them is looked for."""

    times = 0

    def __contains__(self, topic: object) -> bool:
        Looked.times += 1
        return super().__contains__(topic)


def test_subscribers_are_not_looked_for_partition_by_partition() -> None:
    topics = {name: (Partition((1,), 1),) * 40 for name in ("t", "u")}
    members = tuple(Member(f"m{i:02}", Looked(("t", "u") if i % 3 else ("t",))) for i in range(40))
    Looked.times = 0
    found = assign_standbys(Group(Topology((Broker(1, "a"),), topics), members), {}, StandbyOptions(1))
    assert not found.missing
    assert all("u" not in found.standbys[member.id] for member in members if "u" not in member.topics)
    assert Looked.times <= 10 * len(members)


DATA = Path(__file__).parents[2] / "data"
VECTORS: dict[str, Any] = json.loads((DATA / "standby_vectors.json").read_text("utf-8"))
RANDOM: dict[str, Any] = json.loads((DATA / "standby_clusters.json").read_text("utf-8"))
SPREAD = [(case, order) for case in VECTORS["tag_aware_standby"] for order in case["expected"]]


class Numbered:
    """A case as numbers: clients by id, tasks by name."""

    def __init__(self, case: dict[str, Any], tasks: list[str]) -> None:
        self.ids = sorted(case["clients"], key=int)
        self.tasks = sorted(tasks, key=lambda name: tuple(map(int, name.split("_"))))
        self.number = {name: i for i, name in enumerate(self.tasks)}
        said = [case["clients"][each] for each in self.ids]
        # What runs and keeps no state counts as load, and has no copies: it is numbered behind.
        others = sorted({name for each in said for name in each["active"]} - set(tasks))
        every = self.number | {name: len(tasks) + i for i, name in enumerate(others)}
        self.clients = Clients(
            tuple(each["capacity"] for each in said),
            tuple(each["tags"] for each in said),
            tuple(frozenset(every[name] for name in each["active"]) for each in said),
        )

    def order(self, names: list[str]) -> list[int]:
        return [self.number[name] for name in names]

    def by_task(self, holders: list[list[int]]) -> dict[str, list[int]]:
        found = {name: sorted(int(self.ids[client]) for client in holders[i]) for name, i in self.number.items()}
        return {name: who for name, who in found.items() if who}

    def by_client(self, holders: list[list[int]]) -> dict[str, list[str]]:
        return {
            client: [name for name, i in self.number.items() if number in holders[i]]
            for number, client in enumerate(self.ids)
        }


@pytest.mark.parametrize(("case", "order"), SPREAD, ids=lambda each: each if isinstance(each, str) else each["name"])
def test_standbys_are_java_s(case: dict[str, Any], order: str) -> None:
    expected = case["expected"][order]
    told = Numbered(case, case["stateful_tasks"])
    holders = client_tag_aware.place(
        told.clients, told.order(expected["task_order"]), case["num_standby"], case["rack_aware_assignment_tags"]
    )
    assert told.by_task(holders) == {name: who for name, who in expected["standby_by_task"].items() if who}
    assert told.by_client(holders) == expected["standby_by_client"]
    for name, allowed in (case["accept_by_task"] or {}).items():
        assert told.by_task(holders)[name] in allowed


def test_standbys_of_random_clusters_are_java_s_to_the_last_leftover() -> None:
    differ_in_order = 0
    for recorded in RANDOM["clusters"]:
        case = {**recorded, "clients": dict(enumerate(recorded["clients"]))}
        told = Numbered(case, [task for each in case["clients"].values() for task in each["active"]])
        order = hash_order([(int(sub), int(partition)) for sub, partition in (name.split("_") for name in told.tasks)])
        given = told.clients, range(len(told.tasks)), case["standbys"], case["keys"]
        holders = client_tag_aware.place(*given, order)
        assert [set(own) for own in told.by_client(holders).values()] == [set(own) for own in case["expected"]]
        differ_in_order += client_tag_aware.place(*given) != holders
    # Without the order of Java's table some would differ.
    assert differ_in_order


@pytest.mark.parametrize("case", VECTORS["default_standby"], ids=lambda case: case["name"])
def test_without_tags_the_least_loaded_are_taken(case: dict[str, Any]) -> None:
    told = Numbered(case, case["stateful_tasks"])
    holders = client_tag_aware.place(told.clients, told.order(case["task_order"]), case["num_standby"], [])
    assert told.by_client(holders) == case["expected_standby_by_client"]


@pytest.mark.parametrize("case", VECTORS["high_availability"], ids=lambda case: case["name"])
def test_standbys_of_a_whole_run_are_java_s(case: dict[str, Any]) -> None:
    for client, told in case["expected"].items():
        case["clients"][client]["active"] = told["active"]
    told = Numbered(case, case["stateful_tasks"])
    placed = client_tag_aware.place(
        told.clients, range(len(told.tasks)), case["num_standby"], case["rack_aware_assignment_tags"]
    )
    by_client = told.by_client(balance(told.clients, placed))
    assert by_client == {client: said["standby"] for client, said in case["expected"].items()}


@pytest.mark.parametrize("case", VECTORS["task_movement"], ids=lambda case: case["name"])
def test_a_standby_moves_where_java_lets_it(case: dict[str, Any]) -> None:
    clients = case["clients"]
    source, target = clients[str(case["move_from"])], clients[str(case["move_to"])]
    assert preserves_tags(source["tags"], target["tags"]) == case["allowed_balance_move"]


@pytest.mark.parametrize("case", VECTORS["client_tag_config"], ids=lambda case: case["name"])
def test_tags_are_allowed_and_refused_with_java_s_words(case: dict[str, Any]) -> None:
    if case["ok"]:
        validate_client_tags(case["client_tags"], case["rack_aware_assignment_tags"])
        return
    with pytest.raises(ConfigError) as refused:
        validate_client_tags(case["client_tags"], case["rack_aware_assignment_tags"])
    assert str(refused.value) == case.get("message", str(refused.value))
    assert case.get("message_contains", "") in str(refused.value)


def test_lengths_are_counted_as_java_counts_them() -> None:
    validate_client_tags({"x": "😀" * 15}, [])
    with pytest.raises(ConfigError, match="Tag value exceeds maximum length of 30"):
        validate_client_tags({"x": "😀" * 16}, [])


def test_no_standbys_are_none() -> None:
    clients = Clients((1, 1), ({}, {}), (frozenset({0}), frozenset()))
    assert client_tag_aware.place(clients, [0], 0, []) == [[]]
    assert client_tag_aware.place(clients, [0], 5, ["zone"]) == [[1]]


def test_clients_with_even_loads_are_not_compared_two_by_two(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []
    evens = client_tag_aware._evens

    def noted(board: Any, source: int, target: int) -> bool:
        compared.append((source, target))
        return evens(board, source, target)

    monkeypatch.setattr(client_tag_aware, "_evens", noted)
    count = 300
    clients = Clients((1,) * count, ({},) * count, tuple(frozenset({task}) for task in range(count)))
    placed = client_tag_aware.place(clients, range(count), 1, ())
    assert balance(clients, placed) == placed
    assert len(compared) <= 2 * count
