"""The assignments of a leader in its last generations, and the ownership claims that contradict them.

An assignment is made in the middle of a join and counts only once the join is complete: the leader then receives its
own part of it, with the generation. If another join begins first, the assignment is discarded.

A cooperative leader withholds a partition that another member claims, until that member has revoked it. A member that
keeps claiming a partition it does not own (kafka-python's own assignor does so after a loss or an unsubscribe) would
block that partition for ever. The leader's own last assignment shows which claims are false, if that was the group's
very last assignment:

* What it assigned to one member belongs to no other.
* By that generation a member owns what it was assigned, and one that was not in the group owns nothing.
* A member without a generation may refer to the generation before. What it was assigned in neither is not its own.

Other claims on what no member was assigned are accepted: one that missed the last assignment still owns what was
withheld because of it. A generation that cannot be, such as the present one, counts as unknown. If another leader was
in between, or this leader never saw that its assignment was complete, all claims are accepted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from rackassign.model import Group, Member, Partitions, Plan

ROUNDS = 2
"""Number of generations that are kept: a member may refer to the one before the last."""


class LeaderAssignment(NamedTuple):
    """An assignment that a leader computed for a group."""

    assignment: Mapping[str, Partitions]
    # If false, some partitions are withheld for the next rebalance.
    complete: bool = True
    # Both are None if the group could not be decoded, and `plan` if it was described by the coordinator.
    group: Group | None = None
    plan: Plan | None = None
    user_data: Mapping[str, bytes] = MappingProxyType({})


class AssignmentHistory:
    """The assignments of one consumer, as the leader of its group."""

    __slots__ = ("_by_generation", "_proposed", "last")

    def __init__(self) -> None:
        self.last: LeaderAssignment | None = None
        """The current assignment of the group; None unless this leader computed it for the group's last generation."""
        self._proposed: LeaderAssignment | None = None
        self._by_generation: dict[int, LeaderAssignment] = {}

    def on_join(self) -> None:
        """Start a join: if the last assignment had been completed, it would have been committed by now."""
        self._proposed = self.last = None

    def propose(self, decision: LeaderAssignment) -> None:
        """Record an assignment that the members are about to get."""
        self._proposed = decision

    def commit(self, generation: int) -> None:
        """Record that an assignment is complete, whichever leader computed it."""
        # Generations restart if a group was removed; higher ones are of the removed group.
        self._by_generation = {
            made: old for made, old in self._by_generation.items() if generation - ROUNDS < made < generation
        }
        if self._proposed is not None:
            self._by_generation[generation] = self._proposed
        self.last, self._proposed = self._proposed, None

    def recall(self, generation: int, decision: LeaderAssignment) -> None:
        """Record the complete assignment of the present generation, as the coordinator describes it to its leader."""
        self._by_generation[generation] = self.last = decision

    def get(self, generation: int) -> LeaderAssignment | None:
        """Return this leader's assignment of one of the last two generations; None if there is none."""
        return self._by_generation.get(generation)


def drop_stale_claims(members: Sequence[Member], generation: int, history: AssignmentHistory) -> list[Member]:
    """Return the members without claims that are known to be false; the identical object where all may be true."""
    check = _ClaimCheck(generation, history)
    return [check.checked(member) for member in members]


class _ClaimCheck:
    """Checks the claims of the members of a join."""

    def __init__(self, generation: int, history: AssignmentHistory) -> None:
        self._generation = generation
        self._last, self._before = history.get(generation - 1), history.get(generation - ROUNDS)

    @cached_property
    def _assigned(self) -> dict[str, set[int]]:
        assigned: dict[str, set[int]] = {}
        for partitions in self._last.assignment.values() if self._last else ():
            for topic, ids in partitions.items():
                assigned.setdefault(topic, set()).update(ids)
        return assigned

    def checked(self, member: Member) -> Member:
        own = _given_to(member, self._last)
        latest = self._generation - 1 - (self._last is not None and own is None)
        if member.generation is not None and member.generation > latest:
            member = replace(member, generation=None)
        # Nearly all claim what they were assigned, or nothing, and their partitions are not compared one by one.
        if self._last is None or not member.owned or member.owned == own:
            return member
        earlier: Partitions | None = None
        if own is not None and member.generation == latest:
            earlier = {}
        elif own is not None and member.generation is None:
            earlier = _given_to(member, self._before)
        owned: dict[str, tuple[int, ...]] = {}
        for topic, claimed in member.owned.items():
            possible = set(claimed if earlier is None else earlier.get(topic, ())) - self._assigned.get(topic, set())
            possible.update(own.get(topic, ()) if own is not None else ())
            owned[topic] = claimed if possible.issuperset(claimed) else tuple(p for p in claimed if p in possible)
        return member if owned == member.owned else replace(member, owned=owned)


def _given_to(member: Member, made: LeaderAssignment | None) -> Partitions | None:
    """Return a member's partitions in an assignment; None if it was not in the group.

    A static member that was restarted has another member ID, and the partitions of the former one.
    """
    if made is None:
        return None
    own = made.assignment.get(member.id)
    if own is None and member.instance_id is not None and made.group is not None:
        former = (each.id for each in made.group.members if each.instance_id == member.instance_id)
        own = next(map(made.assignment.get, former), None)
    return own
