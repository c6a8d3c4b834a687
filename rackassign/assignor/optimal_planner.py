"""The planner of the optimal strategies: adds costs, weights and sets of co-partitioned topics to a group.

The option `weights` is a weight of each partition, from a mapping, a function or a weigher:

* Whatever the user's code does, the group is assigned. If it raises, partitions are counted, with one warning.
* Unknown is not equal. A leader that has just taken over has measured nothing yet. If it counted partitions instead,
  they would move now and move back once weights are known. So unknown weights are presumed to be those with which the
  group is balanced as it is (`presumed_weights`): members keep their partitions, and only the others are distributed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import islice
from numbers import Real
from typing import Any, Protocol, TypeAlias, runtime_checkable

from rackassign.assignor.adapter import AnyCluster
from rackassign.assignor.history import LeaderAssignment
from rackassign.assignor.member import MemberContext
from rackassign.assignor.planner import Planning, fallback_balanced, fallback_range, plan_with
from rackassign.assignor.subscriptions import JoinMember
from rackassign.errors import ConfigError, InputError
from rackassign.model import Group, Partitions, TopicPartition, Topology, weight_misfits
from rackassign.strategies import (
    Options,
    Planned,
    copartition_exceptions,
    strategy,
    valid_owners,
    validate_balance_mode,
)
from rackassign.text import join_first, short_repr
from rackassign.util.callbacks import check_function


class OptimalPlanner:
    """Balance, then locality, then as few moves as possible, all exact."""

    planned: Planned = "sticky"

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
        # docs/reference/options-of-assignors.md describes the options. A function `weights` must not block.
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
            self.configured(_EMPTY_GROUP)
        except InputError as error:
            raise ConfigError(str(error)) from None

    def configured(self, group: Group) -> Group:
        """Return a group with costs, co-partitioned topics, and weights if these do not change."""
        return self._with(group, self._weights.constant())

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
        with self._member.user_code("weigher", "the weigher failed"):
            self._weights.on_assigned(leads=leads)

    def _weighted(self, group: Group) -> Group:
        with self._member.user_code("weights", "weights are not available; partitions are counted instead"):
            return self._with(group, self._weights.of_group(group))
        return self._with(group, {})

    def _with(self, group: Group, weights: Mapping[str, tuple[float, ...]]) -> Group:
        """Return a group with costs, weights and co-partitioned topics, validated."""
        return replace(group, costs=self._costs, weights=weights, copartition=self.copartition)


_EMPTY_GROUP = Group(Topology((), {}), ())


def _cost_rows(costs: object) -> dict[str, dict[str, float]]:
    """Return costs as a group has them; the group checks the numbers."""
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
    """Return sets of co-partitioned topics, in alphabetical order; the group checks the topics."""
    if isinstance(copartition, (str, bytes, Mapping)) or not isinstance(copartition, Iterable):
        raise InputError("copartition", f"expected lists of topics, got {short_repr(copartition)}")
    sets = tuple(copartition)
    for number, topics in enumerate(sets):
        if isinstance(topics, (str, bytes, Mapping)) or not isinstance(topics, Iterable):
            raise InputError(f"copartition[{number}]", f"expected a list of topics, got {short_repr(topics)}")
    return tuple(tuple(sorted(topics, key=str)) for topics in sets)


Weights: TypeAlias = Mapping[str, Sequence[float]]
"""A weight of each partition, by topic."""


@runtime_checkable
class Weigher(Protocol):
    """Measures weights while a member leads its group. It is called where the client handles its group."""

    def weigh(self, partition_counts: Mapping[str, int]) -> Weights | None:
        """Return the weight of each partition; must not block.

        Args:
            partition_counts: Number of partitions of each topic of the group.

        Returns:
            Weights by topic, None if they are not known yet.
        """

    def pause(self) -> None:
        """Stop measuring, because another member leads now; must not block."""


_ABSENT = object()
"""Stands for the weights of a topic that has none."""

WeightsOption: TypeAlias = Weights | Weigher | Callable[[], Weights | None]
"""What the option `weights` accepts."""


class WeightSource:
    """Returns the weights of a group, whatever the option `weights` is."""

    def __init__(self, member: MemberContext, option: WeightsOption | None) -> None:
        self._member = member
        self._option = option

    def constant(self) -> dict[str, tuple[float, ...]]:
        """Return weights that do not change; none of a function or a weigher."""
        option = self._option
        if isinstance(option, type):
            raise InputError("weights", f"{option.__name__} is a class, pass an instance of it")
        if option is None:
            return {}
        if isinstance(option, Weigher):
            check_function(option.weigh, "weights: weigh() of the weigher", "partition_counts")
            check_function(option.pause, "weights: pause() of the weigher")
            return {}
        if callable(option):
            check_function(option, "weights")
            return {}
        return _rows(option)

    def of_group(self, group: Group) -> dict[str, tuple[float, ...]]:
        """Return the weights of topics that have any; raises whatever the user's code raises."""
        with self._member.timed("weights", "partitions are counted instead"):
            rows = self._read(group)
        if rows is None:
            self._member.log.info("%s: weights are not known; members keep what they have", self._member.name)
            return presumed_weights(group)
        return rows

    def _read(self, group: Group) -> dict[str, tuple[float, ...]] | None:
        """Return what the user has for the topics of a group; None if that is not known."""
        weights: Any = self._current(group)
        if weights is None:
            return None
        known = group.topology.topics
        if isinstance(weights, Mapping):
            # Not iterated, since another thread may add topics; and read once, since a mapping may compute its rows.
            read = {topic: weights.get(topic, _ABSENT) for topic in known} if weights else {}
            weights = {topic: row for topic, row in read.items() if row is not _ABSENT}
            if read:
                self._warn_of_misfits(weights, group)
        return _rows(weights, {topic: len(row) for topic, row in known.items()})

    def _warn_of_misfits(self, weights: Mapping[Any, Any], group: Group) -> None:
        """Warn once of topics that have no weights, or another number of them than partitions."""
        misfits = weight_misfits(weights, group.topology.topics)
        if misfits:
            self._member.once.warn(
                "misfits",
                "%s: weights do not fit the topics of the group: %s; a partition without a weight counts as 1",
                *(self._member.name, join_first(misfits, 3)),
                about=tuple(misfits),
            )

    def on_assigned(self, *, leads: bool) -> None:
        """Pause the weigher of a member that does not lead its group any more; raises what the weigher raises."""
        if not leads and isinstance(self._option, Weigher):
            self._option.pause()

    def _current(self, group: Group) -> Weights | None:
        option = self._option
        if option is None or "weights" in self._member.too_slow:
            return {}
        if isinstance(option, Weigher):
            return option.weigh({topic: len(row) for topic, row in group.topology.topics.items()})
        return option() if callable(option) else option


def presumed_weights(group: Group) -> dict[str, tuple[float, ...]]:
    """Return the weights with which the members' loads are equal now; none if no partition is owned.

    The partitions of a member share its load equally. A partition without owner weighs as much as the average one.
    """
    # Only claims that count: an old one would make the load of its partitions that of another member.
    owner = valid_owners(group)
    sizes = Counter(owner.values())
    if not sizes:
        return {}
    mean = len(owner) / len(sizes)
    loads = {tp: mean / sizes[member] for tp, member in owner.items()}
    return {
        topic: tuple(loads.get(TopicPartition(topic, partition), 1.0) for partition in range(len(row)))
        for topic, row in group.topology.topics.items()
    }


def _rows(weights: object, sizes: Mapping[str, int] | None = None) -> dict[str, tuple[float, ...]]:
    """Return weights as a group has them, of a topic at most as many as its size; the group checks the numbers."""
    if not isinstance(weights, Mapping):
        expected = "expected lists of numbers by topic, a function that returns them, or a weigher"
        raise InputError("weights", f"{expected}, got {short_repr(weights)}")
    rows: dict[str, tuple[float, ...]] = {}
    for topic, row in weights.items():
        if not isinstance(topic, str):
            raise InputError("weights", f"expected topics, got {short_repr(topic)}")
        # What has no length may have no end, and can be read only once.
        listed = isinstance(row, Iterable) and isinstance(row, Sized)
        if not listed or isinstance(row, (Mapping, AbstractSet, str, bytes)):
            raise InputError(f"weights.{topic}", f"expected a list of numbers, got {short_repr(row)}")
        # All at once, before anything is called for a weight: another thread may change the user's object.
        read = tuple(islice(row, None if sizes is None else sizes.get(topic)))
        rows[topic] = tuple(map(_number, read))
    return rows


def _number(value: Any) -> Any:  # noqa: ANN401 - whatever a user's list has
    """Return a number of any type as a float, numpy's too, and anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    try:
        return float(value)
    except OverflowError:
        return math.inf
