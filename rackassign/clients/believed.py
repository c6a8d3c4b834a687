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

from dataclasses import replace

from rackassign.clients.decisions import ROUNDS, Decisions
from rackassign.model import Group, Member, Partitions


def without_false_claims(group: Group, generation: int | None, decisions: Decisions) -> Group:
    """Return the group with nothing claimed that is known not to be owned.

    Args:
        group: As it joins.
        generation: The one that this join makes; None if it is not known, and then all is believed.
        decisions: What this leader handed out.
    """
    if generation is None:
        return group
    owned = [believed(member, generation, decisions) for member in group.members]
    if all(of_member is member.owned for of_member, member in zip(owned, group.members, strict=True)):
        return group
    return replace(
        group,
        members=tuple(
            member if of_member is member.owned else replace(member, owned=of_member)
            for of_member, member in zip(owned, group.members, strict=True)
        ),
    )


def believed(member: Member, generation: int, decisions: Decisions) -> Partitions:
    """Return what of a member's claims may be true; the very same if all of it."""
    # A claim of a generation that is not over is none that can be checked by it.
    known = member.generation is not None and member.generation < generation
    if known and member.generation != generation - 1:
        return member.owned
    spoken_of = [generation - 1] if known else [generation - 1, generation - ROUNDS]
    decided = [decision for made in spoken_of if (decision := decisions.of(made)) is not None]
    given = [handed for decision in decided if (handed := decision.assignment.get(member.id)) is not None]
    if len(given) < len(spoken_of):
        return member.owned
    honest: dict[str, tuple[int, ...]] = {}
    for topic, claimed in member.owned.items():
        had = {partition for of_member in given for partition in of_member.get(topic, ())}
        honest[topic] = claimed if had.issuperset(claimed) else tuple(p for p in claimed if p in had)
    return member.owned if honest == member.owned else honest
