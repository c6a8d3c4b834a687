"""What a placement keeps to and aims at: the settings of `optimal`, in the words of brokers and racks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from rackassign.errors import ConfigError, InputError
from rackassign.placement.layout import check_weight
from rackassign.solver.placement import DEFAULT_WORK, EVEN, LEADER_GOALS, SHORTAGES, LeaderGoal, Shortage
from rackassign.util.text import short_repr

First = Literal["balance", "moves", "topic", "coverage"]
"""What decides first: even brokers, few moves, each topic even over brokers, or `coverage` and then few moves."""

FIRSTS: tuple[First, ...] = get_args(First)

Rackless = Literal["refuse", "rack"]
"""What to do where some brokers have no rack and others have one: refuse; or, as controllers do, take those without
for a rack of their own, which gets a replica of everything."""

RACKLESS: tuple[Rackless, ...] = get_args(Rackless)

_NEVER_BELOW = {"max_per_rack": 1, "min_racks": 0, "max_racks": 1, "work": 0}


@dataclass(frozen=True, slots=True)
class PlacementConstraints:
    """How to place.

    Args:
        max_per_rack: Replicas of a partition in one rack; `even`: as many as it takes to spread them evenly.
        min_racks: Racks a partition must be in; None: as many as can be.
        max_racks: Racks it may be in at most.
        forced_racks: Racks that count for `even` although no broker may be there: their part stays free.
        leader_racks: Racks in which preferred leaders are; empty: any.
        exclude: Brokers that get nothing, and lose what they have.
        weights: How much brokers are to carry, relative to each other; 1 where nothing is said.
        on_shortage: What becomes of replicas for which these rules leave no broker: `error`, a `placeholder` (-1,
            -2, ..), or the rules `relax`.
        leaders: Whose leaders are evened: each `broker`'s first, each `rack`'s first, or `mixed`.
        coverage: How many replicas racks get where a partition is not in all of them: as comes of even brokers
            (`broker`), `even` by rack, or by these weights (where readers stand). A rack of weight 0, or of none, gets
            what the rules ask for and no more; racks without brokers play no part.
        first: What decides first. The others follow in the order brokers (after `coverage`, if that says anything),
            moves, topics.
        rackless: What to do about brokers without a rack.
        work: Budget, in iterations of the solver.
    """

    max_per_rack: int | Literal["even"] = EVEN
    min_racks: int | None = None
    max_racks: int | None = None
    forced_racks: frozenset[str] = frozenset()
    leader_racks: frozenset[str] = frozenset()
    exclude: frozenset[int] = frozenset()
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
            if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number < float("inf"):
                raise ConfigError(f"coverage.{rack}: expected a finite number, 0 or more, got {short_repr(weight)}")

    @classmethod
    def of(cls, configs: Mapping[str, Any]) -> PlacementConstraints:
        """Make rules of settings; lists will do for sets, and ids as text for keys of weights.

        Raises:
            ConfigError: A setting is unknown or cannot work.
        """
        known = [rule.name for rule in fields(cls)]
        for name in configs:
            if name not in known:
                raise ConfigError(f"unknown setting {short_repr(name)}; known are {', '.join(sorted(known))}")
        found = dict(configs)
        for name, kind in (("forced_racks", str), ("leader_racks", str), ("exclude", int)):
            if name in found:
                found[name] = _a_set(name, found[name], kind)
        if "weights" in found:
            found["weights"] = _by_broker(found["weights"])
        return cls(**found)


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
            raise ConfigError(f"{name}: expected {'text' if kind is str else 'broker ids'}, got {short_repr(value)}")
    return frozenset(listed)


def _by_broker(weights: object) -> dict[int, float]:
    if not isinstance(weights, Mapping):
        raise ConfigError(f"weights: expected weights by broker, got {short_repr(weights)}")
    found: dict[int, float] = {}
    for broker, weight in weights.items():
        text = str(broker)
        if not (text.isascii() and text.isdecimal()):
            raise ConfigError(f"weights: expected a broker id, got {short_repr(broker)}")
        found[int(text)] = weight
    return found
