"""Bounds that constraints imply for one item: how many copies in each rack, and in how many racks.

Items of one *kind* have equally many copies and equally many usable nodes in each rack. The bounds are computed once
for each kind, by counting. With them, no flow is infeasible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rackassign.solver.placement.model import EVEN, Constraints, ShortageError


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of the items of a kind.

    Args:
        copies: Number of copies that can be placed.
        missing: Number of copies that cannot.
        low: Minimum number of copies in each rack.
        high: Maximum number of copies in each rack.
        racks: Minimum number of racks of an item.
        leaders: Racks of which one must have a copy; empty if there is no such constraint.
        note: Constraints that could not be satisfied; empty if there are none.
    """

    copies: int
    missing: int
    low: tuple[int, ...]
    high: tuple[int, ...]
    racks: int
    leaders: frozenset[int]
    note: str = ""

    @property
    def plain(self) -> bool:
        """Whether `low` and `high` are the only bounds."""
        if self.leaders:
            return False
        alone = max(self.high, default=0) <= 1
        return alone or self.racks <= max(1, sum(1 for least in self.low if least))

    def allow(self, racks: Iterable[int]) -> bool:
        """Return whether an item may have copies in these racks, one entry each."""
        counts = [0] * len(self.high)
        for rack in racks:
            counts[rack] += 1
        led = any(count and rack in self.leaders for rack, count in enumerate(counts))
        return (
            sum(counts) == self.copies
            and all(low <= count <= high for low, count, high in zip(self.low, counts, self.high, strict=True))
            and sum(1 for count in counts if count) >= self.racks
            and (led or not self.leaders)
        )


def bounds_of(copies: int, room: Sequence[int], limits: Constraints) -> Bounds:
    """Compute the bounds of an item.

    Args:
        copies: Number of copies.
        room: Number of nodes it can use, by rack.
        limits: Constraints.

    Raises:
        ShortageError: Not all copies can be placed, and `on_shortage` is `error`.
    """
    most = _most_per_rack(copies, room, limits)
    racks = sum(1 for nodes in room if nodes)
    # The minimum number of racks does not apply beyond the number of copies.
    lacking = max(0, min(limits.min_racks or 0, copies) - min(racks, limits.max_racks or racks))
    placed = max(0, min(copies, _capacity(room, most), copies - lacking))
    note = ""
    if placed < copies:
        if limits.on_shortage == "error":
            raise ShortageError(_shortage(copies, placed, room, most, lacking))
        if limits.on_shortage == "relax":
            placed = min(copies, sum(room))
            most = max(most, _filled(placed, room))
            lacking = 0
            note = "constraints had to be relaxed" if placed == copies else "there are fewer nodes than copies"
    leaders = limits.leader_racks or frozenset()
    if limits.leader_racks is not None and not any(room[rack] for rack in leaders):
        if limits.on_shortage == "error":
            raise ShortageError("no rack in which leaders must be has a node")
        leaders, note = frozenset(), "no rack in which leaders must be has a node"
    high = tuple(min(nodes, most) for nodes in room)
    evenly = limits.max_per_rack == EVEN and placed == copies and limits.counted_racks is None
    low = tuple(min(nodes, most - 1) if evenly else 0 for nodes in room)
    possible = min(placed, sum(1 for top in high if top))
    wanted = possible if limits.min_racks is None else min(possible, limits.min_racks)
    return Bounds(placed, copies - placed, low, high, wanted, leaders if placed else frozenset(), note)


def _most_per_rack(copies: int, room: Sequence[int], limits: Constraints) -> int:
    if limits.max_per_rack != EVEN:
        return int(limits.max_per_rack)
    if limits.counted_racks is not None:
        return -(-copies // limits.counted_racks)
    return _filled(min(copies, sum(room)), room)


def _filled(copies: int, room: Sequence[int]) -> int:
    """Return the lowest limit of a rack at which so many copies can be placed."""
    most = 0
    while _capacity(room, most) < copies:
        most += 1
    return most


def _capacity(room: Sequence[int], most: int) -> int:
    return sum(min(nodes, most) for nodes in room)


def _shortage(copies: int, placed: int, room: Sequence[int], most: int, lacking: int) -> str:
    nodes, racks = sum(room), sum(1 for count in room if count)
    if nodes < copies:
        return f"{copies} copies, but only {nodes} nodes"
    if lacking:
        return f"{copies} copies in {racks + lacking} racks at least, but only {racks} racks can be used"
    return f"{copies} copies with at most {most} in a rack, but the {racks} racks take only {placed}"
