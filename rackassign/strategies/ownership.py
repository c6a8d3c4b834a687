"""Who owned what: the members' claims, held against each other.

Every member says what it owned and in which generation. Of all claims on a partition only those of the highest
generation claimed for it count: an older one is a member that missed the hand-over. If exactly one member
remains and it still subscribes to the topic, it is the partition's *valid owner*. Two claims of the same
generation cannot both be true, so the partition is nobody's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from rackassign.model import Member
from rackassign.solver import NO_MEMBER
from rackassign.solver.types import Bools, Ints

SEVERAL = -2

_HUGE = 2**31


@dataclass(frozen=True, slots=True)
class OwnershipClaims:
    """What counts of the claims on each partition.

    Args:
        claimant: The one member that claims it in the highest generation claimed for it, `SEVERAL` if there are
            more, `NO_MEMBER` if nobody does.
        owner: Its valid owner: the claimant, if it subscribes to the topic, else `NO_MEMBER`.
    """

    claimant: Ints
    owner: Ints

    def withheld(self, reader: Ints) -> Bools:
        """Tell which partitions cannot be handed out yet because another member claims them."""
        held: Bools = (self.claimant != NO_MEMBER) & (self.claimant != reader)
        return held

    def unresolved(self) -> Bools:
        """Tell which partitions are claimed without having a valid owner: nobody gets them in this rebalance."""
        without_owner: Bools = (self.claimant != NO_MEMBER) & (self.owner == NO_MEMBER)
        return without_owner

    def moved(self, reader: Ints) -> int:
        """Return how many partitions leave their valid owner."""
        return int(((self.owner != NO_MEMBER) & (self.owner != reader)).sum())


def resolve_ownership(members: Sequence[Member], topics: Sequence[str], sizes: Ints, reads: Bools) -> OwnershipClaims:
    """Settle the claims of members on partitions, numbered topic after topic.

    Claims on topics and partitions that do not exist are ignored; an unknown generation is older than any known one.

    Args:
        members: The result speaks of their places.
        topics: Names.
        sizes: Number of partitions of each topic.
        reads: Whether a member (row) subscribes to a topic (column).
    """
    place = {topic: i for i, topic in enumerate(topics)}
    rows = [
        (i, place[topic], partitions)
        for i, member in enumerate(members)
        for topic, partitions in member.owned.items()
        if topic in place
    ]
    total = int(sizes.sum())
    if not rows:
        nobody = np.full(total, NO_MEMBER)
        return OwnershipClaims(nobody, nobody)
    # Such a number is none of an existing partition, and none that an array can hold.
    rows = [(i, t, ids if max(ids, default=0) < _HUGE else tuple(p for p in ids if p < _HUGE)) for i, t, ids in rows]
    member, topic, claimed = flatten_partitions(rows)
    exists = claimed < sizes[topic]
    member, topic = member[exists], topic[exists]
    claimed = claimed[exists] + (np.cumsum(sizes) - sizes)[topic]
    generation = np.asarray([-1 if m.generation is None else m.generation for m in members], np.int64)[member]

    highest = np.full(total, -1)
    np.maximum.at(highest, claimed, generation)
    counts = generation == highest[claimed]
    member, claimed = member[counts], claimed[counts]
    claimant = np.full(total, NO_MEMBER)
    claimant[claimed] = member
    claimant[np.bincount(claimed, minlength=total) > 1] = SEVERAL
    topic_of = np.repeat(np.arange(len(sizes)), sizes)
    one = claimant >= 0
    subscribed = np.zeros(total, bool)
    subscribed[one] = reads[claimant[one], topic_of[one]]
    return OwnershipClaims(claimant, np.where(subscribed, claimant, NO_MEMBER))


def flatten_partitions(rows: Collection[tuple[int, int, Sequence[int]]]) -> tuple[Ints, Ints, Ints]:
    """Return the member, the topic and the id of every partition, from rows of a member, a topic and several ids."""
    lengths = [len(ids) for _, _, ids in rows]
    member = np.repeat(np.asarray([i for i, _, _ in rows], np.int64), lengths)
    topic = np.repeat(np.asarray([i for _, i, _ in rows], np.int64), lengths)
    return member, topic, np.fromiter(chain.from_iterable(ids for _, _, ids in rows), np.int64, sum(lengths))
