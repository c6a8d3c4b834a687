"""Options of the strategies."""

from __future__ import annotations

from dataclasses import dataclass

from rackassign.errors import ConfigError
from rackassign.locality import validate_locality_mode
from rackassign.model import BALANCE_MODES, BalanceMode, LocalityMode
from rackassign.util.text import short_repr

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
