"""Moves that wait for a later rebalance: to members without a warm copy, halves of exchanges, and copies to drop.

* A partition moves from a live owner only to a member with a warm copy; until then the new member *warms up*.
* No move may leave a member with more than its share because the moves away from it wait.
* A warm copy is dropped when another one is warm in its place.

The members to which this is sent (`warming`) wait for it, and request the next rebalance.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from rackassign.model import Group, TopicPartition

Copies = Mapping[str, Mapping[TopicPartition, int]]
"""For each member the partitions of which it has state, with its lag in records; 0 for all if it is active."""


class CaughtUpCopies:
    """The members with a warm copy of each partition.

    Args:
        group: Members; copies of others do not count, nor copies of topics that a member does not read.
        copies: Copies of members.
        acceptable: Acceptable lag in records.
    """

    def __init__(self, group: Group, copies: Copies, acceptable: int) -> None:
        self._acceptable = acceptable
        self._lags: dict[TopicPartition, dict[str, int]] = defaultdict(dict)
        for member in group.members:
            for tp, lag in copies.get(member.id, {}).items():
                if tp.topic in member.topics:
                    self._lags[tp][member.id] = lag

    def has(self, member: str, tp: TopicPartition) -> bool:
        """Return whether a member could become active for a partition at once."""
        lag = self.lag(member, tp)
        return lag is not None and lag <= self._acceptable

    def lag(self, member: str, tp: TopicPartition) -> int | None:
        """Return the lag of a member's copy in records; None if it has none."""
        return self._lags.get(tp, {}).get(member)

    def all(self, tp: TopicPartition) -> list[str]:
        """Return the members that could become active for a partition at once, the one with the smallest lag first."""
        lags = self._lags.get(tp, {})
        return sorted((member for member in lags if self.has(member, tp)), key=lambda member: (lags[member], member))


class PendingMoves(NamedTuple):
    """Active members of partitions.

    Args:
        now: Active member of each partition after this rebalance.
        last: Active member of each partition when all moves are done.
        cold: New member of each partition that has no warm copy on that member.
    """

    now: Mapping[TopicPartition, str]
    last: Mapping[TopicPartition, str]
    cold: Mapping[TopicPartition, str]


def deferred_moves(
    last: Mapping[TopicPartition, str], owners: Mapping[TopicPartition, str], cold: Mapping[TopicPartition, str]
) -> set[TopicPartition]:
    """Return the partitions that stay with their owners for now.

    These are the partitions whose new members have no warm copy, and those whose new members would have more than their
    share because the moves away from them wait: half of an exchange improves nothing.
    """
    share = Counter(last.values())
    stay = set(cold)
    load = Counter(owners[p] if p in stay else who for p, who in last.items())
    coming: dict[str, list[TopicPartition]] = defaultdict(list)
    for tp in sorted(last):
        if owners.get(tp, last[tp]) != last[tp] and tp not in stay:
            coming[last[tp]].append(tp)
    full = sorted((who for who in coming if load[who] > share[who]), reverse=True)
    while full:
        who = full.pop()
        while coming[who] and load[who] > share[who]:
            tp = coming[who].pop()
            stay.add(tp)
            load[who] -= 1
            load[owners[tp]] += 1
            full.append(owners[tp])
    return stay


def assign_warmups(
    holders: Mapping[TopicPartition, set[str]], moves: PendingMoves, warm: CaughtUpCopies, most: int
) -> dict[TopicPartition, str]:
    """Assign a copy to members that are to take partitions over; return the members that are to warm up.

    If the owner is among those that keep a copy in the end, its successor has that copy until then. Other warm-ups are
    copies in addition to the configured number, so their number is limited; members that are nearly warm come first.
    """
    warming: dict[TopicPartition, str] = {}
    extra: list[tuple[bool, int, TopicPartition]] = []
    for tp, owner in moves.now.items():
        taker = moves.last[tp]
        if owner == taker:
            continue
        lag = warm.lag(taker, tp)
        if owner in holders[tp] or tp not in moves.cold:
            holders[tp].discard(owner)
            holders[tp].add(taker)
            if tp in moves.cold:
                warming[tp] = taker
        else:
            extra.append((lag is None, lag or 0, tp))
    for *_, tp in sorted(extra)[:most]:
        warming[tp] = moves.last[tp]
        holders[tp].add(moves.last[tp])
    return warming


def retained_copies(
    holders: Mapping[TopicPartition, set[str]], now: Mapping[TopicPartition, str], warm: CaughtUpCopies, standbys: int
) -> dict[TopicPartition, set[str]]:
    """Keep warm copies where they are until others are warm; return the awaited copies."""
    awaited: dict[TopicPartition, set[str]] = {}
    for tp, theirs in holders.items():
        cold = {member for member in theirs if not warm.has(member, tp)}
        lacking = min(len(cold), standbys - len(theirs - cold))
        others = [member for member in warm.all(tp) if member not in theirs and member != now[tp]]
        if lacking > 0 and others:
            theirs.update(others[:lacking])
            awaited[tp] = cold
    return awaited
