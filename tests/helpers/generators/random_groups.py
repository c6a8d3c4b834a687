"""Groups at random, from a seed: larger than hypothesis makes them, and with the history that real groups have."""

from __future__ import annotations

import random
from dataclasses import replace

from rackassign.model import Broker, Group, Member, Partition, Topology
from rackassign.strategies import plan_range

# Java orders by UTF-16 code units, in which the second comes before the third.
LETTERS = ["a", "\U0001f600", "\uffee", "Z", "-"]
GENERATION = 7


def random_group(chance: random.Random) -> Group:
    racks = [f"r{i}" for i in range(chance.randint(1, 4))]
    no_rack = chance.choice([0.0, 0.0, 0.3])
    broker_ids = range(chance.randint(1, 6))
    brokers = tuple(
        Broker(i, None if chance.random() < no_rack else chance.choice([*racks, ""] if no_rack else racks))
        for i in broker_ids
    )
    # A replica may be on a broker that is not in the metadata, or be listed twice.
    known = [*broker_ids, *([97, 98] if chance.random() < 0.3 else [])]
    factor = chance.randint(1, 3)
    sizes = [chance.randint(1, 12)] if chance.random() < 0.5 else [chance.randint(0, 12) for _ in range(3)]
    topics: dict[str, tuple[Partition, ...]] = {}
    for name in [f"t{i}" for i in range(chance.randint(1, 6))]:
        replicas = [tuple(chance.choices(known, k=factor)) for _ in range(chance.choice(sizes))]
        topics[name] = tuple(Partition(r, chance.choice([r[0], None])) for r in replicas)
    mixed = chance.random() < 0.5
    names = [*topics, "no-metadata"]
    everything = frozenset(chance.sample(names, chance.randint(1, len(names))))
    static = chance.choice([0.0, 0.5, 1.0])
    members_racks: list[str | None] = [*racks, *([None, "", "elsewhere"] if chance.random() < 0.4 else [])]
    ids = {"".join(chance.choices(LETTERS, k=3)) for _ in range(chance.randint(1, 12))}
    members = [
        Member(
            id=member,
            topics=frozenset(t for t in names if chance.random() < 0.6) if mixed else everything,
            rack=chance.choice(members_racks),
            instance_id="".join(chance.choices(LETTERS, k=2)) + member if chance.random() < static else None,
            owned={t: (0,) for t in topics if chance.random() < 0.2},
            generation=chance.choice([None, 3]),
        )
        for member in sorted(ids)
    ]
    chance.shuffle(members)
    return Group(Topology(brokers, topics), tuple(members))


def with_history(group: Group, chance: random.Random) -> Group:
    """Let some members own what they would have had by themselves, and a few claim the same of earlier generations."""
    former = [member for member in group.members if chance.random() < 0.8]
    had = plan_range(replace(group, members=tuple(former))).assignment
    members = []
    for member in group.members:
        kind = chance.random()
        if member.id in had and kind < 0.8:
            claimed = replace(member, owned=had[member.id], generation=GENERATION)
        elif had and kind < 0.9:
            other = chance.choice(sorted(had))
            claimed = replace(member, owned=had[other], generation=chance.choice([GENERATION - 1, None]))
        else:
            claimed = replace(member, owned={}, generation=None)
        members.append(claimed)
    return replace(group, members=tuple(members))
