"""Changes of a cluster and a group over months, as steps.

Two brokers in each of three racks, partitions with one and two replicas. Members join and leave, also a whole rack of
them with its brokers; replicas are moved, and topics grow. The steps do not depend on the assignor, so all assignors
are compared on the same steps.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from rackassign.model import Broker, Group, Member, Partition, Topology

RACKS = ("a", "b", "c")
BROKERS = {broker: RACKS[broker % len(RACKS)] for broker in range(2 * len(RACKS))}
FEWEST, MOST = 4, 16
"""Members, while all racks are up."""

COPARTITIONED = ("topic0", "topic1", "topic3")
"""Topics that `keep_together` keeps together."""

RACKLESS = 0.05
"""Of the members that join."""


@dataclass(frozen=True, slots=True)
class Step:
    """What happened, and what there is now.

    Args:
        what: In a word or two.
        group: Topology and members; nobody owns anything here, that is for the assignor's history to say.
    """

    what: str
    group: Group


def keep_together(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield the steps with three topics co-partitioned, whose numbers of partitions differ while one of them grows."""
    for step in steps:
        yield replace(step, group=replace(step.group, copartition=(COPARTITIONED,)))


class Churn:
    """The history of one cluster and one group.

    Args:
        seed: Of all that happens.
        mixed: Whether members subscribe to what they like, or all to everything.
        topics: How many.
        partitions: Of the largest topic, at first.
    """

    def __init__(self, seed: int, *, mixed: bool, topics: int = 6, partitions: int = 16) -> None:
        self._chance = random.Random(seed)
        self._mixed = mixed
        self._copies = {f"topic{i}": 1 + i % 2 for i in range(topics)}
        self._replicas = {
            name: [self._placed(copies) for _ in range(self._chance.randint(partitions // 2, partitions))]
            for name, copies in self._copies.items()
        }
        self._down: str | None = None
        self._lost: list[Member] = []
        self._born = 0
        self._members: list[Member] = []
        for _ in range((FEWEST + MOST) // 2):
            self._join()

    def steps(self, count: int) -> Iterator[Step]:
        """Yield the start and then so many changes."""
        yield Step("start", self._group())
        for _ in range(count):
            yield Step(self._change(), self._group())

    def _group(self) -> Group:
        up = {broker for broker, rack in BROKERS.items() if rack != self._down}
        # A broker that is down is gone from the metadata with its rack, and another copy leads if there is one.
        topics = {
            name: tuple(Partition(r, next((b for b in r if b in up), None)) for r in replicas)
            for name, replicas in self._replicas.items()
        }
        return Group(Topology(tuple(Broker(b, BROKERS[b]) for b in sorted(up)), topics), tuple(self._members))

    def _change(self) -> str:
        kinds = {"join": 25, "leave": 25, "restart": 10, "replicas move": 20, "growth": 10, "rack": 10}
        kind = self._chance.choices(list(kinds), list(kinds.values()))[0]
        if kind == "rack":
            return self._rack()
        if kind in {"join", "leave"}:
            # At either end the other thing happens.
            if len(self._members) >= MOST or (kind == "leave" and len(self._members) > FEWEST):
                self._leave()
                return "leave"
            self._join()
            return "join"
        if kind == "restart":
            left = self._leave()
            self._join(like=left)
        elif kind == "replicas move":
            replicas = self._replicas[name := self._chance.choice(list(self._replicas))]
            for partition in self._chance.sample(range(len(replicas)), self._chance.randint(1, len(replicas))):
                replicas[partition] = self._placed(self._copies[name])
        else:
            name = self._chance.choice(list(self._replicas))
            self._replicas[name] += [self._placed(self._copies[name]) for _ in range(self._chance.randint(1, 3))]
        return kind

    def _rack(self) -> str:
        if self._down is not None:
            self._down = None
            for member in self._lost:
                self._join(like=member)
            return "rack back"
        down = self._chance.choice(RACKS)
        left = [member for member in self._members if member.rack != down]
        if not left:
            self._join()
            return "join"
        self._lost = [member for member in self._members if member.rack == down]
        self._down, self._members = down, left
        return "rack loss"

    def _join(self, like: Member | None = None) -> None:
        self._born += 1
        member = f"member{self._born:04}"
        if like is not None:
            # A new process of the same sort, which knows nothing of the old one.
            self._members.append(replace(like, id=member))
            return
        racks = [rack for rack in RACKS if rack != self._down]
        rack = None if self._chance.random() < RACKLESS else self._chance.choice(racks)
        self._members.append(Member(member, self._read(), rack))

    def _leave(self) -> Member:
        return self._members.pop(self._chance.randrange(len(self._members)))

    def _read(self) -> frozenset[str]:
        names = list(self._replicas)
        if not self._mixed:
            return frozenset(names)
        if self._chance.random() < 0.5:
            # Half of them are instances of one of two applications.
            return frozenset(names[::2] if self._chance.random() < 0.5 else names[: len(names) // 2])
        return frozenset(self._chance.sample(names, self._chance.randint(1, len(names))))

    def _placed(self, copies: int) -> tuple[int, ...]:
        racks = self._chance.sample(RACKS, copies)
        return tuple(self._chance.choice([b for b, on in BROKERS.items() if on == rack]) for rack in racks)
