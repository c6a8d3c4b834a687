"""The range strategy beside the Java it follows: random groups, decided by both, equal to the last partition."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from rackassign.errors import ClusterError
from rackassign.model import Broker, Group, Member, Partition, Topology
from rackassign.scenario import write_group
from rackassign.strategies import plan_range
from tests.helpers.java.assignor_peer import JavaPeer, JavaRaisedError, NoJdkError, PeerLostError, find_jdk

GROUPS_PER_SEED = 50
SEEDS = range(10)
# Java orders by UTF-16 code units, in which the second comes before the third.
LETTERS = ["a", "\U0001f600", "\uffee", "Z", "-"]


@pytest.fixture(scope="module")
def peer() -> Iterator[JavaPeer]:
    with ExitStack() as held:
        try:
            live = held.enter_context(JavaPeer())
        except (NoJdkError, ClusterError) as error:
            if os.environ.get("CI") == "true":
                pytest.fail(f"the live Java assignor must be there in CI: {error}")
            pytest.skip(str(error))
        yield live


def random_group(chance: random.Random) -> Group:
    racks = [f"r{i}" for i in range(chance.randint(1, 4))]
    no_rack = chance.choice([0.0, 0.0, 0.3])
    broker_ids = range(chance.randint(1, 6))
    brokers = tuple(
        Broker(i, None if chance.random() < no_rack else chance.choice([*racks, ""] if no_rack else racks))
        for i in broker_ids
    )
    # A replica may be on a broker that is not in the metadata, or be listed twice.
    known = [*broker_ids, *([97, 98] if chance.random() < 0.3 else [])]
    factor = chance.randint(1, 3)
    sizes = [chance.randint(1, 12)] if chance.random() < 0.5 else [chance.randint(0, 12) for _ in range(3)]
    topics: dict[str, tuple[Partition, ...]] = {}
    for name in [f"t{i}" for i in range(chance.randint(1, 6))]:
        replicas = [tuple(chance.choices(known, k=factor)) for _ in range(chance.choice(sizes))]
        topics[name] = tuple(Partition(r, chance.choice([r[0], None])) for r in replicas)
    mixed = chance.random() < 0.5
    names = [*topics, "no-metadata"]
    everything = frozenset(chance.sample(names, chance.randint(1, len(names))))
    static = chance.choice([0.0, 0.5, 1.0])
    members_racks: list[str | None] = [*racks, *([None, "", "elsewhere"] if chance.random() < 0.4 else [])]
    ids = {"".join(chance.choices(LETTERS, k=3)) for _ in range(chance.randint(1, 12))}
    members = [
        Member(
            id=member,
            topics=frozenset(t for t in names if chance.random() < 0.6) if mixed else everything,
            rack=chance.choice(members_racks),
            instance_id="".join(chance.choices(LETTERS, k=2)) + member if chance.random() < static else None,
            owned={t: (0,) for t in topics if chance.random() < 0.2},
            generation=chance.choice([None, 3]),
        )
        for member in sorted(ids)
    ]
    chance.shuffle(members)
    return Group(Topology(brokers, topics), tuple(members))


def groups(seed: int) -> list[Group]:
    chance = random.Random(seed)
    return [random_group(chance) for _ in range(GROUPS_PER_SEED)]


@pytest.mark.java
@pytest.mark.parametrize("seed", SEEDS)
def test_equals_the_live_java_assignor(peer: JavaPeer, seed: int) -> None:
    for group in groups(seed):
        scenario = write_group(group)
        assert plan_range(group).assignment == peer.assign(scenario).assignment, scenario


def test_racks_matter_in_many_of_the_groups() -> None:
    made = [group for seed in SEEDS for group in groups(seed)]
    changed = 0
    for group in made:
        bare = replace(group, members=tuple(replace(member, rack=None) for member in group.members))
        changed += plan_range(group).assignment != plan_range(bare).assignment
    assert changed > len(made) / 4


@pytest.mark.java
@pytest.mark.parametrize("seed", SEEDS)
def test_a_large_group_equals_the_live_java_assignor(peer: JavaPeer, seed: int) -> None:
    chance = random.Random(seed)
    brokers = tuple(Broker(i, f"r{i % 3}") for i in range(9))
    topics = {
        f"t{i}": tuple(Partition(tuple(chance.sample(range(9), 2))) for _ in range(chance.choice([48, 60, 61])))
        for i in range(20)
    }
    names = sorted(topics)
    members = tuple(
        Member(f"m{i}", frozenset(names if seed % 2 else chance.sample(names, 12)), f"r{i % 3}") for i in range(200)
    )
    group = Group(Topology(brokers, topics), members)
    assert plan_range(group).assignment == peer.assign(write_group(group)).assignment


@pytest.mark.java
def test_each_timed_call_is_answered_for(peer: JavaPeer) -> None:
    answer = peer.assign(write_group(groups(0)[0]), repeat=3, warmup=2)
    assert len(answer.seconds) == 3
    assert all(seconds > 0 for seconds in answer.seconds)


@pytest.mark.java
def test_the_sticky_assignors_are_told_what_members_own(peer: JavaPeer) -> None:
    topology = Topology((), {"t": (Partition(()),) * 4})
    owned = {"m1": (0, 3), "m2": (1, 2), "m3": ()}
    members = tuple(
        Member(m, frozenset({"t"}), owned={"t": ids} if ids else {}, generation=4) for m, ids in owned.items()
    )
    scenario = write_group(Group(topology, members[:2]))
    kept = {"m1": {"t": (0, 3)}, "m2": {"t": (1, 2)}}
    assert peer.assign(scenario, "sticky", repeat=2).assignment == kept
    assert peer.assign(scenario, "cooperative-sticky", repeat=2).assignment == kept
    joined = peer.assign(write_group(Group(topology, members)), "cooperative-sticky").assignment
    # What the new member is to get is withheld until its owner has let go of it.
    assert joined["m3"] == {}
    assert sum(len(ids) for partitions in joined.values() for ids in partitions.values()) == 3


@pytest.mark.java
def test_what_java_raises_is_raised_and_the_peer_goes_on(peer: JavaPeer) -> None:
    scenario = write_group(groups(0)[0])
    with pytest.raises(JavaRaisedError, match="brokers"):
        peer.assign({"members": [], "topics": {}})
    with pytest.raises(JavaRaisedError, match="repeat"):
        peer.assign(scenario, repeat=0)
    assert peer.assign(scenario).assignment == plan_range(groups(0)[0]).assignment


@pytest.mark.java
@pytest.mark.usefixtures("peer")
def test_a_dead_jvm_is_an_error_at_once() -> None:
    scenario = write_group(groups(0)[0])
    with JavaPeer() as short_lived:
        os.kill(short_lived.pid, signal.SIGKILL)
        # Not that it did not answer in time.
        for _ in range(2):
            with pytest.raises(PeerLostError, match="ended with code -9"):
                short_lived.assign(scenario)
    with pytest.raises(PeerLostError, match="not running"):
        short_lived.assign(scenario)


@pytest.mark.java
@pytest.mark.usefixtures("peer")
def test_a_jvm_that_does_not_answer_is_killed() -> None:
    # Longer than a pipe holds, so that the request hangs in being written, not in being answered.
    topics = {f"t{i}": (Partition((1, 2, 3)),) * 1000 for i in range(100)}
    scenario = write_group(Group(Topology((), topics), ()))
    with JavaPeer() as stopped:
        os.kill(stopped.pid, signal.SIGSTOP)
        with pytest.raises(PeerLostError, match="did not answer"):
            stopped.assign(scenario, timeout_s=0.5)


def test_without_a_jdk_the_error_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoJdkError, match="install a JDK 17"):
        find_jdk()
