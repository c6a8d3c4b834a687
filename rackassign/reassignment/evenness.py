"""The check of how uneven a plan may leave brokers: plans that pile up replicas are refused, however they were made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from rackassign.errors import RackassignError
from rackassign.placement.constraints import PlacementConstraints
from rackassign.placement.layout import Layout
from rackassign.reassignment.planner import ReassignmentPlan, most_even

MOST_TIMES = 1.5
"""The largest allowed ratio of the fullest broker's load after a reassignment to its load before, or at best.

Loads are relative to the mean. One replica more is always allowed.
"""


class UnevenError(RackassignError):
    """A plan would leave the load of brokers much less even than it is, and than it has to be."""


def check_even(planned: ReassignmentPlan, rules: PlacementConstraints, advice: str = "") -> None:
    """Refuse a plan that leaves brokers less even than `MOST_TIMES` allows.

    What racks and constraints force is allowed: a removed broker's replicas may have to go to the last one of its rack.
    A broker that loses all its replicas does not count in the mean afterwards.

    Args:
        planned: The plan.
        rules: Its constraints.
        advice: What else may be done than `--force`, for the message.

    Raises:
        UnevenError: The plan leaves them less even; the message has the figures.
    """
    emptied = frozenset(_held(planned.before)) - _held(planned.after).keys()
    before, after = _fullest(planned.before, rules.weights), _fullest(planned.after, rules.weights, emptied)
    if not planned.moves or before is None or after is None or not _piles_up(after, before):
        return
    # The most even layout takes much longer to compute than most plans, which are even enough without it.
    best = _fullest(most_even(planned, rules, emptied), rules.weights, emptied)
    if best is None or not _piles_up(after, best):
        return
    raise UnevenError(
        f"broker {after.broker} would have {after.replicas} replicas, {after.times:.2f} times the mean; the fullest"
        f" broker now has {before.times:.2f} times the mean, and {best.times:.2f} times is possible. A plan that"
        f" exceeds both more than {MOST_TIMES}-fold needs --force{advice}"
    )


class _Fullest(NamedTuple):
    """The broker with the highest load by its weight, its replicas, and the ratio of its load to the mean."""

    broker: int
    replicas: int
    times: float


def _piles_up(after: _Fullest, other: _Fullest) -> bool:
    # If a broker has few replicas, one more is a large part of them and no sign of a pile-up.
    without_one = (after.replicas - 1) / after.replicas * after.times
    return min(after.times, without_one) > MOST_TIMES * other.times


def _held(layout: Layout) -> Counter[int]:
    brokers = layout.racks()
    return Counter(broker for lists in layout.topics.values() for row in lists for broker in row if broker in brokers)


def _fullest(layout: Layout, of_brokers: Mapping[int, float], emptied: frozenset[int] = frozenset()) -> _Fullest | None:
    weights = {broker.id: float(of_brokers.get(broker.id, 1)) for broker in layout.brokers if broker.id not in emptied}
    held = _held(layout)
    if not held:
        return None
    broker = min(held, key=lambda broker: (-held[broker] / weights[broker], broker))
    using = sum(weights.values())
    return _Fullest(broker, held[broker], held[broker] / weights[broker] * using / held.total())
