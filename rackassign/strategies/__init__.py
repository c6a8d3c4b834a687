"""Strategies: options, and plans by the name of a strategy. This module is the only entry to the package.

Rules of this package:

* A strategy is a pure function of the group and the options: the same members in another order, another process
  or under another hash seed get the same plan.
* `indexed_group` converts names to small ints for the solver, and back.
* Every partition of a subscribed topic that has metadata gets exactly one member, and every member an entry.
* A strategy is imported with its first plan. All but `range` need numpy, which takes longer to import than kafka-python
  and more memory than an idle consumer has left, and of all members of a group only the leader plans. So everything
  outside of the package calls a strategy through this module, the one place where the core imports late. The modules
  behind it import at their top, as usual. What a member needs before it plans (options, names, the types of results)
  needs no numpy.

A client calls its assignors where it also sends heartbeats, so `load` is for a thread beside that, once a member is
elected leader. Without it the first plan loads, 0.2 s of a processor. Nothing but imports is slow the
first time: the first plan behind them takes as long as the second. Threads need no lock here: Python imports a module
once, and other threads wait for that at the lock of the module. A module whose import fails is imported again with the
next plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from rackassign.errors import ConfigError
from rackassign.locality import validate_locality_mode
from rackassign.model import BALANCE_MODES, BalanceMode, Group, LocalityMode, Plan, TopicPartition
from rackassign.text import short_repr

if TYPE_CHECKING:
    # It exports `assign_standbys` from here.
    from rackassign.strategies.standby import Copies, StandbyOptions, StandbyPlan


DEFAULT_WORK = 40_000
"""Steps of the solver, some 30 to 75 microseconds of a processor each. 10,000 members with 30 of 1,000 topics of their
own need 12,000 to 22,000. 3,000 members with 300 of them need more, and with owners at random more than there are."""


DEFAULT_WEIGHT_TOLERANCE = 0.05
"""Share of the best bound by which the heaviest member may be above it before owned partitions move."""

_LARGEST_TOLERANCE = 1000


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a plan.

    Args:
        locality: Which replicas make a partition local.
        max_skew: 0 for balance before locality. If it is k > 0, members with equal subscriptions may differ by up
            to 1 + k partitions, and within that bound locality comes before balance.
        balance: `total` balances the members' numbers of partitions. `topic` first balances their numbers of partitions
            of each topic: its subscribers differ by at most one. Not together with `max_skew`.
        weight_tolerance: With weights: members keep their partitions while the heaviest member is above the best bound
            by this share of it at most; None for `DEFAULT_WEIGHT_TOLERANCE`.
        work: Limit of the solver's steps in one plan. Counted, not timed, so that a group gets the same plan on
            every machine.
        time_limit_s: Seconds after which the best plan found so far is used; None for no limit. The limit is for
            callers that must respond in time, as a group's leader must: the plan then depends on the machine.
            Balance, and the way from names to numbers and back, are computed in any case: they take a second and more
            for groups with millions of pairs of a member and a topic.
    """

    locality: LocalityMode = "any-replica"
    max_skew: int = 0
    balance: BalanceMode = "total"
    weight_tolerance: float | None = None
    work: int = DEFAULT_WORK
    time_limit_s: float | None = None

    def __post_init__(self) -> None:
        validate_locality_mode(self.locality)
        validate_balance_mode(self.balance)
        limit = self.time_limit_s
        if limit is not None and not (type(limit) in {int, float} and limit >= 0):
            raise ConfigError(f"time_limit_s must be a number of seconds, 0 or more, or None, got {short_repr(limit)}")
        tolerance = self.weight_tolerance
        if tolerance is not None and not (type(tolerance) in {int, float} and 0 <= tolerance <= _LARGEST_TOLERANCE):
            raise ConfigError(
                f"weight_tolerance must be a number from 0 to {_LARGEST_TOLERANCE}, got {short_repr(tolerance)}"
            )
        for name in ("max_skew", "work"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise ConfigError(f"{name} must be an integer, 0 or more, got {short_repr(value)}")
        if self.balance == "topic" and self.max_skew:
            raise ConfigError('max_skew loosens the balance of totals: it cannot be used together with balance="topic"')

    @property
    def tolerance(self) -> float:
        """`weight_tolerance`, or the default."""
        return DEFAULT_WEIGHT_TOLERANCE if self.weight_tolerance is None else float(self.weight_tolerance)

    def check_weights(self) -> None:
        """Check that weights can be used with these options.

        Raises:
            ConfigError: An option counts partitions.
        """
        if self.max_skew:
            raise ConfigError(
                "max_skew counts partitions: it cannot be used together with weights; weight_tolerance is what allows"
                " sums of weights to differ"
            )
        if self.balance == "topic":
            raise ConfigError('balance="topic" counts partitions: it cannot be used together with weights')


def validate_balance_mode(mode: str) -> BalanceMode:
    """Return the mode, typed; `ConfigError` names the valid ones."""
    for known in BALANCE_MODES:
        if mode == known:
            return known
    raise ConfigError(f"balance must be one of {', '.join(BALANCE_MODES)}, got {short_repr(mode)}")


_RANGE, _STICKY, _BROKER_ASSIGNORS, _STANDBY, _COPARTITION, _INDEXED = (
    f"{__package__}.{name}"
    for name in ("range", "sticky", "broker_assignors", "standby_assignment", "copartition", "indexed_group")
)

Planned: TypeAlias = Literal["range", "sticky", "standbys"]

_PLANNED: Mapping[Planned, str] = {"range": _RANGE, "sticky": _STICKY, "standbys": _STANDBY}


def load(planned: Planned) -> None:
    """Import what a plan needs: some tenths of a second the first time, for `range` some milliseconds."""
    import_module(_PLANNED[planned])


def plan_range(group: Group, options: Options | None = None) -> Plan:
    """Assign like Java's `RangeAssignor`: `rackassign.strategies.range.plan_range`."""
    plan: Plan = _imported(_RANGE).plan_range(group, options)
    return plan


def plan_sticky(group: Group, options: Options | None = None) -> Plan:
    """Assign optimally for the eager protocol: `rackassign.strategies.sticky.plan_sticky`."""
    plan: Plan = _imported(_STICKY).plan_sticky(group, options)
    return plan


def plan_cooperative(group: Group, options: Options | None = None) -> Plan:
    """Assign optimally for the cooperative protocol: `rackassign.strategies.sticky.plan_cooperative`."""
    plan: Plan = _imported(_STICKY).plan_cooperative(group, options)
    return plan


def plan_consumer_protocol(group: Group, options: Options | None = None) -> Plan:
    """Assign like the broker plug-in: `rackassign.strategies.broker_assignors.plan_consumer_protocol`."""
    plan: Plan = _imported(_BROKER_ASSIGNORS).plan_consumer_protocol(group, options)
    return plan


def plan_uniform(group: Group, options: Options | None = None) -> Plan:
    """Assign like Kafka's `uniform` in the broker: `rackassign.strategies.broker_assignors.plan_uniform`."""
    plan: Plan = _imported(_BROKER_ASSIGNORS).plan_uniform(group, options)
    return plan


def plan_broker_range(group: Group, options: Options | None = None) -> Plan:
    """Assign like Kafka's `range` in the broker: `rackassign.strategies.broker_assignors.plan_range`."""
    plan: Plan = _imported(_BROKER_ASSIGNORS).plan_range(group, options)
    return plan


def copartition_exceptions(group: Group) -> list[tuple[tuple[str, ...], str]]:
    """Return sets of topics that are not kept together, or not as a whole: `rackassign.strategies.copartition`."""
    return list(_imported(_COPARTITION).exceptions(group)) if group.copartition else []


def valid_owners(group: Group) -> dict[TopicPartition, str]:
    """Return the valid owner of each partition that has one: `rackassign.strategies.ownership`."""
    indexed = _imported(_INDEXED).IndexedGroup.of(group, "any-replica")
    owners: dict[TopicPartition, str] = indexed.members_by_partition(indexed.claims.owner.tolist())
    return owners


def assign_standbys(
    group: Group,
    copies: Copies,
    options: StandbyOptions | None = None,
    active: Options | None = None,
    *,
    eager: bool = False,
) -> StandbyPlan:
    """Assign active members and standbys: `rackassign.strategies.standby_assignment.assign_standbys`."""
    plan: StandbyPlan = _imported(_STANDBY).assign_standbys(group, copies, options, active, eager=eager)
    return plan


def _imported(module: str) -> Any:  # noqa: ANN401 - a module
    return import_module(module)


Strategy = Callable[[Group, Options], Plan]

STRATEGIES: Mapping[str, Strategy] = {
    "range": plan_range,
    "sticky": plan_sticky,
    "cooperative-sticky": plan_cooperative,
}
"""Strategies of a group whose members assign, the best one last."""

BROKER_ASSIGNORS: Mapping[str, Strategy] = {
    "uniform": plan_uniform,
    "range": plan_broker_range,
    "rackassign": plan_consumer_protocol,
}
"""Assignors of a group to which the broker assigns (KIP-848), the best one last."""

STRATEGY_ORDER = tuple(dict.fromkeys((*STRATEGIES, *BROKER_ASSIGNORS)))
"""The names of all, of which a later one is preferred if both are equally good."""

PLANNED_OFFLINE: Mapping[str, Strategy] = {**STRATEGIES, "consumer-protocol": plan_consumer_protocol}
"""What `strategy` knows: strategies of members, and the broker's assignor of rackassign."""


def plan_each(group: Group, options: Options, kind: str, current: str) -> dict[str, Plan]:
    """Plan a live group with each strategy that it can have, the best one last.

    Args:
        group: The group.
        options: Options of all plans.
        kind: `consumer` if the broker assigns, otherwise members do.
        current: The strategy that it has. `uniform` keeps what members have, whatever planned that. So for a group of
            another assignor it is planned as for a new group, which shows what it would come to.
    """
    if kind != "consumer":
        return {name: plan(group, options) for name, plan in STRATEGIES.items()}
    bare = replace(group, members=tuple(replace(member, owned={}) for member in group.members))
    return {
        name: plan(bare if name == "uniform" != current else group, options) for name, plan in BROKER_ASSIGNORS.items()
    }


def strategy(name: str) -> Strategy:
    """Return the strategy with this name; `ConfigError` lists the available ones."""
    for known, decide in PLANNED_OFFLINE.items():
        if name == known:
            return decide
    raise ConfigError(f"strategy must be one of {', '.join(PLANNED_OFFLINE)}, got {name!r}")


__all__ = [
    "BROKER_ASSIGNORS",
    "PLANNED_OFFLINE",
    "STRATEGIES",
    "STRATEGY_ORDER",
    "Options",
    "Strategy",
    "plan_broker_range",
    "plan_consumer_protocol",
    "plan_cooperative",
    "plan_each",
    "plan_range",
    "plan_sticky",
    "plan_uniform",
    "strategy",
]
