"""Claims that a leader knows to be false.

A cooperative leader withholds what another member claims, until that member has given it up. A member that goes on
claiming what it has not got (kafka-python's own assignor does so after a loss or an unsubscribe) would keep it from
everybody for ever. The leader knows better: it has the assignment it handed out last. What a member was not given
there it does not own, once it has that assignment: if its claim is of that very generation, or, for members that send
no generation, if it still claims it one assignment later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rackassign.model import Group, Member, Partitions

_ROUNDS = 2


class Believed:
    """What this leader handed out in its last assignments, held against what members claim."""

    def __init__(self) -> None:
        self._handing_out: Mapping[str, Partitions] | None = None
        self._handed: list[Mapping[str, Partitions]] = []
        self._generation: int | None = None

    def joining(self) -> None:
        """Forget what was to be handed out: the members never got it, or it would be complete."""
        self._handing_out = None

    def handing_out(self, assignment: Mapping[str, Partitions]) -> None:
        """Take note of an assignment that the members are about to get."""
        self._handing_out = assignment

    def complete(self, generation: int) -> None:
        """Take note that an assignment is complete; one that somebody else made forgets what is known."""
        if self._handing_out is None:
            self._handed = []
        else:
            self._handed = [self._handing_out, *self._handed][:_ROUNDS]
        self._handing_out, self._generation = None, generation

    def without_false_claims(self, group: Group) -> Group:
        """Return the group with nothing claimed that is known not to be owned."""
        if not self._handed:
            return group
        return replace(group, members=tuple(map(self._honest, group.members)))

    def _honest(self, member: Member) -> Member:
        if member.generation is not None and member.generation != self._generation:
            return member
        rounds = 1 if member.generation is not None else _ROUNDS
        last = [handed[member.id] for handed in self._handed[:rounds] if member.id in handed]
        if len(last) < rounds:
            return member
        owned = {
            topic: tuple(p for p in partitions if any(p in given.get(topic, ()) for given in last))
            for topic, partitions in member.owned.items()
        }
        return member if owned == member.owned else replace(member, owned=owned)
