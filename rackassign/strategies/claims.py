"""Who owned what: the members' claims, held against each other.

Every member says what it owned and in which generation. Of all claims on a partition only those of the highest
generation claimed for it count: an older one is a member that missed the hand-over. If exactly one member
remains and it still subscribes to the topic, it is the partition's *valid owner*. Two claims of the same
generation cannot both be true, so the partition is nobody's.
"""

from __future__ import annotations

from rackassign.model import Group, Partitions


def valid_owners(group: Group) -> dict[str, dict[int, str]]:
    """Return for each topic the valid owner of each partition that has one.

    Claims on topics and partitions that do not exist are ignored; an unknown generation is older than any known
    one. The result does not depend on the order of members.
    """
    newest: dict[str, dict[int, tuple[int, str | None]]] = {}
    for member in group.members:
        generation = -1 if member.generation is None else member.generation
        for topic, partitions in member.owned.items():
            count = len(group.topology.topics.get(topic, ()))
            claims = newest.setdefault(topic, {})
            for partition in partitions:
                if partition >= count:
                    continue
                held = claims.get(partition)
                if held is None or generation > held[0]:
                    claims[partition] = (generation, member.id)
                elif generation == held[0]:
                    claims[partition] = (generation, None)
    topics = {member.id: member.topics for member in group.members}
    owners: dict[str, dict[int, str]] = {}
    for topic, claims in newest.items():
        valid = {p: owner for p, (_, owner) in claims.items() if owner is not None and topic in topics[owner]}
        if valid:
            owners[topic] = valid
    return owners


def count_moved(owners: dict[str, dict[int, str]], target: dict[str, Partitions]) -> int:
    """Return how many partitions leave their valid owner in `target`."""
    moved = 0
    for topic, claims in owners.items():
        for partition, owner in claims.items():
            if partition not in target[owner].get(topic, ()):
                moved += 1
    return moved
