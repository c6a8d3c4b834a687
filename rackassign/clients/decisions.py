"""What a group's leader decided, and for which generations that came true.

A decision is made in the middle of a join and is true only when the join is complete: the leader then gets its own
part of it back, with the generation. Until then, and if another join begins first, nobody may count on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rackassign.model import Group, Partitions, Plan

ROUNDS = 2
"""Generations that are remembered: a member may speak of the one before the last."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a leader decided for a group.

    Args:
        assignment: What each member is handed.
        complete: Whether that is all of it; if not, something is withheld for the next round.
        group: From what it was decided; None if that could not be made sense of.
        plan: What was planned; None with `group`.
    """

    assignment: Mapping[str, Partitions]
    complete: bool = True
    group: Group | None = None
    plan: Plan | None = None


class Decisions:
    """The decisions of one consumer, as the leader of its group."""

    __slots__ = ("_made", "_true", "last")

    def __init__(self) -> None:
        self.last: Decision | None = None
        """The one the group lives by; None unless the group's last generation was decided here."""
        self._made: Decision | None = None
        self._true: dict[int, Decision] = {}

    def joining(self) -> None:
        """Take note that a join begins: had the last decision come true, this leader would know."""
        self._made = self.last = None

    def make(self, decision: Decision) -> None:
        """Take note of a decision that the members are about to get."""
        self._made = decision

    def complete(self, generation: int) -> None:
        """Take note that an assignment is complete, by whomever it was made."""
        # Generations may begin anew, with a group that was removed: what is ahead is of a former life.
        self._true = {made: old for made, old in self._true.items() if generation - ROUNDS < made < generation}
        if self._made is not None:
            self._true[generation] = self._made
        self.last, self._made = self._made, None

    def of(self, generation: int) -> Decision | None:
        """Return what was decided here for one of the last two generations; None if it was not."""
        return self._true.get(generation)
