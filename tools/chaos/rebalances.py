"""The generations of the group, and those that nothing explains.

A generation needs a cause of its own: an event in whose window it falls and which has not brought about its number of
generations already. One that changes nothing needs one that allows for that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rackassign.model import TopicPartition

from .expected_effects import Cause, causes
from .history import Given, History

Assignments = dict[str, frozenset[TopicPartition]]
"""What was given to each member id, as far as they lived to say so."""


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A generation of the group.

    Args:
        generation: Its number.
        at: When a member was first given something in it. One that nobody lived to see is as late as the next.
        idle: Nobody came or went and everybody has what they had, and nothing was left to be handed over.
    """

    generation: int
    at: float
    idle: bool = False


def rebalances(history: History) -> list[Rebalance]:
    """Return all generations of the group, by number."""
    first: dict[int, float] = {}
    handed: dict[int, Assignments] = defaultdict(dict)
    for log in history.members:
        for entry in log.entries:
            if isinstance(entry, Given):
                first[entry.generation] = min(entry.at, first.get(entry.generation, entry.at))
                handed[entry.generation][entry.member_id] = frozenset(entry.owned)
    found: list[Rebalance] = []
    before: Assignments = {}
    revoked = False
    for generation in sorted(first):
        begin = found[-1].generation + 1 if found else 1
        found += [Rebalance(number, first[generation]) for number in range(begin, generation)]
        now = handed[generation]
        found.append(Rebalance(generation, first[generation], begin == generation and now == before and not revoked))
        revoked = any(before.get(member, frozenset()) - owned for member, owned in now.items())
        before = now
    return found


def unexplained(history: History) -> list[Rebalance]:
    """Return the generations for which there is no cause left."""
    open_causes = list(causes(history))
    all_of_them = rebalances(history)
    without = _without(all_of_them, [(cause, cause.most) for cause in open_causes])
    idle = [rebalance for rebalance in all_of_them if rebalance.idle and rebalance not in without]
    return without + _without(idle, [(cause, cause.idle) for cause in open_causes])


def _without(those: Sequence[Rebalance], limits: Sequence[tuple[Cause, int]]) -> list[Rebalance]:
    """Give each the cause that ends first: if there is any way to explain all, that is one."""
    ordered = sorted(limits, key=lambda limit: limit[0].end)
    left = [most for _, most in ordered]
    without: list[Rebalance] = []
    for rebalance in sorted(those, key=lambda each: each.at):
        for number, (cause, _) in enumerate(ordered):
            if left[number] and cause.begin <= rebalance.at <= cause.end:
                left[number] -= 1
                break
        else:
            without.append(rebalance)
    return without
