"""The check of how uneven a plan may leave brokers: plans that pile up replicas are refused, however they were made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rackassign.errors import RackassignError
from rackassign.placement.layout import Layout
from rackassign.reassignment.planner import ReassignmentPlan

MOST_TIMES = 1.5
"""The largest allowed ratio of the fullest broker's load after a reassignment to its load before.

Both are relative to the mean. One replica more is always allowed.
"""


class UnevenError(RackassignError):
    """A plan would leave the load of brokers much less even than it is."""


def check_even(planned: ReassignmentPlan, weights: Mapping[int, float] | None = None) -> None:
    """Refuse a plan that leaves brokers less even than `MOST_TIMES` allows.

    Args:
        planned: The plan.
        weights: Load that brokers are to carry, relative to each other; 1 if not set.

    Raises:
        UnevenError: The plan leaves them less even; the message has the figures.
    """
    before, after = _fullest(planned.before, weights or {}), _fullest(planned.after, weights or {})
    if not planned.moves or before is None or after is None:
        return
    (_, _, now), (broker, count, then) = before, after
    # If a broker has few replicas, one more is a large part of them and no sign of a pile-up.
    if then <= MOST_TIMES * now or (count - 1) / count * then <= MOST_TIMES * now:
        return
    raise UnevenError(
        f"broker {broker} would have {count} replicas, {then:.2f} times the mean; the fullest broker now has"
        f" {now:.2f} times the mean. A plan that increases this more than {MOST_TIMES}-fold needs --force"
        " (--rebalance plans an even one, which copies more)"
    )


def _fullest(layout: Layout, of_brokers: Mapping[int, float]) -> tuple[int, int, float] | None:
    """Return the broker with the highest load by its weight, its replicas, and the ratio of its load to the mean."""
    weights = {broker.id: float(of_brokers.get(broker.id, 1)) for broker in layout.brokers}
    held = Counter(broker for lists in layout.topics.values() for row in lists for broker in row if broker in weights)
    if not held:
        return None
    broker = min(held, key=lambda broker: (-held[broker] / weights[broker], broker))
    using = sum(weights.values())
    return broker, held[broker], held[broker] / weights[broker] * using / held.total()
