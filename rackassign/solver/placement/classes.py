"""Items that are alike are one class: as many copies, of one group, held by the same nodes.

Where an item may be in fewer racks than limits would spread it over, its racks are chosen before anything else, one
item after the other; that is the one choice here that no flow makes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np

from rackassign.solver.placement.model import BrokerArrays, Constraints, PartitionArrays, Problem, ShortageError
from rackassign.solver.placement.rack_limits import Bounds, bounds_of
from rackassign.solver.types import Ints

_NOBODY = -1
_MOST_CHOICES = 512
"""Of racks; where there are more, only neighbouring racks are chosen."""


@dataclass(frozen=True, slots=True)
class Classes:
    """Items by class.

    Args:
        of: Class of each item.
        size: Items of each class.
        group: Group of each class.
        current: Nodes that hold each and may go on doing so, in order.
        leader_load: Which of those leads and is worth keeping; -1 for none, or where all of them stay anyway.
        bounds: What an item of each class keeps to.
        racks: How many racks there are.
    """

    of: Ints
    size: Ints
    group: Ints
    current: tuple[tuple[int, ...], ...]
    leader_load: tuple[int, ...]
    bounds: tuple[Bounds, ...]
    racks: int

    @classmethod
    def made(cls, items: PartitionArrays, nodes: BrokerArrays, chosen: RackChoice, *, bare: bool = False) -> Classes:
        """Find what is alike.

        Args:
            items: What has copies.
            nodes: Where they can be.
            chosen: Racks of each item, and the bounds that follow.
            bare: Whether groups, and who holds what, play no part, except at nodes that take nothing new.
        """
        found: dict[tuple[int, int, int, tuple[int, ...], int], int] = {}
        of: list[int] = []
        closed, kept = ~nodes.assignable, items.leaders_kept()
        for item, (copies, group, choice) in enumerate(
            zip(items.copies.tolist(), items.group.tolist(), chosen.choice, strict=True)
        ):
            usable = chosen.usable[item]
            if bare:
                usable = tuple(node for node in usable if closed[node])
            leads = _NOBODY if bare else worth_keeping(kept[item], usable, chosen.bounds[item], nodes)
            of.append(found.setdefault((copies, 0 if bare else group, choice, usable, leads), len(found)))
        first = np.unique(np.asarray(of, np.int64), return_index=True)[1].tolist() if of else []
        return cls(
            of=np.asarray(of, np.int64),
            size=np.bincount(np.asarray(of, np.int64), minlength=len(found)),
            group=np.asarray([group for _, group, *_ in found], np.int64),
            current=tuple(usable for _, _, _, usable, _ in found),
            leader_load=tuple(leads for *_, leads in found),
            bounds=tuple(chosen.bounds[item] for item in first),
            racks=chosen.racks,
        )


def worth_keeping(leader: int, usable: tuple[int, ...], bounds: Bounds, nodes: BrokerArrays) -> int:
    """Return who is to go on leading an item that has to give copies up; -1 for nobody, or if all copies stay."""
    if leader in usable and nodes.leader_eligible[leader]:
        in_rack = Counter(int(nodes.rack[node]) for node in usable)
        if len(usable) > bounds.copies or any(count > bounds.high[at] for at, count in in_rack.items()):
            return leader
    return _NOBODY


@dataclass(frozen=True, slots=True)
class RackChoice:
    """The racks each item may be in.

    Args:
        racks: How many racks there are.
        choice: Number of the choice of racks of each item.
        usable: Nodes that hold it, may go on doing so and are in its racks, in order.
        bounds: What it keeps to.
    """

    racks: int
    choice: tuple[int, ...]
    usable: tuple[tuple[int, ...], ...]
    bounds: tuple[Bounds, ...]


def choose(problem: Problem) -> RackChoice:
    """Choose the racks of each item, and work out what it keeps to.

    Raises:
        ShortageError: Copies cannot be placed, and that is to be an error.
    """
    items, nodes = problem.items, problem.nodes
    rack, closed = nodes.rack.tolist(), (~nodes.assignable).tolist()
    racks = max(rack, default=-1) + 1
    free = np.bincount(nodes.rack[nodes.assignable], minlength=racks).tolist()
    chooser = _Chooser(problem.limits, _choices(free, problem.limits))
    choice_of, usable_of, bounds_of_item = [], [], []
    for copies, held in zip(items.copies.tolist(), items.current, strict=True):
        room = list(free)
        for node in held:
            room[rack[node]] += closed[node]
        number, bounds = chooser.best(copies, [rack[node] for node in held], room)
        choice_of.append(number)
        usable_of.append(tuple(sorted(node for node in held if bounds.high[rack[node]])))
        bounds_of_item.append(bounds)
    return RackChoice(racks, tuple(choice_of), tuple(usable_of), tuple(bounds_of_item))


def _choices(free: list[int], limits: Constraints) -> list[frozenset[int]]:
    """Return the sets of racks an item may be in; one of all racks if it may be in all."""
    usable, most = [rack for rack, nodes in enumerate(free) if nodes], limits.max_racks
    if most is None or most >= len(usable):
        return [frozenset(range(len(free)))]
    found = [frozenset(subset) for subset in islice(combinations(usable, most), _MOST_CHOICES + 1)]
    if len(found) <= _MOST_CHOICES:
        return found
    return [frozenset((usable[at:] + usable[:at])[:most]) for at in range(len(usable))]


class _Chooser:
    """Chooses racks, and remembers what was chosen and worked out."""

    def __init__(self, limits: Constraints, choices: list[frozenset[int]]) -> None:
        self._limits = limits
        self._choices = choices
        self._taken = [0] * len(choices)
        self._known: dict[tuple[int, tuple[int, ...], int], Bounds | ShortageError] = {}

    def best(self, copies: int, held: list[int], room: list[int]) -> tuple[int, Bounds]:
        """Return the choice that places most, keeps most and was taken least, in this order.

        Raises:
            ShortageError: None places all copies, and that is to be an error.
        """
        found: list[tuple[tuple[int, bool, int, int, int], Bounds]] = []
        failed: ShortageError | None = None
        for number, racks in enumerate(self._choices):
            bounds = self._bounds(copies, room, number)
            if isinstance(bounds, ShortageError):
                failed = failed or bounds
                continue
            kept = sum(min(held.count(rack), bounds.high[rack]) for rack in racks)
            found.append(((-bounds.copies, bool(bounds.note), -kept, self._taken[number], number), bounds))
        if not found:
            raise failed or ShortageError("there are no racks")
        (*_, number), bounds = min(found, key=lambda entry: entry[0])
        self._taken[number] += 1
        return number, bounds

    def _bounds(self, copies: int, room: list[int], number: int) -> Bounds | ShortageError:
        key = (copies, tuple(room), number)
        if key not in self._known:
            racks = self._choices[number]
            try:
                within = [nodes if rack in racks else 0 for rack, nodes in enumerate(room)]
                self._known[key] = bounds_of(copies, within, self._limits)
            except ShortageError as error:
                self._known[key] = error
        return self._known[key]
