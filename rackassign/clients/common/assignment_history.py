"""What a leader assigned in its last generations, and which ownership claims that contradicts.

An assignment is made in the middle of a join and counts only once the join is complete: the leader then receives its
own part of it, with the generation. If another join begins first, the assignment is discarded.

A cooperative leader withholds a partition that another member claims, until that member has revoked it. A member that
keeps claiming a partition it does not own (kafka-python's own assignor does so after a loss or an unsubscribe) would
block that partition for ever. The leader's own last assignment shows which claims are false: if that was the group's
very last assignment, and a member claims a partition of that generation which it was not assigned, it does not own it.
A member that sends no generation may refer to the generation before, so the leader must have made both assignments, and
neither may have assigned the partition to that member.

Otherwise (another leader in between, an assignment whose completion this leader never saw, another assignor) all claims
are accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rackassign.model import Group, Member, Partitions, Plan

ROUNDS = 2
"""Generations that are remembered: a member may speak of the one before the last."""


@dataclass(frozen=True, slots=True)
class LeaderAssignment:
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


class AssignmentHistory:
    """The decisions of one consumer, as the leader of its group."""

    __slots__ = ("_made", "_true", "last")

    def __init__(self) -> None:
        self.last: LeaderAssignment | None = None
        """The one the group lives by; None unless the group's last generation was decided here."""
        self._made: LeaderAssignment | None = None
        self._true: dict[int, LeaderAssignment] = {}

    def on_join(self) -> None:
        """Take note that a join begins: had the last decision come true, this leader would know."""
        self._made = self.last = None

    def propose(self, decision: LeaderAssignment) -> None:
        """Take note of a decision that the members are about to get."""
        self._made = decision

    def commit(self, generation: int) -> None:
        """Take note that an assignment is complete, by whomever it was made."""
        # Generations may begin anew, with a group that was removed: what is ahead is of a former life.
        self._true = {made: old for made, old in self._true.items() if generation - ROUNDS < made < generation}
        if self._made is not None:
            self._true[generation] = self._made
        self.last, self._made = self._made, None

    def get(self, generation: int) -> LeaderAssignment | None:
        """Return what was decided here for one of the last two generations; None if it was not."""
        return self._true.get(generation)


def drop_stale_claims(group: Group, generation: int | None, decisions: AssignmentHistory) -> Group:
    """Return the group with nothing claimed that is known not to be owned.

    Args:
        group: As it joins.
        generation: The one that this join makes; None if it is not known, and then all is believed.
        decisions: What this leader handed out.
    """
    if generation is None:
        return group
    owned = [plausible_claims(member, generation, decisions) for member in group.members]
    if all(of_member is member.owned for of_member, member in zip(owned, group.members, strict=True)):
        return group
    return replace(
        group,
        members=tuple(
            member if of_member is member.owned else replace(member, owned=of_member)
            for of_member, member in zip(owned, group.members, strict=True)
        ),
    )


def plausible_claims(member: Member, generation: int, decisions: AssignmentHistory) -> Partitions:
    """Return what of a member's claims may be true; the very same if all of it."""
    # A claim of a generation that is not over is none that can be checked by it.
    known = member.generation is not None and member.generation < generation
    if known and member.generation != generation - 1:
        return member.owned
    spoken_of = [generation - 1] if known else [generation - 1, generation - ROUNDS]
    decided = [decision for made in spoken_of if (decision := decisions.get(made)) is not None]
    given = [handed for decision in decided if (handed := decision.assignment.get(member.id)) is not None]
    if len(given) < len(spoken_of):
        return member.owned
    honest: dict[str, tuple[int, ...]] = {}
    for topic, claimed in member.owned.items():
        had = {partition for of_member in given for partition in of_member.get(topic, ())}
        honest[topic] = claimed if had.issuperset(claimed) else tuple(p for p in claimed if p in had)
    return member.owned if honest == member.owned else honest
