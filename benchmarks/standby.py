"""Standbys: how often Kafka's way to place them misses what is possible and ours does not, and what that takes.

The groups of the first table are small, so that all placements can be tried.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from benchmarks.tables import Sheet, show
from rackassign.model import TopicPartition
from rackassign.strategies.standby import Copies, StandbyOptions, assign_standbys
from tests.helpers.standby_groups import KEYS, carried_out, crowdedness, group_of, placed_by_kafka

WAYS = ("rackassign", "kafka")


@dataclass
class Tally:
    """What came of many groups."""

    groups: int = 0
    ideal: int = 0
    missed: Counter[str] = field(default_factory=Counter)
    worse: Counter[str] = field(default_factory=Counter)

    def add(self, dice: random.Random) -> None:
        """Draw a group with one partition, and try all placements of its copies."""
        tags = {
            f"m{number}": {"zone": f"z{dice.randrange(3)}", "cluster": f"c{dice.randrange(4)}"}
            for number in range(dice.randint(3, 7))
        }
        standbys = dice.randint(1, 3)
        owner = dice.choice(list(tags))
        group = group_of(tags, 1, **{owner: (0,)})
        copies = min(standbys, len(tags) - 1) + 1
        others = [name for name in tags if name != owner]
        possible = min(crowdedness(tags, {*chosen, owner}, copies) for chosen in combinations(others, copies - 1))
        self.groups += 1
        self.ideal += not possible
        found = assign_standbys(group, {}, StandbyOptions(standbys, KEYS))
        ours = {name for name, theirs in found.standbys.items() if theirs}
        for way, holders in zip(WAYS, (ours, placed_by_kafka(tags, {0: owner}, standbys)[0]), strict=True):
            collisions = crowdedness(tags, {*holders, owner}, copies)
            self.worse[way] += collisions > possible
            self.missed[way] += collisions > possible == 0


def quality(groups: int) -> Sheet:
    """Return how often each way misses what is possible."""
    dice, tally = random.Random(708), Tally()
    for _ in range(groups):
        tally.add(dice)
    rows = [(way, f"{tally.ideal:,}", f"{tally.missed[way]:,}", f"{tally.worse[way]:,}") for way in WAYS]
    headings = ("placed by", "groups with an ideal placement", "of these missed", "of all, more collisions than needed")
    return Sheet(f"{groups:,} random groups with two tags", headings, rows)


def timed(members: int, partitions: int, options: StandbyOptions) -> list[float]:
    """Return seconds for a new group, for the same once more, and after a zone has died."""
    tags = {f"m{i:03}": {"zone": "abc"[i % 3], "cluster": "wxyz"[i // 3 % 4]} for i in range(members)}
    group, copies = group_of(tags, partitions), dict[str, dict[TopicPartition, int]]()
    found = []
    for step in ("new", "again", "zone"):
        if step == "zone":
            group = replace(group, members=tuple(each for each in group.members if each.tags["zone"] != "a"))
        had: Copies = {member.id: copies.get(member.id, {}) for member in group.members}
        begun = time.perf_counter()
        plan = assign_standbys(group, had, options)
        found.append(time.perf_counter() - begun)
        group, after = carried_out(group, plan)
        copies = {name: dict(theirs) for name, theirs in after.items()}
    return found


def times() -> Sheet:
    """Return what planning takes."""
    rows = []
    for partitions, members in ((200, 30), (1000, 100), (1000, 500)):
        for standbys in (1, 2):
            taken = timed(members, partitions, StandbyOptions(standbys, KEYS))
            rows.append((f"{partitions:,} x {members}", str(standbys), *(f"{seconds:.2f}" for seconds in taken)))
    headings = ("partitions x members", "standbys", "s, new group", "s, the same again", "s, a zone died")
    return Sheet("Planning", headings, rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=40_000)
    options = parser.parse_args(arguments)
    show([quality(options.groups), times()])


if __name__ == "__main__":
    main()
