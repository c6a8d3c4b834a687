"""What waits for another round: moves to who has no warm copy yet, halves of exchanges, and copies to be given up.

* A partition moves from an owner that lives only to who has a warm copy; until then its taker *warms up*.
* What is moved must not leave anybody with more than its share, because what was to leave it waits.
* A warm copy is given up when another one is warm in its place.

All is waited for by members that are told so (`warming`); they ask for the round.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from rackassign.model import Group, TopicPartition

Copies = Mapping[str, Mapping[TopicPartition, int]]
"""For each member the partitions of which it has state, with the records it lacks; 0 for all of one it runs."""


class CaughtUpCopies:
    """Who has a warm copy of what.

    Args:
        group: Members; what others have does not count, nor what is of topics a member does not read.
        copies: What they have.
        acceptable: Records that may be lacking.
    """

    def __init__(self, group: Group, copies: Copies, acceptable: int) -> None:
        self._acceptable = acceptable
        self._lags: dict[TopicPartition, dict[str, int]] = defaultdict(dict)
        for member in group.members:
            for place, lag in copies.get(member.id, {}).items():
                if place.topic in member.topics:
                    self._lags[place][member.id] = lag

    def has(self, member: str, place: TopicPartition) -> bool:
        """Tell whether a member could run a partition at once."""
        lag = self.lag(member, place)
        return lag is not None and lag <= self._acceptable

    def lag(self, member: str, place: TopicPartition) -> int | None:
        """Return the records that the copy of a member lacks; None if it has none."""
        return self._lags.get(place, {}).get(member)

    def all(self, place: TopicPartition) -> list[str]:
        """Return who could run a partition at once, the one that lacks least first."""
        lags = self._lags.get(place, {})
        return sorted((member for member in lags if self.has(member, place)), key=lambda member: (lags[member], member))


class PendingMoves(NamedTuple):
    """Who runs partitions.

    Args:
        now: Of each, after this round.
        last: Of each, when all is done.
        cold: For those that move to one without a warm copy.
    """

    now: Mapping[TopicPartition, str]
    last: Mapping[TopicPartition, str]
    cold: Mapping[TopicPartition, str]


def deferred_moves(
    last: Mapping[TopicPartition, str], owners: Mapping[TopicPartition, str], cold: Mapping[TopicPartition, str]
) -> set[TopicPartition]:
    """Return the partitions that stay with their owners for now.

    Those whose takers are cold do. So do those whose takers would have more than their share, since what was to leave
    them stays: half of an exchange makes nothing better.
    """
    share = Counter(last.values())
    stay = set(cold)
    load = Counter(owners[p] if p in stay else who for p, who in last.items())
    coming: dict[str, list[TopicPartition]] = defaultdict(list)
    for place in sorted(last):
        if owners.get(place, last[place]) != last[place] and place not in stay:
            coming[last[place]].append(place)
    full = sorted((who for who in coming if load[who] > share[who]), reverse=True)
    while full:
        who = full.pop()
        while coming[who] and load[who] > share[who]:
            place = coming[who].pop()
            stay.add(place)
            load[who] -= 1
            load[owners[place]] += 1
            full.append(owners[place])
    return stay


def assign_warmups(
    holders: Mapping[TopicPartition, set[str]], moves: PendingMoves, warm: CaughtUpCopies, most: int
) -> dict[TopicPartition, str]:
    """Give those that are to take partitions over a copy; return who is to become warm.

    Where the owner is among those that keep a copy in the end, its taker has that copy until then. Others are one copy
    more than there should be, and only so many of them at a time; who is nearly warm goes first.
    """
    warming: dict[TopicPartition, str] = {}
    extra: list[tuple[bool, int, TopicPartition]] = []
    for place, owner in moves.now.items():
        taker = moves.last[place]
        if owner == taker:
            continue
        lag = warm.lag(taker, place)
        if owner in holders[place] or place not in moves.cold:
            holders[place].discard(owner)
            holders[place].add(taker)
            if place in moves.cold:
                warming[place] = taker
        else:
            extra.append((lag is None, lag or 0, place))
    for *_, place in sorted(extra)[:most]:
        warming[place] = moves.last[place]
        holders[place].add(moves.last[place])
    return warming


def retained_copies(
    holders: Mapping[TopicPartition, set[str]], now: Mapping[TopicPartition, str], warm: CaughtUpCopies, standbys: int
) -> dict[TopicPartition, set[str]]:
    """Keep warm copies where they are until others are warm; return who is waited for."""
    awaited: dict[TopicPartition, set[str]] = {}
    for place, theirs in holders.items():
        cold = {member for member in theirs if not warm.has(member, place)}
        lacking = min(len(cold), standbys - len(theirs - cold))
        others = [member for member in warm.all(place) if member not in theirs and member != now[place]]
        if lacking > 0 and others:
            theirs.update(others[:lacking])
            awaited[place] = cold
    return awaited
