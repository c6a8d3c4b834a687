"""Balance of each topic class first, and of the totals second.

Rules: as in `balance`, there are only class sizes here, no racks and no owners.

Theory
------
The counts of a topic class alone are lexicographically least, sorted from large to small, if its readers have equal
numbers of its partitions, and as many as the rest of the division have one more: an *extra*. Topic classes do not
limit each other in that, so all assignments of this kind are: a fixed count for each reader and topic class, plus
extras, each to a different reader.

The totals depend on the extras only. They are a convex flow like that of `balance`, with what is fixed as base loads
and the number of members of a subscription class as the limit of its extras of one topic class. Within a subscription
class extras can be dealt in turn, so that its members differ by at most one in each topic class and in total.

The parts and ceilings of the theory of `balance` hold with limits too, with one difference: a topic class has extras
in a part only if all its readers in parts with lower ceilings have one. So each topic class has one ceiling at which
its extras are free. Below it each reader has an extra, above it none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rackassign.solver.balance import ConvexFlow
from rackassign.solver.blocking_flow import Charge
from rackassign.solver.types import Ints


@dataclass(frozen=True, slots=True)
class TopicBalance:
    """Description of all assignments that balance each topic class, and then the totals.

    Args:
        low: For each class pair the least number of partitions of the topic class that a member may have.
        high: For each class pair the greatest number.
        max_load: For each subscription class the larger of the two loads that its members may have.
        whole: For each topic class what all its readers have.
        extras: For each class pair the number of extras in one such assignment.
    """

    low: Ints
    high: Ints
    max_load: Ints
    whole: Ints
    extras: Ints


def compute_topic_balance(
    supply: Ints,
    sizes: Ints,
    topic_class: Ints,
    subscription_class: Ints,
    charge: Charge,
    *,
    held: Ints | None = None,
) -> TopicBalance:
    """Compute the counts of optimal balance.

    Args:
        supply: Number of partitions of each topic class.
        sizes: Number of members of each subscription class, 1 or more.
        topic_class: Topic class of each pair, ascending; every topic class has a pair.
        subscription_class: Subscription class of each pair.
        charge: Called with the work.
        held: For each pair how many members would keep an extra: `extras` then changes as little as balance requires.
    """
    size = sizes[subscription_class]
    readers = np.bincount(topic_class, size, len(supply)).astype(np.int64)
    whole, extras = np.divmod(supply, readers)
    base = np.bincount(subscription_class, whole[topic_class] * size, len(sizes)).astype(np.int64)
    water = ConvexFlow(extras, sizes, topic_class, subscription_class, charge, base=base, limit=size)
    if held is not None:
        water.start_from(held)
    ceiling = water.balance(pour=held is None)
    below, within = _room(ceiling[subscription_class], topic_class, size)
    # Extras of the topic class that its readers at lower ceilings do not take, and at this ceiling do.
    reached = below < extras[topic_class]
    exceeded = below + within <= extras[topic_class]
    low = whole[topic_class]
    return TopicBalance(low + exceeded, low + reached, ceiling, whole, water.flow)


def _room(ceiling: Ints, topic_class: Ints, size: Ints) -> tuple[Ints, Ints]:
    """Return for each pair how many readers its topic class has at lower ceilings, and at the ceiling of the pair."""
    order = np.lexsort((ceiling, topic_class))
    key = np.stack([topic_class[order], ceiling[order]], axis=1)
    starts = np.flatnonzero(np.any(np.diff(key, axis=0, prepend=-1) != 0, axis=1))
    group = np.zeros(len(order), np.int64)
    group[starts] = 1
    group = np.cumsum(group) - 1
    room = np.bincount(group, size[order]).astype(np.int64)
    before = np.cumsum(room) - room
    first = np.searchsorted(topic_class[order][starts], np.arange(len(np.unique(topic_class))))
    before -= before[first][topic_class[order][starts]]
    below, within = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    below[order], within[order] = before[group], room[group]
    return below, within
