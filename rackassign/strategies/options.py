"""What can be chosen about a strategy."""

from __future__ import annotations

from dataclasses import dataclass

from rackassign.errors import ConfigError
from rackassign.locality import validate_locality_mode
from rackassign.model import LocalityMode
from rackassign.util.text import short_repr

DEFAULT_WORK = 200_000
"""Iterations of the simplex method. Of 10,000 members and 500,000 partitions the hardest group that was measured, each
member with 30 of 1,000 topics of its own, needs 75,000; with equal subscriptions it is a dozen."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to plan.

    Args:
        locality: Which replicas make a partition near.
        max_skew: 0 for balance before locality. If it is k > 0, members with equal subscriptions may differ by up
            to 1 + k partitions, and under that bound locality comes before balance.
        work: How many iterations of the solver one plan may take. Counted, not timed, so that a group gets the
            same answer on every machine.
        time_limit_s: Seconds that one plan may take before what is best so far is taken; None for no limit. It is a
            limit for those who must answer in time, as a group's leader must: the answer then depends on the machine.
            What comes after it (balance, and laying partitions out) takes some seconds more for the largest groups.
    """

    locality: LocalityMode = "any-replica"
    max_skew: int = 0
    work: int = DEFAULT_WORK
    time_limit_s: float | None = None

    def __post_init__(self) -> None:
        validate_locality_mode(self.locality)
        limit = self.time_limit_s
        if limit is not None and not (type(limit) in {int, float} and limit >= 0):
            raise ConfigError(f"time_limit_s must be a number of seconds, 0 or more, or None, got {short_repr(limit)}")
        for name in ("max_skew", "work"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise ConfigError(f"{name} must be an integer, 0 or more, got {short_repr(value)}")
