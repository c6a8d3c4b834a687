"""Strategies beside the Java assignors: range equal to the last partition, sticky never worse, in each version."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from rackassign.errors import ClusterError
from rackassign.model import Broker, Group, Member, Partition, Topology
from rackassign.scenario import write_group
from rackassign.strategies import Options, plan_range, plan_sticky
from rackassign.testing import KAFKA_VERSION
from rackassign.wire.consumer_protocol import decode_sticky
from tests.helpers.generators.random_groups import random_group, with_history
from tests.helpers.java.assignor_peer import (
    ORACLES,
    Assignment,
    Assignor,
    JavaPeer,
    JavaRaisedError,
    NoJdkError,
    PeerAnswer,
    PeerLostError,
    find_jdk,
)
from tests.helpers.reference_solver import Puzzle

GROUPS_PER_SEED = 50
# For a new version of Kafka hundreds, once; the tests that take longest have few.
SEEDS = range(int(os.environ.get("RACKASSIGN_JAVA_SEEDS", "10")))
FEW_SEEDS = range(int(os.environ.get("RACKASSIGN_JAVA_SEEDS", "2")))
ASSIGNORS: tuple[Assignor, ...] = ("range", "sticky", "cooperative-sticky")


Peers = Callable[[str], JavaPeer]


@pytest.fixture(scope="module")
def peers() -> Iterator[Peers]:
    """Assignors of a version of Kafka; each version is started once."""
    with ExitStack() as held:

        @cache
        def start(version: str) -> JavaPeer:
            try:
                return held.enter_context(JavaPeer(version=version))
            except (NoJdkError, ClusterError) as error:
                if os.environ.get("CI") == "true":
                    pytest.fail(f"the live Java assignor must be there in CI: {error}")
                pytest.skip(str(error))

        yield start


@pytest.fixture
def peer(peers: Peers) -> JavaPeer:
    return peers(KAFKA_VERSION)


@pytest.fixture(params=ORACLES)
def each_peer(peers: Peers, request: pytest.FixtureRequest) -> JavaPeer:
    return peers(request.param)


def groups(seed: int) -> list[Group]:
    chance = random.Random(seed)
    return [random_group(chance) for _ in range(GROUPS_PER_SEED)]


def groups_with_history(seed: int) -> list[Group]:
    chance = random.Random(seed)
    return [with_history(group, chance) for group in groups(seed)]


def answer(peer: JavaPeer, group: Group, assignor: Assignor) -> PeerAnswer | str:
    """Return what Java answers without the time it took, or the class that it raised."""
    try:
        return replace(peer.assign(write_group(group), assignor, user_data=True), seconds=())
    except JavaRaisedError as error:
        # A JVM leaves out the message of an exception that it has raised many times.
        return str(error).partition(":")[0]


def is_valid(group: Group, assignment: Assignment) -> bool:
    """Return whether each member reads what it subscribes to, and all of it is read.

    Java's sticky assignors raise for some groups, and for others assign partitions to members that do not subscribe.
    """
    topics = {member.id: member.topics for member in group.members}
    given = {(topic, p) for owned in assignment.values() for topic, ids in owned.items() for p in ids}
    read = {topic for member in group.members for topic in member.topics}
    wanted = {(t, p) for t, partitions in group.topology.topics.items() if t in read for p in range(len(partitions))}
    return given == wanted and all(topics[member].issuperset(owned) for member, owned in assignment.items())


@pytest.mark.java
def test_the_oracles_are_of_the_versions_that_they_are_asked_for(peers: Peers) -> None:
    assert [peers(version).kafka_version for version in ORACLES] == list(ORACLES)
    assert len(ORACLES) == len(set(ORACLES)) > 1


@pytest.mark.java
@pytest.mark.parametrize("seed", SEEDS)
def test_equals_the_live_java_assignor(each_peer: JavaPeer, seed: int) -> None:
    for group in groups(seed):
        scenario = write_group(group)
        assert plan_range(group).assignment == each_peer.assign(scenario).assignment, scenario


def test_racks_matter_in_many_of_the_groups() -> None:
    made = [group for seed in SEEDS for group in groups(seed)]
    changed = 0
    for group in made:
        bare = replace(group, members=tuple(replace(member, rack=None) for member in group.members))
        changed += plan_range(group).assignment != plan_range(bare).assignment
    assert changed > len(made) / 4


@pytest.mark.java
@pytest.mark.parametrize("seed", SEEDS)
def test_a_large_group_equals_the_live_java_assignor(each_peer: JavaPeer, seed: int) -> None:
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
    assert plan_range(group).assignment == each_peer.assign(write_group(group)).assignment


@pytest.mark.java
@pytest.mark.parametrize("seed", FEW_SEEDS)
def test_all_versions_of_java_answer_the_same(peers: Peers, seed: int) -> None:
    for group in groups_with_history(seed):
        for assignor in ASSIGNORS:
            first, *others = (answer(peers(version), group, assignor) for version in ORACLES)
            assert all(other == first for other in others), (assignor, write_group(group))


@pytest.mark.java
@pytest.mark.parametrize("seed", FEW_SEEDS)
def test_sticky_is_never_worse_than_the_live_java_assignor(each_peer: JavaPeer, seed: int) -> None:
    compared = 0
    for group in groups_with_history(seed):
        java = answer(each_peer, group, "sticky")
        if isinstance(java, str) or not is_valid(group, java.assignment):
            continue
        compared += 1
        puzzle = Puzzle.of(group, Options())
        ours = puzzle.score_of(plan_sticky(group, Options()).target)
        assert ours <= puzzle.score_of(java.assignment), write_group(group)
    assert compared > GROUPS_PER_SEED / 2


@pytest.mark.java
@pytest.mark.parametrize("seed", FEW_SEEDS)
def test_what_java_members_send_is_read_as_it_was_meant(each_peer: JavaPeer, seed: int) -> None:
    read = 0
    for group in groups_with_history(seed):
        java = answer(each_peer, group, "sticky")
        if isinstance(java, str):
            continue
        for member in group.members:
            data = decode_sticky(java.user_data[member.id])
            assert (data.owned, data.generation) == (member.owned, member.generation)
            read += bool(data.owned)
    assert read > GROUPS_PER_SEED


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
