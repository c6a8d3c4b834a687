"""Equal items form a class: they have equally many copies, one group, and the same current nodes.

If an item may be in fewer racks than the constraints would spread it over, its racks are chosen before anything else,
one item after the other. That is the only choice of this package that no flow makes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np

from rackassign.solver.placement.model import BrokerArrays, Constraints, PartitionArrays, Problem, ShortageError
from rackassign.solver.placement.rack_limits import Bounds, bounds_of
from rackassign.solver.types import Ints

_NO_NODE = -1
_MOST_CHOICES = 512
"""Limit of the combinations of racks. If there are more, only neighbouring racks are combined."""


@dataclass(frozen=True, slots=True)
class Classes:
    """Items by class.

    Args:
        of: Class of each item.
        size: Number of items of each class.
        group: Group of each class.
        current: Nodes that have each class and may keep it, in order.
        leader_load: The one of those that leads and is worth keeping; -1 for none, or if all of them stay anyway.
        bounds: Bounds of an item of each class.
        racks: Number of racks.
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
        """Group equal items into classes.

        Args:
            items: Items to place.
            nodes: Nodes on which copies can be placed.
            chosen: Racks of each item, and the bounds that follow.
            bare: Whether to ignore groups and current nodes, except nodes that accept no new copies.
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
            leads = _NO_NODE if bare else worth_keeping(kept[item], usable, chosen.bounds[item], nodes)
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
    """Return the leader that an item with copies to remove should keep; -1 for none, or if all copies stay."""
    if leader in usable and nodes.leader_eligible[leader]:
        in_rack = Counter(int(nodes.rack[node]) for node in usable)
        if len(usable) > bounds.copies or any(count > bounds.high[at] for at, count in in_rack.items()):
            return leader
    return _NO_NODE


@dataclass(frozen=True, slots=True)
class RackChoice:
    """The racks each item may be in.

    Args:
        racks: Number of racks.
        choice: Index of the combination of racks of each item.
        usable: Nodes that have the item, may keep it and are in its racks, in order.
        bounds: Bounds of each item.
    """

    racks: int
    choice: tuple[int, ...]
    usable: tuple[tuple[int, ...], ...]
    bounds: tuple[Bounds, ...]


def choose(problem: Problem) -> RackChoice:
    """Choose the racks of each item, and compute its bounds.

    Raises:
        ShortageError: Not all copies can be placed, and `on_shortage` is `error`.
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
    """Return the combinations of racks an item may be in; one with all racks if it may be in all."""
    usable, most = [rack for rack, nodes in enumerate(free) if nodes], limits.max_racks
    if most is None or most >= len(usable):
        return [frozenset(range(len(free)))]
    found = [frozenset(subset) for subset in islice(combinations(usable, most), _MOST_CHOICES + 1)]
    if len(found) <= _MOST_CHOICES:
        return found
    return [frozenset((usable[at:] + usable[:at])[:most]) for at in range(len(usable))]


class _Chooser:
    """Chooses racks, and caches choices and bounds."""

    def __init__(self, limits: Constraints, choices: list[frozenset[int]]) -> None:
        self._limits = limits
        self._choices = choices
        self._taken = [0] * len(choices)
        self._known: dict[tuple[int, tuple[int, ...], int], Bounds | ShortageError] = {}

    def best(self, copies: int, held: list[int], room: list[int]) -> tuple[int, Bounds]:
        """Return the choice that places most, keeps most and was used least, in this order.

        Raises:
            ShortageError: No choice places all copies, and `on_shortage` is `error`.
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
