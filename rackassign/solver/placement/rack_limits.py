"""What limits mean for one item: how many copies in each rack, in how many racks.

Items of one *kind* want as many copies and find as many nodes in each rack. All that limits ask for is worked out
once for a kind, by counting; no flow is ever infeasible afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rackassign.solver.placement.model import EVEN, Constraints, ShortageError


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an item of a kind keeps to.

    Args:
        copies: Copies that can be placed.
        missing: Copies that cannot.
        low: Least copies in each rack.
        high: Most copies in each rack.
        racks: In how many racks it must be at least.
        leaders: Racks of which one must have a copy; empty if any will do.
        note: What could not be kept to; empty if nothing.
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
        """Whether `low` and `high` say all."""
        if self.leaders:
            return False
        alone = max(self.high, default=0) <= 1
        return alone or self.racks <= max(1, sum(1 for least in self.low if least))

    def allow(self, racks: Iterable[int]) -> bool:
        """Tell whether an item may have copies in these racks, one entry each."""
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
    """Work out what limits ask of an item.

    Args:
        copies: How many it wants.
        room: Nodes it can use, by rack.
        limits: What is allowed.

    Raises:
        ShortageError: Not all copies can be placed, and that is to be an error.
    """
    most = _most_per_rack(copies, room, limits)
    racks = sum(1 for nodes in room if nodes)
    # An item of fewer copies cannot be asked to be in more racks.
    lacking = max(0, min(limits.min_racks or 0, copies) - min(racks, limits.max_racks or racks))
    placed = max(0, min(copies, _capacity(room, most), copies - lacking))
    doubt = ""
    if placed < copies:
        if limits.on_shortage == "error":
            raise ShortageError(_shortage(copies, placed, room, most, lacking))
        if limits.on_shortage == "relax":
            placed = min(copies, sum(room))
            most = max(most, _filled(placed, room))
            lacking = 0
            doubt = "limits had to give way" if placed == copies else "there are fewer nodes than copies"
    leaders = limits.leader_racks or frozenset()
    if limits.leader_racks is not None and not any(room[rack] for rack in leaders):
        if limits.on_shortage == "error":
            raise ShortageError("no rack in which leaders must be has a node")
        leaders, doubt = frozenset(), "no rack in which leaders must be has a node"
    high = tuple(min(nodes, most) for nodes in room)
    evenly = limits.max_per_rack == EVEN and placed == copies and limits.counted_racks is None
    low = tuple(min(nodes, most - 1) if evenly else 0 for nodes in room)
    possible = min(placed, sum(1 for top in high if top))
    wanted = possible if limits.min_racks is None else min(possible, limits.min_racks)
    return Bounds(placed, copies - placed, low, high, wanted, leaders if placed else frozenset(), doubt)


def _most_per_rack(copies: int, room: Sequence[int], limits: Constraints) -> int:
    if limits.max_per_rack != EVEN:
        return int(limits.max_per_rack)
    if limits.counted_racks is not None:
        return -(-copies // limits.counted_racks)
    return _filled(min(copies, sum(room)), room)


def _filled(copies: int, room: Sequence[int]) -> int:
    """Return the least limit of a rack at which so many copies find a node."""
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
