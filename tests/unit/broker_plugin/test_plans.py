"""The plans of the broker plug-in beside those that are computed in Python, and its jar beside its sources."""

from __future__ import annotations

import random
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from rackassign import broker_plugin
from rackassign.errors import ClusterError
from rackassign.model import BALANCE_MODES, BalanceMode, Broker, Group, Member, Partition, Topology
from rackassign.strategies import Options, plan_consumer_protocol, plan_sticky, plan_uniform, valid_owners
from tests.helpers.examples import examples
from tests.helpers.generators.random_groups import random_group
from tests.helpers.java.assignor_peer import NoJdkError, PeerLostError, skipped_without_java
from tests.helpers.java.plan_server import UNIFORM, PlanServer, plan_server, run_junit
from tests.helpers.recorded_groups import group_of, recorded
from tools.broker_plugin import build, main

Assignment = Mapping[str, Mapping[str, tuple[int, ...]]]


@pytest.fixture(scope="module")
def server() -> Iterator[PlanServer]:
    with plan_server() as running:
        yield running


def owned_at_random(chance: random.Random) -> Group:
    """Return a group whose members own partitions that they read, as a coordinator has them: each once at most."""
    group = random_group(chance)
    brokers = tuple(replace(broker, rack=broker.rack or None) for broker in group.topology.brokers)
    owned: dict[str, dict[str, tuple[int, ...]]] = {member.id: {} for member in group.members}
    share = chance.random()
    for topic, partitions in group.topology.topics.items():
        readers = [member.id for member in group.members if topic in member.topics]
        for number in range(len(partitions)) if readers else ():
            if chance.random() < share:
                mine = owned[chance.choice(readers)]
                mine[topic] = (*mine.get(topic, ()), number)
    members = tuple(replace(member, owned=owned[member.id], generation=1) for member in group.members)
    return replace(group, topology=replace(group.topology, brokers=brokers), members=members)


def value(group: Group, assignment: Assignment) -> tuple[int, int, int]:
    """Return the squares of loads, the partitions that cross racks, and the moves; check that the plan is complete."""
    racks = group.topology.broker_racks()
    members = {member.id: member for member in group.members}
    owners = {
        (topic, number): member
        for member, owned in assignment.items()
        for topic, numbers in owned.items()
        for number in numbers
    }
    loads = [sum(map(len, owned.values())) for owned in assignment.values()]
    assert sum(loads) == len(owners)
    read = {topic for member in group.members for topic in member.topics}
    topics = {topic: partitions for topic, partitions in group.topology.topics.items() if topic in read}
    assert owners.keys() == {(topic, n) for topic, partitions in topics.items() for n in range(len(partitions))}
    crossing = 0
    for (topic, number), member in owners.items():
        assert topic in members[member].topics
        of = {racks[broker] for broker in topics[topic][number].replicas if broker in racks}
        crossing += members[member].rack is not None and bool(of) and members[member].rack not in of
    before = {(t, n): m.id for m in group.members for t, numbers in m.owned.items() for n in numbers}
    return sum(load**2 for load in loads), crossing, sum(owners[tp] != member for tp, member in before.items())


def topic_squares(assignment: Assignment) -> int:
    return sum(len(numbers) ** 2 for owned in assignment.values() for numbers in owned.values())


@pytest.mark.parametrize("balance", BALANCE_MODES)
def test_a_plan_is_as_even_local_and_calm_as_pythons_and_proven(server: PlanServer, balance: BalanceMode) -> None:
    for seed in range(examples(300)):
        group = owned_at_random(random.Random(seed))
        plan, planned = server.plan(group, balance=balance), plan_consumer_protocol(group, Options(balance=balance))
        assert plan.proven, seed
        if balance == "topic":
            assert topic_squares(plan.assignment) == topic_squares(planned.target), seed
        assert value(group, plan.assignment) == value(group, planned.target), seed


def test_recorded_groups_are_planned_as_well_as_in_python(server: PlanServer) -> None:
    cases = [*recorded("java_range.json")["vectors"], *recorded("java_sticky.json")["vectors"]]
    assert len(cases) > 150
    for case in cases:
        group = group_of(case)
        # Of two members that claim a partition a coordinator has one as its owner.
        owned: dict[str, dict[str, tuple[int, ...]]] = {member.id: {} for member in group.members}
        for (topic, number), member_id in valid_owners(group).items():
            owned[member_id][topic] = (*owned[member_id].get(topic, ()), number)
        group = replace(group, members=tuple(replace(member, owned=owned[member.id]) for member in group.members))
        plan = server.plan(group)
        assert value(group, plan.assignment) == value(group, plan_consumer_protocol(group).target), case["id"]


def test_kafkas_uniform_is_as_even_and_calm_as_it_is_said_to_be(server: PlanServer) -> None:
    """Its locality is chance, and no matter here."""
    for seed in range(examples(300)):
        group = owned_at_random(random.Random(seed))
        # It refuses a topic that is not there.
        read = frozenset(topic for member in group.members for topic in member.topics & group.topology.topics.keys())
        group = replace(group, members=tuple(replace(member, topics=read) for member in group.members))
        loads, _, moves = value(group, server.plan(group, assignor=UNIFORM).assignment)
        planned, _, moved = value(group, plan_uniform(group).target)
        assert (loads, moves) == (planned, moved), seed


def large(members: int, topics: int) -> Group:
    partitions = tuple(Partition((number % 3,)) for number in range(50))
    names = [f"t{number}" for number in range(topics)]
    return Group(
        Topology(tuple(Broker(number, rack) for number, rack in enumerate("abc")), dict.fromkeys(names, partitions)),
        tuple(Member(f"m{number:04}", frozenset(names), "abc"[number % 3]) for number in range(members)),
    )


def test_a_thousand_members_with_ten_thousand_partitions_are_within_the_budget(server: PlanServer) -> None:
    group = large(1000, 200)
    # The first calls of a JVM may be beyond the limit in time, whatever is planned.
    fresh = [server.plan(group, max_ms=50) for _ in range(20)][-1]
    assert value(group, fresh.assignment) == (100_000, value(group, plan_sticky(group, Options()).target)[1], 0)
    owners = tuple(replace(member, owned=fresh.assignment[member.id]) for member in group.members[:-1])
    joining = replace(group, members=(*owners, group.members[-1]))
    # Without the last member the others own too little: what was its own has no owner.
    assert value(joining, server.plan(joining, max_ms=50).assignment)[2] == 0


def test_a_plan_leaves_little_garbage_for_each_pair_of_a_topic_and_a_subscriber(server: PlanServer) -> None:
    """Each member has a subscription of its own, so that there are as many pairs of classes as of members."""
    group, chance = large(300, 600), random.Random(1)
    topics = sorted(group.topology.topics)
    members = tuple(replace(member, topics=frozenset(chance.sample(topics, 300))) for member in group.members)
    few = replace(group.topology, topics={topic: (Partition((0,)),) for topic in topics})
    plan = server.plan(replace(group, topology=few, members=members), balance="topic", max_ms=1, repeat=3)
    assert plan.allocated < 200 * 300 * 300


def test_the_same_group_has_the_same_plan_in_any_order(server: PlanServer) -> None:
    for seed in range(20):
        chance = random.Random(seed)
        group = owned_at_random(chance)
        shuffled = list(group.members)
        chance.shuffle(shuffled)
        assert server.plan(replace(group, members=tuple(shuffled))).assignment == server.plan(group).assignment


@pytest.mark.usefixtures("server")
def test_a_jvm_that_ends_is_an_error_with_its_log() -> None:
    with plan_server() as ends, pytest.raises(PeerLostError, match="ClassNotFoundException: nowhere"):
        ends.plan(large(1, 1), assignor="nowhere.NoAssignor")


def test_without_a_jdk_a_users_run_is_skipped_and_ci_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise NoJdkError("no javac")

    monkeypatch.setattr("tests.helpers.java.plan_server.find_jdk", missing)
    for ci, raised in (("true", NoJdkError), ("", pytest.skip.Exception)):
        monkeypatch.setenv("CI", ci)
        with pytest.raises(raised, match="no javac"), plan_server():
            pass


def test_without_a_network_the_tool_says_so_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object) -> None:
        raise ClusterError("cannot fetch ecj")

    monkeypatch.setattr("tools.broker_plugin.fetched", refused)
    with pytest.raises(SystemExit, match="cannot fetch ecj"):
        main()


def test_the_jar_is_what_the_sources_give() -> None:
    data = broker_plugin.jar_path().read_bytes()
    with skipped_without_java():
        built = build()
    assert data == built, "run `make broker-plugin`"
    assert len(data) < 100_000
    with zipfile.ZipFile(broker_plugin.jar_path()) as jar:
        assert broker_plugin.CLASS.replace(".", "/") + ".class" in jar.namelist()


@pytest.mark.long
def test_the_tests_of_the_java_project_pass() -> None:
    report = run_junit(examples(20_000))
    assert "0 tests failed" in report
    assert "0 tests found" not in report
