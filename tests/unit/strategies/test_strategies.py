"""Strategies are imported with the first plan, on any threads, and a group is assigned if that fails.

Plans that must be there in time: what they are, and who says how much time there is.

Groups as arrays.

Claims of members, resolved: whatever they claim, and whether it exists.
"""

from __future__ import annotations

import asyncio
import logging
import random
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackassign.clients.aiokafka import RackAwareStickyAssignor
from rackassign.clients.kafka_python import RackAwareCooperativeStickyAssignor
from rackassign.errors import ConfigError
from rackassign.locality import Locality, cross_rack_cost
from rackassign.model import LOCALITY_MODES, Broker, Group, Member, Partition, Plan, Topology
from rackassign.solver import NO_MEMBER, assignment_network, lexicographic, network_flow
from rackassign.solver.network_flow import BudgetExhaustedError, OutOfTimeError, SolveBudget
from rackassign.strategies import (
    BROKER_ASSIGNORS,
    STRATEGIES,
    Options,
    indexed_group,
    plan_consumer_protocol,
    plan_cooperative,
    plan_sticky,
    plan_uniform,
)
from rackassign.strategies.indexed_group import IndexedGroup
from rackassign.strategies.ownership import SEVERAL, resolve_ownership
from rackassign.strategies.standby import StandbyOptions, assign_standbys
from tests.helpers.fakes.aiokafka import Coordinator, sends, three_racks
from tests.helpers.fakes.kafka_python import THREE_RACKS, FakeMembership
from tests.helpers.reference_solver import reading_cost

_GROUP = """
import logging, sys, threading
from types import SimpleNamespace
from rackassign import RackAwareCooperativeStickyAssignor, RackAwareRangeAssignor, RackAwareStickyAssignor
from rackassign import StandbyAwareAssignor
from tests.helpers.fakes.kafka_python import THREE_RACKS, given_out, member

logging.basicConfig(format="%(levelname)s %(name)s %(message)s", stream=sys.stdout)

def assigned(assignor):
    members = [member("m1", ["t"], rack="a"), member("m2", ["t"], rack="b"), member("m3", ["t"], rack="c")]
    return sorted(map(len, given_out(assignor.assign(THREE_RACKS, members)).values()))
"""


def output_of(code: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", _GROUP + dedent(code)], capture_output=True, text=True, check=False, timeout=300
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_the_first_plan_loads_what_it_needs() -> None:
    code = """
        assignor = RackAwareStickyAssignor("a")
        print("numpy" in sys.modules)
        print(assigned(assignor))
        print("numpy" in sys.modules)
    """
    assert output_of(code).splitlines() == ["False", "[1, 1, 1]", "True"]


def test_what_is_loaded_ahead_is_what_the_plan_needs() -> None:
    code = """
        heavy = ("numpy", "rackassign")
        for assignor in (RackAwareRangeAssignor("a"), RackAwareStickyAssignor("a"), StandbyAwareAssignor("a")):
            assignor.load()
            known = {*sys.modules}
            shares, later = assigned(assignor), {*sys.modules} - known
            print("loaded", shares, {name for name in later if name.startswith(heavy)})
    """
    lines = [line for line in output_of(code).splitlines() if line.startswith("loaded")]
    assert lines == ["loaded [1, 1, 1] set()"] * 3


def test_threads_that_plan_at_once_all_get_a_plan() -> None:
    code = """
        from rackassign.strategies import load
        classes = [RackAwareCooperativeStickyAssignor, RackAwareRangeAssignor, RackAwareStickyAssignor]
        begin, found = threading.Barrier(8), []

        def plan(number):
            assignor = classes[number % 3]("a")
            begin.wait()
            load("sticky") if number > 5 else None
            found.append(assigned(assignor))

        threads = [threading.Thread(target=plan, args=(number,)) for number in range(8)]
        [thread.start() for thread in threads]
        [thread.join(120) for thread in threads]
        print(found == [[1, 1, 1]] * 8)
    """
    # A plan that failed would be reported as a warning, beside the result.
    assert output_of(code) == "True\n"


BROKEN = {
    "no numpy": "sys.modules['numpy'] = None",
    "numpy that raises": "sys.meta_path.insert(0, Raises('numpy'))",
}
ASSIGNORS = (
    "RackAwareCooperativeStickyAssignor",
    "RackAwareRangeAssignor",
    "RackAwareStickyAssignor",
    "StandbyAwareAssignor",
)


@pytest.mark.parametrize(
    ("breaks", "assignor"),
    [(breaks, assignor) for breaks in BROKEN.values() for assignor in ASSIGNORS],
)
def test_a_group_is_assigned_if_nothing_can_be_loaded_and_that_is_logged_once(breaks: str, assignor: str) -> None:
    code = f"""
        class Raises:
            def __init__(self, name):
                self.name = name

            def find_spec(self, name, path=None, target=None):
                if name == self.name:
                    raise OSError("a broken library")

        {breaks}
        made = {assignor}("a")
        made.metadata({{"t"}})
        print(assigned(made), assigned(made))
    """
    lines = output_of(code).splitlines()
    assert lines[-1] == "[1, 1, 1] [1, 1, 1]"
    failed = "rack-aware assignment failed; the group gets a plain assignment instead"
    warnings = [line.partition(" ")[0] for line in lines if failed in line]
    # A range assignment needs neither.
    assert warnings == ["WARNING"] * (assignor != "RackAwareRangeAssignor")


LATE = Options(time_limit_s=0)


def own_topics(members: int = 60, *, joined: int = 6) -> Group:
    """Members with topics of their own each, of which all but the last own what an optimal plan gave them."""
    dice = random.Random(18)
    rows = [Partition((p, (p + 1) % 3), p) for p in range(3)]
    topics = {f"t{i}": tuple(rows[(p + i) % 3] for p in range(30)) for i in range(20)}
    all_members = tuple(
        Member(f"m{i:02}", frozenset(dice.sample(sorted(topics), 8)), rack="abc"[i % 3]) for i in range(members)
    )
    topology = Topology(tuple(Broker(i, rack) for i, rack in enumerate("abc")), topics)
    before = plan_sticky(Group(topology, all_members[:-joined] if joined else all_members))
    assert before.optimal
    return Group(
        topology,
        tuple(
            replace(member, owned=before.target[member.id], generation=1) if member.id in before.target else member
            for member in all_members
        ),
    )


def loads(plan: Plan) -> list[int]:
    return sorted(sum(map(len, owned.values())) for owned in plan.target.values())


@pytest.mark.parametrize("plan", [plan_sticky, plan_cooperative])
def test_past_the_limit_a_plan_is_balanced_and_keeps_what_members_have(plan: Any) -> None:
    group = own_topics()
    late, best = plan(group, LATE), plan(group)
    assert late.optimality_note == "the time limit of the plan is exceeded"
    assert not late.optimal
    assert best.optimal
    assert loads(late) == loads(best)
    # As few leave their owner as in the optimum, or few more; of the 600 none need.
    assert late.moved <= 1.2 * best.moved
    assert Locality.of(group, late).cross <= 0.1 * 600


def test_past_the_limit_nothing_moves_where_nothing_must() -> None:
    assert plan_cooperative(own_topics(joined=0), LATE).moved == 0


def test_past_the_limit_weights_are_balanced_about_and_owners_keep_what_they_can() -> None:
    dice = random.Random(18)
    group = own_topics(joined=0)
    weights = {topic: tuple(dice.paretovariate(2) for _ in row) for topic, row in group.topology.topics.items()}
    group = replace(group, weights=weights)
    best = plan_cooperative(group)
    owned = replace(group, members=tuple(replace(m, owned=best.target[m.id], generation=1) for m in group.members))
    # What is within the tolerance is kept without a search.
    kept = plan_cooperative(owned, LATE)
    assert (kept.moved, kept.optimality_note) == (0, "")
    late = plan_cooperative(replace(owned, members=owned.members[1:]), LATE)
    assert late.optimality_note == "the time limit of the plan is exceeded"
    assert late.moved <= 60
    assert late.optimality_gap is not None
    assert late.optimality_gap < 0.5


def count_solves(monkeypatch: pytest.MonkeyPatch) -> list[SolveBudget]:
    """Note the work that each solve is given."""
    solves: list[SolveBudget] = []
    original = network_flow.min_cost_flow

    def counted(network: Any, cost: Any, work: SolveBudget, **more: Any) -> Any:
        solves.append(work)
        return original(network, cost, work, **more)

    monkeypatch.setattr(lexicographic, "min_cost_flow", counted)
    return solves


def test_the_limit_is_looked_at_in_the_search_for_bases(monkeypatch: pytest.MonkeyPatch) -> None:
    solves = count_solves(monkeypatch)
    # The third solve finds that time is over.
    monkeypatch.setattr(SolveBudget, "late", lambda _: len(solves) > 2)
    plan = plan_cooperative(own_topics(16, joined=0), Options(max_skew=20))
    assert plan.optimality_note == "the time limit of the plan is exceeded"
    assert len(solves) == 3


def test_small_solves_are_work_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """With equal subscriptions networks are small; all bases of a wide bound would be tried for nothing."""
    solves = count_solves(monkeypatch)
    topology = Topology((Broker(0, "a"),), {"t": (Partition((0,), 0),) * 400})
    group = Group(topology, tuple(Member(f"m{i}", frozenset({"t"}), "a") for i in range(16)))
    plan = plan_cooperative(group, Options(max_skew=20, work=30))
    assert 0 < len(solves) <= 6
    assert "budget" in plan.optimality_note
    assert loads(plan) == [25] * 16


def test_a_deadline_and_a_budget_that_are_over_are_told_apart() -> None:
    with pytest.raises(OutOfTimeError):
        SolveBudget(1, until=0.0).check()
    with pytest.raises(BudgetExhaustedError, match="budget"):
        SolveBudget(0).check()
    SolveBudget(1).check()
    with pytest.raises(OutOfTimeError):
        SolveBudget(10**9, until=time.monotonic() + 60).check_ahead(10**12, steps=False)
    with pytest.raises(BudgetExhaustedError, match="budget"):
        SolveBudget(1).check_ahead(10**12, steps=True)
    SolveBudget(1).check_ahead(10**12, steps=False)


def test_a_network_that_exceeds_the_budget_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a hundred racks and replicas at random, it would have millions of arcs."""
    solves = count_solves(monkeypatch)
    dice = random.Random(1)
    brokers = tuple(Broker(i, f"r{i}") for i in range(100))
    topics = {"t": tuple(Partition(tuple(dice.sample(range(100), 3))) for _ in range(1_000))}
    members = tuple(Member(f"m{i}", frozenset({"t"}), f"r{i}") for i in range(100))
    group = Group(Topology(brokers, topics), members)
    monkeypatch.setattr(assignment_network, "_kinds", None)
    plan = plan_cooperative(group, Options(work=500))
    assert not solves
    assert "budget" in plan.optimality_note
    assert loads(plan) == [10] * 100


def test_costs_are_those_of_the_cheapest_replica_in_any_number_of_racks() -> None:
    dice = random.Random(1)
    racks = [f"r{i:02}" for i in range(90)]
    brokers = (Broker(0, None), *(Broker(i, rack) for i, rack in enumerate(racks, 1)))
    topics = {
        name: tuple(Partition(tuple(dice.sample(range(91), dice.randint(1, 5)))) for _ in range(60)) for name in "tu"
    }
    prices = {a: {b: float(dice.randint(1, 300)) for b in dice.sample(racks, 40) if b != a} for a in racks}
    members = tuple(Member(f"m{i}", frozenset("tu"), dice.choice([*racks, "x", None])) for i in range(40))
    group = Group(Topology(brokers, topics), members, costs=prices)
    for mode in LOCALITY_MODES:
        problem = IndexedGroup.of(group, mode).to_problem()
        found = problem.cost[problem.cost_row][:, problem.rack]
        units = [partition for name in "tu" for partition in topics[name]]
        owners = sorted(members, key=lambda member: member.id)
        expected = np.asarray([[reading_cost(group, mode, member, unit) for member in owners] for unit in units])
        assert (found * int(expected.max()) == expected * int(found.max())).all()


@pytest.mark.parametrize("limit", [-1, "1", float("nan"), True])
def test_a_limit_that_is_none_is_refused(limit: Any) -> None:
    with pytest.raises(ConfigError, match="time_limit_s"):
        Options(time_limit_s=limit)


def test_past_the_limit_standbys_have_a_place_all_the_same() -> None:
    group = own_topics()
    group = replace(group, members=tuple(replace(m, tags={"zone": m.rack or ""}) for m in group.members))
    found = assign_standbys(group, {}, StandbyOptions(rack_aware_assignment_tags=["zone"]), LATE)
    assert not found.missing
    assert found.collisions == 0
    assert not found.proven


class Timed(FakeMembership):
    def session_timeout_s(self) -> float | None:
        return 45.0


@pytest.mark.parametrize(("membership", "limit"), [(Timed(), 15.0), (FakeMembership(), 2.0), (None, 2.0)])
def test_a_leader_plans_for_a_third_of_its_session_timeout(
    membership: Any, limit: float, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "rackassign")
    assignor = RackAwareCooperativeStickyAssignor(rack="a", rack_monitor=None)
    if membership is not None:
        assignor.bind(membership)
    asked: list[Options] = []

    def plan(group: Group, options: Options) -> Plan:
        asked.append(options)
        return replace(STRATEGIES["cooperative-sticky"](group, options), optimality_note="late")

    assignor._planner.strategy = plan
    for _ in range(2):
        planning = assignor._planning(THREE_RACKS, list)
        assert planning() is not None
    assert all(options.time_limit_s is not None and 0 < options.time_limit_s <= limit for options in asked)
    told = [record.getMessage() for record in caplog.records if "late" in record.getMessage()]
    assert len(told) == 1
    assert f"{limit:.1f} s" in told[0]


def test_weights_that_take_too_long_are_not_asked_for_again(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[int] = []

    def weights() -> dict[str, list[float]]:
        asked.append(1)
        time.sleep(0.02)
        return {"t": [1.0, 2.0, 3.0]}

    class Hasty(FakeMembership):
        def session_timeout_s(self) -> float | None:
            return 0.03

    assignor = RackAwareCooperativeStickyAssignor(rack="a", rack_monitor=None, weights=weights)
    hasty: Any = Hasty()
    assignor.bind(hasty)
    for _ in range(3):
        assert assignor._planning(THREE_RACKS, list)() is not None
    assert len(asked) == 1
    assert "the function is not called any more" in caplog.text


def test_aiokafkas_loop_goes_on_while_a_plan_is_made() -> None:
    over = threading.Event()
    begin: list[Callable[[], object]] = []
    planned_on: list[threading.Thread] = []
    assignor = RackAwareStickyAssignor(rack="a", rack_monitor=None)
    leader = Coordinator(three_racks(), assignor)
    leader.join({"t"})

    def plan(group: Group, options: Options) -> Plan:
        planned_on.append(threading.current_thread())
        begin[0]()
        # Only the loop can end this; the time is a guard against a hang.
        assert over.wait(120)
        return STRATEGIES["sticky"](group, options)

    assignor._planner.strategy = plan

    async def play() -> dict[str, bytes]:
        members = [(f"m{rack}", None, sends(rack=rack)) for rack in "abc"]
        response = SimpleNamespace(API_VERSION=5, group_protocol="sticky", members=members)
        begun = asyncio.Event()
        begin.append(partial(asyncio.get_running_loop().call_soon_threadsafe, begun.set))
        leading = asyncio.ensure_future(leader._perform_assignment(response))
        await begun.wait()
        over.set()
        answer: dict[str, bytes] = await leading
        return answer

    answer = asyncio.run(play())
    assert set(answer) == {"ma", "mb", "mc"}
    assert planned_on[0] is not threading.main_thread()


def test_aiokafkas_plan_waits_for_nothing_that_the_user_has_on_threads() -> None:
    """All threads of the loop's own pool are at something that ends when the group is assigned, and not before."""
    assigned = threading.Event()
    leader = Coordinator(three_racks(), RackAwareStickyAssignor(rack="a", rack_monitor=None))
    leader.join({"t"})

    async def play() -> dict[str, bytes]:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        # The time is a guard against a hang.
        busy = loop.run_in_executor(None, assigned.wait, 120)
        response = SimpleNamespace(API_VERSION=5, group_protocol="sticky", members=[("ma", None, sends(rack="a"))])
        answer: dict[str, bytes] = await leader._perform_assignment(response)
        assert not busy.done()
        assigned.set()
        await busy
        return answer

    assert set(asyncio.run(play())) == {"ma"}


def test_what_wraps_an_assignor_of_aiokafka_gets_assignments() -> None:
    class Wrapper:
        def __init__(self, inner: Any) -> None:
            self._inner = inner
            self.seen: list[Any] = []

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def assign(self, cluster: Any, members: Any) -> dict[str, bytes]:
            self.seen.append({member: list(metadata.subscription) for member, metadata in members.items()})
            answer: dict[str, bytes] = self._inner.assign(cluster, members)
            self.seen.append(sorted(answer.items()))
            return answer

    wrapper = Wrapper(RackAwareStickyAssignor(rack="a", rack_monitor=None))
    leader = Coordinator(three_racks(), wrapper)
    leader.join({"t"})
    members = [(f"m{rack}", None, sends(rack=rack)) for rack in "ab"]
    response = SimpleNamespace(API_VERSION=5, group_protocol="sticky", members=members)
    answer = asyncio.run(leader._perform_assignment(response))
    assert wrapper.seen == [{"ma": ["t"], "mb": ["t"]}, sorted(answer.items())]


def test_a_subclass_of_aiokafkas_assignor_gets_assignments_and_no_promise_of_them() -> None:
    seen: list[Any] = []

    class Noted(RackAwareStickyAssignor):
        name = "noted"

        def assign(self, cluster: Any, members: Any) -> dict[str, bytes]:
            seen.append({member: list(metadata.subscription) for member, metadata in members.items()})
            answer: dict[str, bytes] = super().assign(cluster, members)
            seen.append(sorted(answer))
            return answer

    leader = Coordinator(three_racks(), Noted(rack="a", rack_monitor=None))
    leader.join({"t"})
    members = [(f"m{rack}", None, sends(rack=rack)) for rack in "abc"]
    response = SimpleNamespace(API_VERSION=5, group_protocol="noted", members=members)
    asyncio.run(leader._perform_assignment(response))
    assert seen == [{"ma": ["t"], "mb": ["t"], "mc": ["t"]}, ["ma", "mb", "mc"]]


@pytest.mark.parametrize("max_skew", [1, 5])
def test_a_skew_that_is_not_solved_in_its_budget_is_as_local_as_balanced_loads(max_skew: int) -> None:
    chance = random.Random(1)
    topics = [f"t{i}" for i in range(30)]
    brokers = tuple(Broker(i, f"r{i}") for i in range(6))
    rows = tuple(Partition((p % 6,), p % 6) for p in range(12))
    members = tuple(Member(f"m{i:02}", frozenset(chance.sample(topics, 10)), f"r{i % 6}") for i in range(60))
    group = Group(Topology(brokers, dict.fromkeys(topics, rows)), members)
    even, short = plan_cooperative(group), plan_cooperative(group, Options(max_skew=max_skew, work=0))
    assert short.optimality_note == "the budget of the plan is used up"
    assert Locality.of(group, short).cross == Locality.of(group, even).cross


def test_a_skew_with_more_combinations_of_loads_than_a_float_holds_has_a_plan() -> None:
    chance = random.Random(1)
    topics = [f"t{i}" for i in range(60)]
    subscriptions = [frozenset(chance.sample(topics, 20)) for _ in range(260)]
    members = tuple(Member(f"m{i:03d}", subscriptions[i // 2], "a") for i in range(520))
    group = Group(Topology((Broker(0, "a"),), dict.fromkeys(topics, (Partition((0,), 0),) * 10)), members)
    plan = plan_cooperative(group, Options(max_skew=1, work=0))
    assert plan.optimality_note == "the budget of the plan is used up"
    assert sum(loads(plan)) == 600


@pytest.mark.parametrize("per_topic", [False, True])
def test_racks_with_equal_costs_are_one_for_the_solver(per_topic: bool) -> None:  # noqa: FBT001
    topology = Topology((Broker(0, "a"), Broker(1, "b")), {"t": (Partition((0,), 0), Partition((1,), 1)) * 20})
    racks = [*(f"host-{i}" for i in range(30)), "a", "b", None, "far"]
    members = tuple(Member(f"m{i:02}", frozenset({"t"}), rack) for i, rack in enumerate(racks))
    group = Group(topology, members, costs={"far": {"a": 5.0}})
    problem = IndexedGroup.of(group, "any-replica").to_problem(per_topic=per_topic)
    # None, a, b, far and the hosts.
    assert problem.cost.shape == (2, 5)
    assert problem.ties is not None
    assert problem.ties.cost.shape == (2, 5)
    assert len(set(problem.rack[:30].tolist())) == 1
    assert len(set(problem.rack.tolist())) == 5
    plan = plan_cooperative(group, Options(balance="topic" if per_topic else "total"))
    assert plan.optimal
    assert all(p % 2 == 0 for p in plan.target["m30"]["t"])
    assert all(p % 2 == 1 for p in (*plan.target["m31"]["t"], *plan.target["m33"]["t"]))


def test_prices_are_computed_for_racks_and_not_for_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the names of their hosts as racks, thousands of members took minutes."""
    topology = Topology((Broker(0, "a"), Broker(1, "b")), {"t": (Partition((0, 1), 0), Partition((1,), 1)) * 20})
    priced: list[object] = []

    def counted(*question: Any) -> int:
        priced.append(question)
        return cross_rack_cost(*question)

    monkeypatch.setattr(indexed_group, "cross_rack_cost", counted)
    numbers = []
    for hosts in (1, 1000):
        members = tuple(Member(f"m{i}", frozenset({"t"}), f"host-{i}") for i in range(hosts))
        group = Group(topology, members, costs={"far": {"a": 5.0}})
        priced.clear()
        assert IndexedGroup.of(group, "any-replica").to_problem().rack.tolist() == [0] * hosts
        numbers.append(len(priced))
    assert numbers[0] == numbers[1] > 0


def test_racks_that_differ_by_leaders_only_stay_apart() -> None:
    topology = Topology((Broker(0, "a"), Broker(1, "b")), {"t": (Partition((0, 1), 0), Partition((1, 0), 1))})
    members = tuple(Member(rack, frozenset({"t"}), rack) for rack in "ba")
    plan = plan_cooperative(Group(topology, members))
    assert plan.target == {"a": {"t": (0,)}, "b": {"t": (1,)}}


def test_claims_of_members_with_equal_subscriptions_take_no_memory_for_each_member_and_topic() -> None:
    topics = [f"t{i}" for i in range(2000)]
    topology = Topology((Broker(0, "a"),), dict.fromkeys(topics, (Partition((0,), 0),)))
    members = tuple(Member(f"m{i}", frozenset(topics), owned={f"t{i}": (0,)}) for i in range(2000))
    indexed = IndexedGroup.of(Group(topology, members), "any-replica")
    assert len(indexed.sizes) == 2000
    tracemalloc.start()
    try:
        claims = indexed.claims
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (claims.owner >= 0).all()
    # A byte for each would be 4 million.
    assert peak < 2_000_000


TOPICS, SIZES = ("a", "b", "c"), (2, 1, 3)

ids = st.sampled_from([0, 1, 2, 3, 2**31 - 1, 2**31, 2**63, 2**70])
claims = st.dictionaries(st.sampled_from(["a", "b", "c", "gone"]), st.lists(ids, max_size=4, unique=True).map(tuple))
generations = st.sampled_from([None, 0, 1, 2])


@given(st.lists(st.tuples(claims, generations, st.frozensets(st.sampled_from(TOPICS))), max_size=5))
def test_claims_are_resolved_as_the_definition_does(
    claimed: list[tuple[dict[str, tuple[int, ...]], int | None, frozenset[str]]],
) -> None:
    members = [
        Member(f"m{i}", topics, owned=owned, generation=generation)
        for i, (owned, generation, topics) in enumerate(claimed)
    ]
    reads = np.asarray([[topic in member.topics for topic in TOPICS] for member in members], bool)
    found = resolve_ownership(members, TOPICS, np.asarray(SIZES), reads.reshape(len(members), len(TOPICS)))
    claimant: list[int] = []
    owner: list[int] = []
    for topic, size in zip(TOPICS, SIZES, strict=True):
        for partition in range(size):
            by_generation: dict[int, list[int]] = {}
            for i, member in enumerate(members):
                if partition in member.owned.get(topic, ()):
                    by_generation.setdefault(-1 if member.generation is None else member.generation, []).append(i)
            newest = by_generation[max(by_generation)] if by_generation else [NO_MEMBER]
            one = newest[0] if len(newest) == 1 else SEVERAL
            claimant.append(one)
            owner.append(one if one >= 0 and topic in members[one].topics else NO_MEMBER)
    assert (found.claimant.tolist(), found.owner.tolist()) == (claimant, owner)


def test_without_topics_nothing_is_claimed() -> None:
    member = Member("m", frozenset({"gone"}), owned={"gone": (0,)}, generation=1)
    found = resolve_ownership([member], (), np.zeros(0, np.int64), np.zeros((1, 0), bool))
    assert (found.claimant.tolist(), found.owner.tolist()) == ([], [])


def striped(members: int, partitions: int) -> Group:
    """Return a group in three racks, of which members and leaders follow each other in the same order."""
    topics = {"t": tuple(Partition((number % 3,)) for number in range(partitions))}
    brokers = tuple(Broker(number, rack) for number, rack in enumerate("abc"))
    names = tuple(Member(f"m{number}", frozenset({"t"}), "abc"[number % 3]) for number in range(members))
    return Group(Topology(brokers, topics), names)


def test_kafkas_own_assignors_of_brokers_make_local_what_chance_does() -> None:
    group = striped(6, 36)
    local = {name: Locality.of(group, plan(group, Options())).local for name, plan in BROKER_ASSIGNORS.items()}
    # Runs of six partitions begin in each rack in turn, and have two of each.
    assert local == {"uniform": 12, "range": 12, "rackassign": 36}


def test_uniform_keeps_what_members_have() -> None:
    group = striped(4, 12)
    planned = plan_uniform(group).target
    joined = replace(
        group, members=(*(replace(m, owned=planned[m.id]) for m in group.members), *striped(5, 0).members[4:])
    )
    assert plan_uniform(joined).moved == 2


def test_the_brokers_assignor_has_no_options_of_leaders_and_ignores_weights_and_costs() -> None:
    group = striped(3, 12)
    weighted = replace(group, weights={"t": (100.0, *[1.0] * 11)}, costs={"a": {"b": 9.0}}, copartition=(("t", "u"),))
    assert plan_consumer_protocol(weighted).target == plan_consumer_protocol(group).target
    assert plan_consumer_protocol(group).target == plan_sticky(group).target
    for wrong in (Options(locality="leader"), Options(max_skew=1), Options(weight_tolerance=0.1)):
        with pytest.raises(ConfigError, match="cannot be used with consumer-protocol"):
            plan_consumer_protocol(group, wrong)
