"""Resolution of the members' ownership claims.

Every member claims its owned partitions with a generation. Of all claims on a partition only those of the highest
generation count: an older one is of a member that missed a rebalance. If exactly one member remains and it still
subscribes to the topic, it is the partition's *valid owner*. Two claims of the same generation cannot both be true, so
the partition then has no owner.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np

from rackassign.model import Member
from rackassign.solver import NO_MEMBER
from rackassign.solver.network_flow import Bools, Ints

SEVERAL = -2

_HUGE = 2**31


@dataclass(frozen=True, slots=True)
class OwnershipClaims:
    """The resolved claims on each partition."""

    # The one member that claims it in the highest generation claimed for it, or `SEVERAL`, or `NO_MEMBER`. That member
    # is the owner if it subscribes to the topic.
    claimant: Ints
    owner: Ints

    def withheld(self, reader: Ints) -> Bools:
        """Return which partitions must be withheld because another member claims them."""
        held: Bools = (self.claimant != NO_MEMBER) & (self.claimant != reader)
        return held

    def unresolved(self) -> Bools:
        """Return which partitions are claimed without a valid owner: they stay unassigned in this rebalance."""
        without_owner: Bools = (self.claimant != NO_MEMBER) & (self.owner == NO_MEMBER)
        return without_owner

    def moved(self, reader: Ints) -> int:
        """Return the number of partitions that leave their valid owner."""
        return int(((self.owner != NO_MEMBER) & (self.owner != reader)).sum())


def resolve_ownership(
    members: Sequence[Member], topics: Sequence[str], sizes: Ints, reads: Bools, row: Ints | None = None
) -> OwnershipClaims:
    """Resolve the claims of members on partitions, numbered topic after topic.

    Claims on topics and partitions that do not exist are ignored; an unknown generation is older than any known one.
    """
    # The result has indexes of members. `reads` is which members (row) subscribe to a topic (column); those with equal
    # subscriptions share a `row`, and each has its own if that is omitted.
    member, topic, claimed = _claims(members, {topic: i for i, topic in enumerate(topics)})
    total = int(sizes.sum())
    if not len(claimed):
        no_members = np.full(total, NO_MEMBER)
        return OwnershipClaims(no_members, no_members)
    exists = claimed < sizes[topic]
    member, topic = member[exists], topic[exists]
    claimed = claimed[exists] + (sizes.cumsum() - sizes)[topic]
    generation = np.asarray([-1 if m.generation is None else m.generation for m in members], np.int64)[member]

    highest = np.full(total, -1)
    np.maximum.at(highest, claimed, generation)
    counts = generation == highest[claimed]
    member, claimed = member[counts], claimed[counts]
    claimant = np.full(total, NO_MEMBER)
    claimant[claimed] = member
    claimant[np.bincount(claimed, minlength=total) > 1] = SEVERAL
    topic_of = np.arange(len(sizes)).repeat(sizes)
    one = claimant >= 0
    subscribed = np.zeros(total, bool)
    subscribed[one] = reads[claimant[one] if row is None else row[claimant[one]], topic_of[one]]
    return OwnershipClaims(claimant, np.where(subscribed, claimant, NO_MEMBER))


def _claims(members: Sequence[Member], topic_index: Mapping[str, int]) -> tuple[Ints, Ints, Ints]:
    """Return the member, the topic and the ID of every claimed partition of a known topic."""
    # Most members claim one partition of each of many topics, so nothing is done here for each topic in Python.
    names = [*chain.from_iterable(member.owned for member in members)]
    arrays = [*chain.from_iterable(member.owned.values() for member in members)]
    lengths = np.fromiter(map(len, arrays), np.int64, len(arrays))
    ids = [*chain.from_iterable(arrays)]
    # No partition has such an ID, and an array cannot hold it.
    claimed = np.asarray(ids if max(ids, default=0) < _HUGE else [min(p, _HUGE) for p in ids], np.int64)
    topic = np.fromiter(map(topic_index.get, names, repeat(-1)), np.int64, len(names)).repeat(lengths)
    member = np.arange(len(members)).repeat([len(m.owned) for m in members]).repeat(lengths)
    known = topic >= 0
    return member[known], topic[known], claimed[known]


def flatten_partitions(rows: Collection[tuple[int, int, Sequence[int]]]) -> tuple[Ints, Ints, Ints]:
    """Return the member, the topic and the ID of every partition, from rows of a member, a topic and several IDs."""
    lengths = [len(ids) for _, _, ids in rows]
    member = np.asarray([i for i, _, _ in rows], np.int64).repeat(lengths)
    topic = np.asarray([i for _, i, _ in rows], np.int64).repeat(lengths)
    return member, topic, np.fromiter(chain.from_iterable(ids for _, _, ids in rows), np.int64, sum(lengths))
