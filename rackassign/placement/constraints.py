"""Constraints and objectives of a placement: the settings of `placers.optimal`, in terms of brokers and racks."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from rackassign.errors import ConfigError, InputError
from rackassign.placement.layout import check_weight
from rackassign.solver.placement import DEFAULT_WORK, EVEN, LEADER_GOALS, SHORTAGES, LeaderGoal, Shortage
from rackassign.text import join_ids, parse_digits, short_repr

First = Literal["balance", "moves", "topic", "coverage"]
"""The first objective: balanced brokers, few moves, each topic balanced over brokers, or `coverage`, then few moves."""

FIRSTS: tuple[First, ...] = get_args(First)

Rackless = Literal["refuse", "rack"]
"""What to do if some brokers have no rack and others have one: refuse, or treat those without as one rack of its own,
as controllers do, which gets a replica of everything."""

RACKLESS: tuple[Rackless, ...] = get_args(Rackless)

_NEVER_BELOW = {"max_per_rack": 1, "min_racks": 0, "max_racks": 1, "work": 0}


@dataclass(frozen=True, slots=True)
class PlacementConstraints:
    """Constraints and objectives of a placement.

    Args:
        max_per_rack: Replicas of a partition in one rack; `even`: as many as an even spread needs.
        min_racks: Racks that a partition must be in; None: as many as possible.
        max_racks: Racks that a partition may be in at most.
        forced_racks: Racks that count for `even` even if they have no broker: their share stays free.
        leader_racks: Racks of preferred leaders; empty: any.
        exclude: Brokers that get no replicas, and lose those they have.
        no_new_replicas: Brokers that keep their replicas and get no others.
        weights: Load that brokers are to carry, relative to each other; 1 if not set.
        on_shortage: What to do with replicas for which these constraints leave no broker: `error`, a `placeholder` (-1,
            -2, ..), or `relax` the constraints.
        leaders: Which leaders are balanced: those of each `broker`, those of each `rack`, or `mixed`.
        coverage: How many replicas racks get where a partition is not in all of them: as results from balanced brokers
            (`broker`), `even` by rack, or by these weights (by where readers are). A rack of weight 0, or without one,
            gets only what the constraints require; racks without brokers do not matter.
        first: The first objective. The others follow in the order brokers (after `coverage`, if that is set), moves,
            topics.
        rackless: What to do about brokers without a rack.
        work: Budget, in steps of the solver.
    """

    max_per_rack: int | Literal["even"] = EVEN
    min_racks: int | None = None
    max_racks: int | None = None
    forced_racks: frozenset[str] = frozenset()
    leader_racks: frozenset[str] = frozenset()
    exclude: frozenset[int] = frozenset()
    no_new_replicas: frozenset[int] = frozenset()
    weights: Mapping[int, float] = field(default_factory=dict)
    on_shortage: Shortage = "error"
    leaders: LeaderGoal = "broker"
    coverage: Literal["broker", "even"] | Mapping[str, float] = "broker"
    first: First = "balance"
    rackless: Rackless = "refuse"
    work: int = DEFAULT_WORK

    def __post_init__(self) -> None:
        for name, least in _NEVER_BELOW.items():
            value = getattr(self, name)
            optional = name in {"min_racks", "max_racks"} and value is None
            if not optional and not (name == "max_per_rack" and value == EVEN):
                _check_count(name, value, least)
        for name, known in (
            ("on_shortage", SHORTAGES),
            ("leaders", LEADER_GOALS),
            ("first", FIRSTS),
            ("rackless", RACKLESS),
        ):
            if getattr(self, name) not in known:
                raise ConfigError(f"{name}: expected {', '.join(known)}, got {short_repr(getattr(self, name))}")
        if self.min_racks is not None and self.max_racks is not None and self.min_racks > self.max_racks:
            raise ConfigError(f"min_racks is {self.min_racks}, more than max_racks, {self.max_racks}")
        try:
            for broker, weight in self.weights.items():
                check_weight(f"weights.{broker}", weight)
        except InputError as error:
            raise ConfigError(str(error)) from None
        self._check_coverage()

    def _check_coverage(self) -> None:
        if isinstance(self.coverage, str):
            if self.coverage not in {"broker", "even"}:
                raise ConfigError(
                    f"coverage: expected broker, even or weights of racks, got {short_repr(self.coverage)}"
                )
            return
        if not isinstance(self.coverage, Mapping):
            raise ConfigError(f"coverage: expected broker, even or weights of racks, got {short_repr(self.coverage)}")
        for rack, weight in self.coverage.items():
            number: object = weight
            if (
                isinstance(number, bool)
                or not isinstance(number, (int, float))
                or not 0 <= number <= sys.float_info.max
            ):
                raise ConfigError(f"coverage.{rack}: expected a finite number, 0 or more, got {short_repr(weight)}")

    @classmethod
    def of(cls, configs: Mapping[str, Any]) -> PlacementConstraints:
        """Return the constraints of settings; lists are accepted for sets, and IDs as text for keys of weights.

        Raises:
            ConfigError: A setting is unknown or invalid.
        """
        check_settings(configs, [rule.name for rule in fields(cls)])
        settings = dict(configs)
        for name, kind in (("forced_racks", str), ("leader_racks", str), ("exclude", int), ("no_new_replicas", int)):
            if name in settings:
                settings[name] = _a_set(name, settings[name], kind)
        if "weights" in settings:
            settings["weights"] = _by_broker(settings["weights"])
        return cls(**settings)


def check_settings(configs: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse a setting that a placer does not know; ignored, it would seem to have had an effect."""
    names = sorted(known)
    for name in configs:
        if name not in names:
            raise ConfigError(f"unknown setting {short_repr(name)}; known are {', '.join(names)}")


def _check_count(name: str, value: object, least: int) -> None:
    if type(value) is not int:
        raise ConfigError(f"{name}: expected an integer, got {short_repr(value)}")
    if value < least:
        raise ConfigError(f"{name}: expected {least} or more, got {value}")


def _a_set(name: str, values: object, kind: type) -> frozenset[Any]:
    if isinstance(values, (str, Mapping)) or not hasattr(values, "__iter__"):
        raise ConfigError(f"{name}: expected a list, got {short_repr(values)}")
    listed = list(values)
    for value in listed:
        if type(value) is not kind:
            raise ConfigError(f"{name}: expected {'text' if kind is str else 'broker IDs'}, got {short_repr(value)}")
    return frozenset(listed)


def _by_broker(weights: object) -> dict[int, float]:
    if not isinstance(weights, Mapping):
        raise ConfigError(f"weights: expected weights by broker, got {short_repr(weights)}")
    by_broker: dict[int, float] = {}
    for broker, weight in weights.items():
        number = parse_digits(str(broker))
        if number is None:
            raise ConfigError(f"weights: expected a broker ID, got {short_repr(broker)}")
        if number in by_broker:
            raise ConfigError(f"weights: broker {number} is listed twice")
        by_broker[number] = weight
    return by_broker


def check_weighted_brokers(rules: PlacementConstraints, known: Iterable[int]) -> None:
    """Refuse weights of brokers that do not exist, which would have no effect."""
    brokers = set(known)
    unknown = sorted(rules.weights.keys() - brokers)
    if unknown:
        raise ConfigError(
            f"weights: broker {join_ids(unknown)} does not exist; brokers are {join_ids(sorted(brokers)) or 'none'}"
        )
