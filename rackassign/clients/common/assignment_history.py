"""The assignments of a leader in its last generations, and the ownership claims that contradict them.

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
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from rackassign.model import Group, Member, Partitions, Plan

ROUNDS = 2
"""Number of generations that are kept: a member may refer to the one before the last."""


class LeaderAssignment(NamedTuple):
    """An assignment that a leader computed for a group.

    Args:
        assignment: Partitions of each member.
        complete: Whether it is complete; if not, some partitions are withheld for the next rebalance.
        group: Group for which it was computed; None if the group could not be decoded.
        plan: The plan; None if `group` is.
        user_data: User data of each member's assignment; members that are missing get none.
    """

    assignment: Mapping[str, Partitions]
    complete: bool = True
    group: Group | None = None
    plan: Plan | None = None
    user_data: Mapping[str, bytes] = MappingProxyType({})


class AssignmentHistory:
    """The assignments of one consumer, as the leader of its group."""

    __slots__ = ("_made", "_true", "last")

    def __init__(self) -> None:
        self.last: LeaderAssignment | None = None
        """The current assignment of the group; None unless this leader computed it for the group's last generation."""
        self._made: LeaderAssignment | None = None
        self._true: dict[int, LeaderAssignment] = {}

    def on_join(self) -> None:
        """Start a join: if the last assignment had been completed, it would have been committed by now."""
        self._made = self.last = None

    def propose(self, decision: LeaderAssignment) -> None:
        """Record an assignment that the members are about to get."""
        self._made = decision

    def commit(self, generation: int) -> None:
        """Record that an assignment is complete, whichever leader computed it."""
        # Generations restart if a group was removed; higher ones are of the removed group.
        self._true = {made: old for made, old in self._true.items() if generation - ROUNDS < made < generation}
        if self._made is not None:
            self._true[generation] = self._made
        self.last, self._made = self._made, None

    def get(self, generation: int) -> LeaderAssignment | None:
        """Return this leader's assignment of one of the last two generations; None if there is none."""
        return self._true.get(generation)


def drop_stale_claims(group: Group, generation: int | None, history: AssignmentHistory) -> Group:
    """Return the group without claims that are known to be false.

    Args:
        group: The group as it joins.
        generation: Generation of this join; None if it is not known, and then all claims are accepted.
        history: Assignments of this leader.
    """
    if generation is None:
        return group
    owned = [plausible_claims(member, generation, history) for member in group.members]
    if all(of_member is member.owned for of_member, member in zip(owned, group.members, strict=True)):
        return group
    return replace(
        group,
        members=tuple(
            member if of_member is member.owned else replace(member, owned=of_member)
            for of_member, member in zip(owned, group.members, strict=True)
        ),
    )


def plausible_claims(member: Member, generation: int, history: AssignmentHistory) -> Partitions:
    """Return those claims of a member that may be true; the identical object if all of them may be."""
    # A claim of a generation that is not over cannot be checked by that generation.
    known = member.generation is not None and member.generation < generation
    if known and member.generation != generation - 1:
        return member.owned
    spoken_of = [generation - 1] if known else [generation - 1, generation - ROUNDS]
    decided = [decision for made in spoken_of if (decision := history.get(made)) is not None]
    given = [handed for decision in decided if (handed := decision.assignment.get(member.id)) is not None]
    if len(given) < len(spoken_of):
        return member.owned
    if member.owned in given:
        # Nearly all members, and their partitions are not compared one by one.
        return member.owned
    honest: dict[str, tuple[int, ...]] = {}
    for topic, claimed in member.owned.items():
        had = {partition for of_member in given for partition in of_member.get(topic, ())}
        honest[topic] = claimed if had.issuperset(claimed) else tuple(p for p in claimed if p in had)
    return member.owned if honest == member.owned else honest
