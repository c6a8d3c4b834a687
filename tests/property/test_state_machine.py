"""Groups that live: members come, go, fail and disagree, the cluster changes, and every rebalance is a good one."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rackassign.model import (
    LOCALITY_MODES,
    BalanceMode,
    Broker,
    Group,
    LocalityMode,
    Member,
    Partition,
    Plan,
    TopicPartition,
    Topology,
)
from rackassign.strategies import Options, plan_cooperative, plan_sticky
from tests.helpers import reference_solver
from tests.helpers.copartition_checks import check_units
from tests.helpers.examples import examples
from tests.helpers.reference_solver import Puzzle, check_plan, reclaimed, spelled

MOST_MEMBERS = 5
MOST_PARTITIONS = 4

racks = st.sampled_from(["a", "b", "c", None])
topics = st.sampled_from(["t", "u", "v"])
subscriptions = st.sampled_from([frozenset(names) for names in ("t", "tu", "tuv", "uv", "v", "tx", "")])
partitions = st.builds(
    Partition,
    st.sampled_from([(0,), (1,), (2,), (0, 1), (1, 2), (2, 0), (3, 1), (9,)]),
    st.sampled_from([0, 1, 2, None]),
)
matrices = st.sampled_from(
    [{}, {}, {"a": {"b": 0.5}, "b": {"c": 3.0}}, {"a": {"b": 0.0, "c": 2.0}, "c": {"b": 0.000001}}]
)
places = st.integers(0, MOST_MEMBERS - 1)


class LivingGroup(RuleBasedStateMachine):
    """A cooperative group and its cluster.

    `members` are as they would join now: with what they claim. `held` is what each really reads, and `crashed` are
    those that may come back with old claims.
    """

    cooperative = True

    def __init__(self) -> None:
        super().__init__()
        self.members: dict[str, Member] = {}
        self.held: dict[str, set[TopicPartition]] = {}
        self.crashed: dict[str, Member] = {}
        self.generation = self.joined = 0

    @initialize(
        matrix=matrices,
        locality=st.sampled_from(LOCALITY_MODES),
        balanced=st.sampled_from([(0, "total"), (0, "total"), (1, "total"), (0, "topic"), (0, "topic")]),
        listed=st.lists(partitions, min_size=2, max_size=2 * MOST_PARTITIONS),
        first=st.lists(st.tuples(racks, subscriptions), min_size=1, max_size=4),
    )
    def start(
        self,
        matrix: dict[str, dict[str, float]],
        locality: LocalityMode,
        balanced: tuple[int, BalanceMode],
        listed: list[Partition],
        first: list[tuple[str | None, frozenset[str]]],
    ) -> None:
        max_skew, balance = balanced
        self.options = Options(locality, max_skew=max_skew, balance=balance)
        self.costs = matrix
        self.brokers: dict[int, str | None] = {0: "a", 1: "b", 2: "c", 3: None}
        self.topics = {"t": listed[::2], "u": listed[1::2]}
        for rack, subscribed in first:
            self.join(rack, subscribed)
        self.rebalance(set())

    def group(self) -> Group:
        brokers = tuple(Broker(broker, rack) for broker, rack in self.brokers.items())
        known = {topic: tuple(listed) for topic, listed in self.topics.items()}
        return Group(Topology(brokers, known), tuple(self.members.values()), costs=self.costs)

    def plan(self, group: Group) -> Plan:
        return (plan_cooperative if self.cooperative else plan_sticky)(group, self.options)

    def chosen(self, place: int) -> Member:
        return list(self.members.values())[place % len(self.members)]

    def any_member(self) -> bool:
        return bool(self.members)

    # Members

    @precondition(lambda self: len(self.members) < MOST_MEMBERS)
    @rule(rack=racks, subscribed=subscriptions)
    def join(self, rack: str | None, subscribed: frozenset[str]) -> None:
        # Ids do not come in order of joining.
        name = f"{'mknlo'[self.joined % 5]}{self.joined}"
        self.joined += 1
        self.members[name] = Member(name, subscribed, rack)
        self.held[name] = set()

    @precondition(any_member)
    @rule(place=places)
    def leave(self, place: int) -> None:
        name = self.chosen(place).id
        del self.members[name], self.held[name]

    @precondition(any_member)
    @rule(place=places)
    def crash(self, place: int) -> None:
        member = self.chosen(place)
        self.crashed[member.id] = member
        del self.members[member.id], self.held[member.id]

    @precondition(lambda self: self.crashed and len(self.members) < MOST_MEMBERS)
    @rule()
    def come_back_with_old_claims(self) -> None:
        name, member = self.crashed.popitem()
        self.members[name] = member
        self.held[name] = set()

    @precondition(any_member)
    @rule(place=places, subscribed=subscriptions, lets_go=st.booleans())
    def subscribe_anew(self, place: int, subscribed: frozenset[str], *, lets_go: bool) -> None:
        member = self.chosen(place)
        owned = {topic: ids for topic, ids in member.owned.items() if topic in subscribed or not lets_go}
        self.members[member.id] = replace(member, topics=subscribed, owned=owned)
        if lets_go:
            self.held[member.id] = {key for key in self.held[member.id] if key.topic in subscribed}

    @precondition(any_member)
    @rule(place=places, rack=racks)
    def restart_in_another_rack(self, place: int, rack: str | None) -> None:
        member = self.chosen(place)
        self.members[member.id] = replace(member, rack=rack)

    @precondition(lambda self: len(self.members) > 1)
    @rule(place=places, other=places)
    def claim_what_another_has(self, place: int, other: int) -> None:
        liar, holder = self.chosen(place), self.chosen(other)
        if liar.generation == holder.generation:
            owned = {t: tuple({*liar.owned.get(t, ()), *holder.owned.get(t, ())}) for t in {*liar.owned, *holder.owned}}
            self.members[liar.id] = replace(liar, owned=owned)

    # The cluster

    @rule(topic=topics, more=st.lists(partitions, min_size=1, max_size=2))
    def add_partitions(self, topic: str, more: list[Partition]) -> None:
        self.topics[topic] = [*self.topics.get(topic, []), *more][:MOST_PARTITIONS]

    @rule(topic=topics)
    def lose_a_topic(self, topic: str) -> None:
        self.topics.pop(topic, None)

    @rule(topic=topics, place=st.integers(0, MOST_PARTITIONS - 1), to=partitions)
    def move_replicas(self, topic: str, place: int, to: Partition) -> None:
        if place < len(self.topics.get(topic, ())):
            self.topics[topic][place] = to

    @rule(rack=racks)
    def lose_a_rack(self, rack: str | None) -> None:
        self.brokers = {broker: None if at == rack else at for broker, at in self.brokers.items()}

    @rule(broker=st.integers(0, 3))
    def lose_a_broker(self, broker: int) -> None:
        self.brokers.pop(broker, None)

    @rule(broker=st.integers(0, 3), rack=racks)
    def see_a_broker(self, broker: int, rack: str | None) -> None:
        self.brokers[broker] = rack

    # Rebalances

    @rule(missing=st.sets(places, max_size=2))
    def rebalance(self, missing: set[int]) -> None:
        """Some members miss the answer: they keep what they had, and say so when they join next."""
        plan = self.plan(self.group())
        self.generation += 1
        for i, (name, member) in enumerate(list(self.members.items())):
            if i in missing:
                continue
            given = plan.assignment[name]
            self.members[name] = replace(member, owned=dict(given), generation=self.generation)
            self.held[name] = {TopicPartition(topic, p) for _, topic, p in spelled({name: given})}

    @rule()
    def settle(self) -> None:
        """Whatever has happened, two rebalances are enough, and a third changes nothing."""
        group = self.group()
        first = self.plan(group)
        second = self.plan(reclaimed(group, first.assignment, self.generation + 1))
        assert second.withheld == {}
        assert second.moved == 0
        assert second.assignment == second.target
        third = self.plan(reclaimed(group, second.assignment, self.generation + 2))
        assert third.assignment == second.assignment
        assert third.moved == 0
        self.rebalance(set())
        self.rebalance(set())

    @invariant()
    def a_rebalance_now_would_be_a_good_one(self) -> None:
        group = self.group()
        plan = self.plan(group)
        check_plan(group, self.options, plan)
        assert plan.optimal is True
        assert Puzzle.of(group, self.options).score_of(plan.target) == reference_solver.optimum(group, self.options)
        if self.cooperative:
            for name, topic, p in spelled(plan.assignment):
                holders = {other for other, held in self.held.items() if TopicPartition(topic, p) in held}
                assert holders <= {name}

    def teardown(self) -> None:
        if self.members:
            self.settle()


class EagerGroup(LivingGroup):
    cooperative = False


class CopartitionedGroup(LivingGroup):
    """Members that subscribe to both of two co-partitioned topics or to neither; topics grow one after the other."""

    def group(self) -> Group:
        pair = {"t", "u"}
        members = (
            replace(member, topics=member.topics | pair) if member.topics & pair else member
            for member in self.members.values()
        )
        return replace(super().group(), members=tuple(members), copartition=(("t", "u"),))

    @invariant()
    def a_rebalance_now_would_be_a_good_one(self) -> None:
        group = self.group()
        plan = self.plan(group)
        check_units(group, plan)
        assert plan.optimal is True
        for name, topic, p in spelled(plan.assignment):
            holders = {other for other, held in self.held.items() if TopicPartition(topic, p) in held}
            assert holders <= {name}


TestCooperative = LivingGroup.TestCase
TestCooperative.settings = settings(max_examples=examples(80), stateful_step_count=30)
TestCopartitioned = CopartitionedGroup.TestCase
TestCopartitioned.settings = settings(max_examples=examples(60), stateful_step_count=30)
TestEager = EagerGroup.TestCase
TestEager.settings = settings(max_examples=examples(40), stateful_step_count=30)
