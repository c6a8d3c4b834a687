"""Claims that a leader knows to be false.

A cooperative leader withholds what another member claims, until that member has given it up. A member that goes on
claiming what it has not got (kafka-python's own assignor does so after a loss or an unsubscribe) would keep it from
everybody for ever. The leader can know better: it has the assignment it handed out last. If that was the group's very
last one, and a member claims to speak of it, what it was not given there it does not own. A member that sends no
generation may speak of the one before, which it may still have; so both must be ours, and in neither may it have been
given the partition.

Anything else, another leader in between, an answer that this leader never heard the end of, another assignor, and
nothing is held against anybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rackassign.model import Group, Member, Partitions

_ROUNDS = 2


class Believed:
    """What this leader handed out in the group's last generations, held against what members claim."""

    def __init__(self) -> None:
        self._handing_out: Mapping[str, Partitions] | None = None
        self._handed: dict[int, Mapping[str, Partitions]] = {}

    def joining(self) -> None:
        """Forget what was to be handed out: this leader never heard that it was."""
        self._handing_out = None

    def handing_out(self, assignment: Mapping[str, Partitions]) -> None:
        """Take note of an assignment that the members are about to get."""
        self._handing_out = assignment

    def complete(self, generation: int) -> None:
        """Take note that an assignment is complete, by whomever it was made."""
        if self._handing_out is not None:
            self._handed[generation] = self._handing_out
        self._handing_out = None
        self._handed = {made: handed for made, handed in self._handed.items() if made > generation - _ROUNDS}

    def without_false_claims(self, group: Group, generation: int | None) -> Group:
        """Return the group with nothing claimed that is known not to be owned.

        Args:
            group: As it joins.
            generation: The one that this join makes; None if it is not known, and then all is believed.
        """
        if generation is None:
            return group
        return replace(
            group,
            members=tuple(
                member if (owned := self.owned(member, generation)) is member.owned else replace(member, owned=owned)
                for member in group.members
            ),
        )

    def owned(self, member: Member, generation: int) -> Partitions:
        """Return what of a member's claims may be true; the very same if all of it."""
        # A claim of a generation that is not over is none that can be checked by it.
        known = member.generation is not None and member.generation < generation
        if known and member.generation != generation - 1:
            return member.owned
        spoken_of = [generation - 1] if known else [generation - 1, generation - _ROUNDS]
        handed = [self._handed.get(made, {}).get(member.id) for made in spoken_of]
        given = [of_member for of_member in handed if of_member is not None]
        if len(given) < len(spoken_of):
            return member.owned
        honest: dict[str, tuple[int, ...]] = {}
        for topic, claimed in member.owned.items():
            had = {partition for of_member in given for partition in of_member.get(topic, ())}
            honest[topic] = claimed if had.issuperset(claimed) else tuple(p for p in claimed if p in had)
        return member.owned if honest == member.owned else honest
