"""How uneven a plan may leave brokers: a plan that piles replicas up is refused, whoever it comes from."""

from __future__ import annotations

from collections import Counter

from rackassign.errors import RackassignError
from rackassign.placement.layout import Layout
from rackassign.reassignment.planner import ReassignmentPlan

MOST_TIMES = 1.5
"""So many times as much as now, relative to the mean, the fullest broker may carry after a repair, and a replica."""


class UnevenError(RackassignError):
    """A plan would leave brokers much less even than they are."""


def check_even(planned: ReassignmentPlan) -> None:
    """Refuse a plan that leaves brokers less even than `MOST_TIMES` allows.

    Raises:
        UnevenError: It does; with the figures.
    """
    before, after = _fullest(planned.before), _fullest(planned.after)
    if not planned.moves or before is None or after is None:
        return
    (_, _, now), (broker, count, then) = before, after
    # One replica more may be a large part of few, and says nothing.
    if then <= MOST_TIMES * now or (count - 1) / count * then <= MOST_TIMES * now:
        return
    raise UnevenError(
        f"broker {broker} would have {count} replicas, {then:.2f} times the mean, and now the fullest has {now:.2f}"
        f" times it; more than {MOST_TIMES} times as much is planned only with --force (--even copies more instead)"
    )


def _fullest(layout: Layout) -> tuple[int, int, float] | None:
    """Return the fullest broker by its weight, its replicas, and how many times the mean that is."""
    weights = {broker.id: float(layout.weights.get(broker.id, 1)) for broker in layout.brokers}
    held = Counter(broker for lists in layout.topics.values() for row in lists for broker in row if broker in weights)
    if not held:
        return None
    broker = min(held, key=lambda broker: (-held[broker] / weights[broker], broker))
    using = sum(weights.values())
    return broker, held[broker], held[broker] / weights[broker] * using / held.total()
