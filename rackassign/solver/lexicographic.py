"""Optimize one objective after the other, each on the smallest network that is sufficient.

Cost and balance do not depend on ownership, so they are optimized with all members of a kind as one member class. The
resulting prices are also valid in the full network, where the price of a member class is that of its kind. There they
determine which arcs an optimal flow may use. Only moves need the full network, and by then most of its arcs have been
removed. With bounds for each topic class it may be too large for the budget. Then owners are counted by kind, and
members are chosen when the flow becomes an assignment (`expand_shares`).

Tie costs need smaller classes than these objectives, and with them smaller member classes. Again the prices are valid
there: a class, of partitions or of members, has the price of the class that it is a part of. `break_ties` is separate,
because `solve_with_skew` compares many results and needs it for the best only. It has a limit of its own, so that it
does not double the time of the largest plans.

Skew
----
Locality before balance, within a bound on the skew of each subscription class.

Members of one subscription class may have loads from a base b to b + 1 + k. With fixed bases this is a flow as usual:
cost first, then the sum of squared loads (one arc per level), then moves. Only few bases can be feasible: classes of
one member need none, and a group with equal subscriptions has at most k + 2. The solver tries all combinations. If
there are too many (many overlapping subscription classes, a large k), it changes the base of one class at a time as
long as that improves the result, and does not call the result optimal.

Ties are broken for the bases whose result is not worse than the best one before, so the best of them is found as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, product

import numpy as np

from rackassign.solver.assignment_network import (
    NetworkLayout,
    TopicBounds,
    build_network,
    count_shares,
    expand_flow,
    expand_shares,
    flow_of,
)
from rackassign.solver.balance import BalanceConstraints
from rackassign.solver.network_flow import (
    ARCS_PER_STEP,
    BudgetExhaustedError,
    InfeasibleError,
    Ints,
    Network,
    SolveBudget,
    SolverError,
    UnprovenFlow,
    low_cost_flow,
    min_cost_flow,
    split_at,
)
from rackassign.solver.problem import CompressedProblem, Problem, factorize

TIE_STEPS = 20_000
"""Limit of the steps for ties. It is a part of the budget, because a plan without them is hardly worse."""

_PASSES = 15
"""How many times each arc is looked at for ties, in large networks."""

_PASSES_FOR_MOVES = 22
"""How many times each share is looked at for moves if owners fit badly, with what it takes to build their network."""

_TOO_LARGE = "the group is too large for the fewest moves"

TOO_LARGE_FOR_TIES = "the group is too large for the last objective"

_ARCS_OF_A_BUILT_ONE = 6
"""How many arcs can be looked at in the time that one is built."""


@dataclass(frozen=True, slots=True)
class LoadBounds:
    """Bounds of the members' loads, by subscription class."""

    low: Ints
    high: Ints
    # Whether `low` and `high` leave open how even the loads are.
    levels: bool = False
    topics: TopicBounds | None = None

    def network(self, grouped: CompressedProblem, work: SolveBudget, *, first: bool = False) -> NetworkLayout:
        def expect(arcs: int) -> None:
            # The first one is of no use without steps to solve it. A later one has a flow that can be completed.
            work.check_ahead(_ARCS_OF_A_BUILT_ONE * arcs, steps=first)

        layout = build_network(grouped, self.low, self.high, expect, levels=self.levels, topics=self.topics)
        work.spend(_ARCS_OF_A_BUILT_ONE * len(layout.network.tail))
        return layout


@dataclass(frozen=True, slots=True)
class _Optimum:
    """An optimized objective, with the prices that prove it."""

    objective: Callable[[NetworkLayout], Ints]
    value: int
    # The network that it was optimized on, and the price of each of its rows.
    grouped: CompressedProblem
    layout: NetworkLayout
    price: Ints

    def restrict(self, network: Network, layout: NetworkLayout, grouped: CompressedProblem) -> Network:
        """Return a network of the same partitions and members, restricted to flows that attain this optimum."""
        # The optima before this one restrict `network`. Its classes and member classes are the same or smaller.
        return network.restrict_to_optimal(self.objective(layout), self._prices_in(layout, grouped))

    def _prices_in(self, layout: NetworkLayout, grouped: CompressedProblem) -> Ints:
        old = self.layout
        if layout is old:
            return self.price
        classes, hubs, middle, member_classes, sink = split_at(self.price, [*accumulate(old.rows[:-1])])
        member_class = _value_of_group(
            grouped.member_class_of, self.grouped.member_class_of, len(grouped.member_class_kind)
        )
        if old.share_topic_class is not None and layout.share_topic_class is not None:
            # The hub's price is valid for a share that has no row.
            of_share = hubs[old.middle_arcs.tail]
            of_share[old.share_row >= 0] = middle
            place = old.share_topic_class * len(member_classes) + old.share_member_class
            shares = (layout.share_row >= 0).nonzero()[0]
            wanted = (
                layout.share_topic_class[shares] * len(member_classes) + member_class[layout.share_member_class[shares]]
            )
            middle = of_share[place.searchsorted(wanted)]
        class_ = _value_of_group(grouped.class_of, self.grouped.class_of, len(grouped.class_supply))
        return np.concatenate([classes[class_], hubs, middle, member_classes[member_class], sink])


def _value_of_group(group: Ints, value: Ints, groups: int) -> Ints:
    found = np.empty(groups, np.int64)
    found[group] = value
    return found


@dataclass(frozen=True, slots=True)
class LexicographicResult:
    """Flows of lowest cost, then of most even loads, then of fewest moves."""

    # Problem that was solved: the given one, or the one without owners if ownership made no difference.
    grouped: CompressedProblem
    bounds: LoadBounds
    layout: NetworkLayout
    flow: Ints
    optima: tuple[_Optimum, ...]
    # Reason why moves are few, but not proven to be fewest, as text for users; empty if they are.
    note: str = ""
    # If the flow knows only the kinds of owners, and members are chosen with the assignment: how many partitions owners
    # can keep at most. None otherwise.
    most_kept: int | None = None

    def assignment(self) -> Ints:
        if self.most_kept is not None:
            return expand_shares(self.grouped, self.layout, self.flow)
        return expand_flow(self.grouped, self.layout, self.flow)

    def is_calmest(self, assignment: Ints) -> bool:
        current = self.grouped.current
        kept = int((assignment[current] == self.grouped.problem.owner[current]).sum())
        return not self.note or kept == self.most_kept


def solve_lexicographic(grouped: CompressedProblem, bounds: LoadBounds, work: SolveBudget) -> LexicographicResult:
    """Compute the flows; raise `SolverError` also if the budget ends before moves are considered.

    A solution of the objectives before them moves nearly everything, and `greedy` keeps nearly everything.
    """
    bare = grouped.ignoring_ownership()
    small = bounds.network(bare, work, first=True)
    # What members own is nearly a solution, if it is one of an earlier plan.
    owned = grouped.keep_arc_class, grouped.member_class_kind[grouped.keep_arc_member_class], grouped.keep_arc_size
    flow = flow_of(bare, small, grouped.keep_arc_size[:0], owned)
    optima: tuple[_Optimum, ...] = ()
    for objective in [NetworkLayout.reading, NetworkLayout.squares] if bounds.levels else [NetworkLayout.reading]:
        cost = objective(small)
        found = min_cost_flow(_restricted(optima, small, bare), cost, work, start=flow)
        flow = found.flow
        optima += (_Optimum(objective, int(cost @ flow), bare, small, found.dual),)
    if not len(grouped.current):
        return LexicographicResult(bare, bounds, small, flow, optima)
    # Before arrays of topic classes x members are made.
    too_large = bounds.topics is not None and not work.covers(_PASSES_FOR_MOVES * count_shares(grouped))
    if too_large:
        grouped = grouped.with_owners_as_kinds()
    layout = bounds.network(grouped, work)
    network = _restricted(optima, layout, grouped)
    last = low_cost_flow(network, layout.moves(), work, flow_of(grouped, layout, grouped.keep_arc_size))
    _check(optima, layout, last.flow)
    if too_large:
        # A flow of fewest moves between kinds is a bound of the moves between members.
        most = len(grouped.current) if isinstance(last, UnprovenFlow) else int(layout.kept(last.flow).sum())
        return LexicographicResult(grouped, bounds, layout, last.flow, optima, _TOO_LARGE, most)
    if isinstance(last, UnprovenFlow):
        return LexicographicResult(grouped, bounds, layout, last.flow, optima, last.reason)
    fewest = _Optimum(NetworkLayout.moves, int(layout.moves() @ last.flow), grouped, layout, last.dual)
    return LexicographicResult(grouped, bounds, layout, last.flow, (*optima, fewest))


def break_ties(result: LexicographicResult, work: SolveBudget) -> LexicographicResult:
    """Return flows of lowest tie cost among all that are as good; after a `SolverError` the given ones still are."""
    if result.note:
        raise BudgetExhaustedError(result.note)
    problem = result.grouped.problem
    ties = problem.ties
    # If all partitions stay where they are, there is no choice.
    if ties is None or int(result.layout.kept(result.flow).sum()) == len(ties.row):
        return result
    pairs, row = factorize(problem.cost_row * len(ties.cost) + ties.row)
    cost, tie_cost = problem.cost[pairs // len(ties.cost)], ties.cost[pairs % len(ties.cost)]
    # Costs that are equal to the other ones are optimal already. What does not depend on the rack cannot change.
    if np.array_equal(cost, tie_cost) or (tie_cost == tie_cost[:, :1]).all():
        return result
    if len(result.layout.network.tail) * _PASSES > TIE_STEPS * ARCS_PER_STEP:
        raise BudgetExhaustedError(TOO_LARGE_FOR_TIES)
    parts = result.grouped.with_rows(row, cost)
    layout = result.bounds.network(parts, work)
    # In a smaller network the flow is found before partitions have become the one to begin with.
    large = len(layout.network.tail) > len(problem.topic_class)
    start = _flow_of_members(result.assignment(), parts, layout) if large else None
    own = SolveBudget(min(work.left, TIE_STEPS), work.until)
    left = own.left
    try:
        network = _restricted(result.optima, layout, parts)
        found = min_cost_flow(network, layout.tie_cost(parts, tie_cost), own, start=start)
    finally:
        work.left -= left - own.left
    _check(result.optima, layout, found.flow)
    return LexicographicResult(parts, result.bounds, layout, found.flow, result.optima)


def _flow_of_members(reader: Ints, grouped: CompressedProblem, layout: NetworkLayout) -> Ints:
    keeps = reader[grouped.current] == grouped.problem.owner[grouped.current]
    kept = np.bincount(grouped.owned_keep_arc[grouped.owned_of[keeps]], minlength=len(grouped.keep_arc_class))
    unchanged = np.ones(len(reader), bool)
    unchanged[grouped.current[keeps]] = False
    amount = np.ones(int(unchanged.sum()), np.int64)
    return flow_of(
        grouped, layout, kept, (grouped.class_of[unchanged], grouped.member_class_of[reader[unchanged]], amount)
    )


def _restricted(optima: tuple[_Optimum, ...], layout: NetworkLayout, grouped: CompressedProblem) -> Network:
    network = layout.network
    for optimum in optima:
        network = optimum.restrict(network, layout, grouped)
    return network


def _check(optima: tuple[_Optimum, ...], layout: NetworkLayout, flow: Ints) -> None:
    if any(int(optimum.objective(layout) @ flow) != optimum.value for optimum in optima):
        raise SolverError("prices of one network are not valid in another")


MOST_BASES = 256
MOST_LEVELS = 2_000_000
"""Limit of the number of arcs for levels. Beyond it, a looser bound is not worth the memory."""


@dataclass(frozen=True, slots=True)
class SkewSolution:
    """An assignment within a bound on the skew."""

    assignment: Ints
    # What is not proven, as text for users; empty if cost, balance and moves are optimal.
    note: str
    tie_note: str


@dataclass(frozen=True, slots=True)
class _Tried:
    """Result for some bases."""

    # Cost, loads from large to small, moves, and tie cost.
    score: tuple[int, tuple[int, ...], int, int]
    assignment: Ints


def solve_with_skew(problem: Problem, balance: BalanceConstraints, max_skew: int, work: SolveBudget) -> SkewSolution:
    """Return the assignment of lowest cost with loads in a subscription class that differ by 1 + `max_skew` at most."""
    grouped = CompressedProblem.of(problem, np.ones(len(problem.edge_topic_class), bool))
    search = _Search(grouped, max_skew, work)
    ranges = search.ranges()
    # Of hundreds of subscription classes no float holds the number.
    combinations = math.prod(map(len, ranges))
    start = tuple(np.clip(balance.max_load - 1, [r[0] for r in ranges], [r[-1] for r in ranges]).tolist())
    search.try_bases(start)
    try:
        if combinations <= MOST_BASES:
            for bases in product(*ranges):
                if bases != start:
                    search.try_bases(bases)
        else:
            search.note = "there are too many combinations of base loads to try all of them"
            search.descend(start, ranges)
    except BudgetExhaustedError as error:
        search.note = str(error)
    if search.best is None:
        raise SolverError("no base load is feasible")
    return SkewSolution(search.best.assignment, search.note, search.tie_note)


class _Search:
    def __init__(self, grouped: CompressedProblem, max_skew: int, work: SolveBudget) -> None:
        self._grouped = grouped
        self._sizes = grouped.problem.sizes()
        self._total = len(grouped.problem.topic_class)
        self._width = np.where(self._sizes > 1, min(1 + max_skew, self._total), self._total)
        problem = grouped.problem
        self._reach = np.bincount(
            problem.edge_subscription_class, problem.supply()[problem.edge_topic_class], len(self._sizes)
        ).astype(np.int64)
        self._work = work
        self.best: _Tried | None = None
        self.note = self.tie_note = ""

    def ranges(self) -> list[range]:
        """Return the bases that can be feasible, by subscription class."""
        problem = self._grouped.problem
        only = np.bincount(problem.edge_topic_class, minlength=problem.topic_classes)[problem.edge_topic_class] == 1
        own = np.bincount(
            problem.edge_subscription_class[only], problem.supply()[problem.edge_topic_class[only]], len(self._sizes)
        )
        ranges: list[range] = []
        for size, width, most, least in zip(
            self._sizes.tolist(), self._width.tolist(), self._reach.tolist(), own.astype(int).tolist(), strict=True
        ):
            highest = most // size
            lowest = min(max(0, -(-least // size) - width), highest)
            ranges.append(range(lowest, highest + 1) if size > 1 else range(1))
        return ranges

    def try_bases(self, bases: tuple[int, ...]) -> bool:
        """Solve for these bases, if they are feasible; return whether the result is the best so far."""
        low = np.asarray(bases, np.int64)
        high = np.minimum(low + self._width, np.maximum(self._reach, low))
        levels = int((high - low)[self._grouped.problem.subscription_class].sum()) <= MOST_LEVELS
        try:
            result = solve_lexicographic(self._grouped, LoadBounds(low, high, levels), self._work)
        except InfeasibleError:
            return False
        self.note = self.note or ("" if levels else "there are too many possible loads to optimize their balance")
        self.note = self.note or result.note
        scored = self._scored(result.assignment())
        if self.best is not None and scored.score[:3] > self.best.score[:3]:
            return False
        better, tie_note = self.best is None or scored.score[:3] < self.best.score[:3], ""
        try:
            scored = self._scored(break_ties(result, self._work).assignment())
        except SolverError as error:
            tie_note = str(error)
        self.tie_note = tie_note if better else self.tie_note or tie_note
        if self.best is not None and scored.score >= self.best.score:
            return False
        self.best = scored
        return True

    def descend(self, start: tuple[int, ...], ranges: list[range]) -> None:
        """Change one base at a time as long as the score decreases."""
        at, improved = start, True
        while improved:
            improved = False
            for near in _neighbours(at, ranges):
                if self.try_bases(near):
                    at, improved = near, True

    def _scored(self, reader: Ints) -> _Tried:
        problem = self._grouped.problem
        loads = np.bincount(reader, minlength=len(problem.subscription_class))
        moves = int(((reader != problem.owner) & (problem.owner >= 0)).sum())
        ties = problem.tie_cost_of(reader)
        return _Tried((problem.cost_of(reader), tuple(np.sort(loads)[::-1].tolist()), moves, ties), reader)


def _neighbours(bases: tuple[int, ...], ranges: list[range]) -> Iterator[tuple[int, ...]]:
    for i, allowed in enumerate(ranges):
        for base in (bases[i] - 1, bases[i] + 1):
            if base in allowed:
                yield (*bases[:i], base, *bases[i + 1 :])
