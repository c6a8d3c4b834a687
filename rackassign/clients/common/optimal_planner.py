"""The planner of the optimal strategies: adds costs, weights and sets of co-partitioned topics to a group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rackassign.clients.common.adapter import AnyCluster
from rackassign.clients.common.assignment_history import LeaderAssignment
from rackassign.clients.common.fallback import fallback_balanced, fallback_range
from rackassign.clients.common.member_context import MemberContext
from rackassign.clients.common.planner import Planning, plan_with
from rackassign.clients.common.subscriptions import JoinMember
from rackassign.clients.common.user_functions import is_failure
from rackassign.clients.common.weights import WeightsOption, WeightSource
from rackassign.errors import ConfigError, InputError
from rackassign.model import Group, Partitions, Topology
from rackassign.strategies import Options, strategy
from rackassign.strategies.loading import copartition_exceptions, load, load_on_thread
from rackassign.strategies.options import validate_balance_mode
from rackassign.util.text import short_repr


class OptimalPlanner:
    """Balance, then locality, then as few moves as possible, all exact.

    Args:
        member: The member that leads.
        strategy_name: `sticky` or `cooperative-sticky`.
        max_skew: 0 for balance before locality. k > 0 lets members with equal subscriptions differ by up to 1 + k
            partitions if that makes more local.
        balance: `total` to balance numbers of partitions. `topic` to balance first the numbers of each topic's
            partitions, among its subscribers. Not together with `max_skew` or `weights`.
        copartition: Sets of topics whose partitions of one number go to one member, as for joins. Balance, locality
            and moves are those of these units.
        costs: Cost of reading across racks, by the reader's rack and the replica's; a pair that is missing costs 1.
            Without costs every pair does.
        weights: A weight of each partition by topic (bytes per second, lag), a function that returns such a mapping,
            or a weigher (`ByteRates`). Loads are then sums of weights, and locality counts weight. The function is
            called where the client handles its group (its IO thread, its event loop) whenever this member assigns: it
            must not block. If it returns None, members keep what they have, and only other partitions are distributed.
            If it raises, the group is balanced by number, with a warning. If it has taken longer than a third of the
            session timeout once, it is not called again. Not together with `max_skew`.
        weight_tolerance: With weights: members keep their partitions while the heaviest member is above the best bound
            by this share of it at most; None for 0.05. Not without `weights`.

    Raises:
        ConfigError: If an option is not valid.
    """

    def __init__(
        self,
        member: MemberContext,
        strategy_name: str,
        *,
        max_skew: int = 0,
        balance: str = "total",
        copartition: Sequence[Sequence[str]] = (),
        costs: Mapping[str, Mapping[str, float]] | None = None,
        weights: WeightsOption | None = None,
        weight_tolerance: float | None = None,
    ) -> None:
        self._member = member
        self.strategy = strategy(strategy_name)
        self.options = Options(
            locality=member.locality,
            max_skew=max_skew,
            balance=validate_balance_mode(balance),
            weight_tolerance=weight_tolerance,
        )
        if weights is not None:
            self.options.check_weights()
        elif weight_tolerance is not None:
            raise ConfigError("weight_tolerance is a tolerance of sums of weights: it cannot be used without weights")
        self._weights = WeightSource(member, weights)
        try:
            self._costs = _cost_rows(costs)
            self.copartition = _sets(copartition)
            self._with(_EMPTY_GROUP, self._weights.constant())
        except InputError as error:
            raise ConfigError(str(error)) from None

    def load(self) -> None:
        """Import the strategy."""
        load("sticky")

    def load_on_thread(self) -> None:
        """Begin to import the strategy, on a thread."""
        load_on_thread("sticky")

    def prepare(self, group: Group, members: Sequence[JoinMember]) -> Planning:
        """Read the weights, and return the function that plans."""
        del members
        weighted = self._weighted(group)

        def plan(limit_s: float) -> LeaderAssignment:
            self.warn_of_exceptions(weighted)
            return plan_with(self.strategy, weighted, self.options, limit_s)

        return plan

    def warn_of_exceptions(self, group: Group) -> None:
        """Warn once about each set of topics that cannot be kept together, or not as a whole."""
        for topics, reason in copartition_exceptions(group):
            self._member.once.warn(
                f"copartition {topics[0]}", "%s: %s", self._member.name, reason, about=(topics, reason)
            )

    def fallback(self, cluster: AnyCluster, members: list[JoinMember]) -> dict[str, Partitions]:
        """Return contiguous ranges of each topic, balanced over all topics if nothing else is asked for.

        Ranges of topics with equal numbers of partitions are the same.
        """
        per_topic = self.options.balance == "topic" or self.copartition
        return (fallback_range if per_topic else fallback_balanced)(cluster, members)

    def on_assigned(self, *, leads: bool) -> None:
        """Let a weigher measure only while this member leads."""
        try:
            self._weights.on_assigned(leads=leads)
        except BaseException as error:
            if not is_failure(error):
                raise
            self._member.once.warn("weigher", "%s: the weigher failed", self._member.name, exc_info=True)

    def _weighted(self, group: Group) -> Group:
        """Return the group with costs and weights."""
        try:
            return self._with(group, self._weights.of_group(group))
        except BaseException as error:
            if not is_failure(error):
                raise
            self._member.once.warn(
                "weights",
                "%s: weights are not available; partitions are counted instead",
                self._member.name,
                exc_info=True,
            )
            return self._with(group, {})

    def _with(self, group: Group, weights: Mapping[str, tuple[float, ...]]) -> Group:
        """Return a group with costs, weights and co-partitioned topics, validated."""
        return replace(group, costs=self._costs, weights=weights, copartition=self.copartition)


_EMPTY_GROUP = Group(Topology((), {}), ())


def _cost_rows(costs: object) -> dict[str, dict[str, float]]:
    """Return costs as a group has them; the group checks the numbers.

    Raises:
        InputError: They are not mappings from racks to mappings.
    """
    if costs is None:
        return {}
    if not isinstance(costs, Mapping):
        raise InputError("costs", f"expected costs by rack, got {short_repr(costs)}")
    for rack, row in costs.items():
        if not isinstance(row, Mapping):
            raise InputError(f"costs.{rack}", f"expected a cost for each rack, got {short_repr(row)}")
        for name in (rack, *row):
            if not isinstance(name, str):
                raise InputError("costs", f"expected names of racks, got {short_repr(name)}")
    return {rack: dict(row) for rack, row in costs.items()}


def _sets(copartition: object) -> tuple[tuple[str, ...], ...]:
    """Return sets of co-partitioned topics, in alphabetical order; the group checks the topics.

    Raises:
        InputError: They are not lists of lists.
    """
    if isinstance(copartition, (str, bytes, Mapping)) or not isinstance(copartition, Iterable):
        raise InputError("copartition", f"expected lists of topics, got {short_repr(copartition)}")
    sets = tuple(copartition)
    for number, topics in enumerate(sets):
        if isinstance(topics, (str, bytes, Mapping)) or not isinstance(topics, Iterable):
            raise InputError(f"copartition[{number}]", f"expected a list of topics, got {short_repr(topics)}")
    return tuple(tuple(sorted(topics, key=str)) for topics in sets)
