"""Switch items from one set of nodes to another as a whole, and prove a placement that reaches a bound.

Theory of operation
-------------------
Exchanges move one copy of an item at a time. With two dimensions an item may have two sets that differ in two nodes,
and none in between that costs as little, so no sequence of exchanges leads from one to the other. In the example of
KIP-708, with three clusters in three zones, every item has two such sets.

So all sets of lowest cost of an item are listed, and chains of switches are tried (Kernighan and Lin's variable-depth
search). Each step of a chain is the best switch of an item that the chain has not switched yet, even if it is a loss.
A chain is taken as soon as it is a gain: loads are more even, or as even with more copies on their former nodes. On
regular grids of zones and clusters the loads become even. In other placements a gain may need a longer chain.

A result is proven if loads are as even as if copies could be placed anywhere, and each item keeps as many copies as it
could alone. It may be optimal without that.

Source: B. W. Kernighan, S. Lin: An efficient heuristic procedure for partitioning graphs. *Bell System Technical
Journal* 49, 1970.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from rackassign.solver.network_flow import bits_of
from rackassign.solver.standby.collisions import CollisionBound, CollisionIndex, ItemDemand

MOST_LISTED = 20_000
"""Limit of the sets of all items together; equal items count once."""

MOST_RATED = 1_000_000
"""Limit of the sets that are rated in all chains: about a second, after which the result does not change."""

_LONGEST_CHAIN = 4
"""Limit of the switches of a chain. With two, all regular grids of the tests are even; with twelve, one in forty of
random placements gets a little more even than with four."""

_DIGITS = 6
"""Decimals to which costs of loads are compared."""

Listed = tuple[tuple[frozenset[int], int], ...]
"""Sets of nodes of an item, each with the number of its nodes that had a copy before."""

Gain = tuple[float, int]
"""Change of a placement: how much more uneven loads are, and how many more copies move. Below (0, 0) it is better."""


def most_even(load: Sequence[int], weight: Sequence[int], copies: int) -> list[int]:
    """Return the most even loads that nodes can have after so many copies, wherever these can be placed."""
    counts = list(load)
    heap = [((2 * count + 1) / weight[node], node) for node, count in enumerate(counts)]
    heapq.heapify(heap)
    for _ in range(copies if counts else 0):
        _, node = heap[0]
        counts[node] += 1
        heapq.heapreplace(heap, ((2 * counts[node] + 1) / weight[node], node))
    return counts


@dataclass(slots=True)
class SetSwitches:
    """The sets of lowest cost of each item, between which items are switched."""

    # Copies on each node that are not to be placed.
    load: tuple[int, ...]
    weight: tuple[int, ...]
    listed: tuple[Listed, ...]
    _left: int = field(init=False, default=MOST_RATED)

    @classmethod
    def of(
        cls, index: CollisionIndex, items: Sequence[ItemDemand], least: Sequence[CollisionBound]
    ) -> SetSwitches | None:
        """List the sets of all items; return None if there are too many."""
        left = MOST_LISTED
        # Former nodes do not affect the cost, so most items share their sets with others.
        sets: dict[tuple[int, int, int, int], tuple[frozenset[int], ...]] = {}
        known: dict[tuple[int, int, int, int, frozenset[int]], Listed] = {}
        listed: list[Listed] = []
        for item, bound in zip(items, least, strict=True):
            alike = item.fixed, item.copies, bound.copies, bound.cost
            key = *alike, frozenset(item.current)
            if key not in known:
                if alike not in sets:
                    sets[alike] = _sets_of(index, item, bound, left)
                left -= len(sets[alike])
                if left <= 0:
                    return None
                known[key] = tuple((own, len(own & key[-1])) for own in sets[alike])
            listed.append(known[key])
        return cls(index.field.load, index.field.weight, tuple(listed))

    def reaches_bound(self, sets: Sequence[set[int]]) -> bool:
        """Return whether no placement can be more even, or as even with more copies on their former nodes."""
        unchanged = sum(_kept(own, listed) for own, listed in zip(sets, self.listed, strict=True))
        if unchanged < sum(max(unchanged for _, unchanged in listed) for listed in self.listed):
            return False
        even = most_even(self.load, self.weight, sum(map(len, sets)))
        return round(self._uneven(self._counts(sets)) - self._uneven(even), _DIGITS) <= 0

    def improved(self, sets: Sequence[set[int]], until: float) -> list[set[int]] | None:
        """Return a better placement; None if no chain leads to one within the limits."""
        found = [frozenset(own) for own in sets]
        counts = self._counts(sets)
        taken = False
        while self._left > 0 and time.monotonic() < until and self._take_chain(found, counts):
            taken = True
        return list(map(set, found)) if taken else None

    def _take_chain(self, sets: list[frozenset[int]], counts: list[int]) -> bool:
        """Make the switches of a chain that is a gain; return whether there is one."""
        before = list(counts)
        switched: dict[int, frozenset[int]] = {}
        total: Gain = (0.0, 0)
        for _ in range(_LONGEST_CHAIN):
            best = self._best_switch(sets, counts, switched)
            if best is None:
                break
            (uneven, moved), number, own = best
            switched[number] = own
            for node in sets[number]:
                counts[node] -= 1
            for node in own:
                counts[node] += 1
            total = round(total[0] + uneven, _DIGITS), total[1] + moved
            if total < (0.0, 0):
                for number, own in switched.items():
                    sets[number] = own
                return True
        counts[:] = before
        return False

    def _best_switch(
        self, sets: Sequence[frozenset[int]], counts: Sequence[int], switched: dict[int, frozenset[int]]
    ) -> tuple[Gain, int, frozenset[int]] | None:
        """Return the best switch of an item that is not switched yet: what it changes, the item and its new set."""
        more = [(2 * count + 1) / weight for count, weight in zip(counts, self.weight, strict=True)]
        best: tuple[Gain, int, frozenset[int]] | None = None
        rated: set[tuple[int, frozenset[int]]] = set()
        for number, (own, listed) in enumerate(zip(sets, self.listed, strict=True)):
            key = id(listed), own
            if len(listed) < 2 or number in switched or key in rated:  # noqa: PLR2004 - a switch is between two sets
                continue
            rated.add(key)
            self._left -= len(listed)
            # The cost of each node's last copy, without the copies of this item.
            last = list(more)
            for node in own:
                last[node] -= 2 / self.weight[node]
            now, kept = sum(last[node] for node in own), _kept(own, listed)
            for other, kept_there in listed:
                gain = round(sum(last[node] for node in other) - now, _DIGITS), kept - kept_there
                if other != own and (best is None or gain < best[0]):
                    best = gain, number, other
        return best

    def _counts(self, sets: Sequence[set[int]]) -> list[int]:
        counts = list(self.load)
        for own in sets:
            for node in own:
                counts[node] += 1
        return counts

    def _uneven(self, counts: Sequence[int]) -> float:
        return sum(count * count / weight for count, weight in zip(counts, self.weight, strict=True))


def _kept(own: set[int] | frozenset[int], listed: Listed) -> int:
    return next(kept for nodes, kept in listed if nodes == own)


def _sets_of(index: CollisionIndex, item: ItemDemand, bound: CollisionBound, most: int) -> tuple[frozenset[int], ...]:
    """Return the sets of nodes of an item at its lowest cost; no more than `most`."""
    fixed = [index.of[item.fixed]] if item.fixed >= 0 else []
    copies = (item.copies if index.field.strict else bound.copies) + len(fixed)

    def extend(chosen: tuple[int, ...], free: int) -> Iterator[frozenset[int]]:
        if len(chosen) == bound.copies:
            yield frozenset(chosen)
            return
        cells = tuple(sorted([index.of[node] for node in chosen] + fixed))
        for node in bits_of(index.joining(cells, copies, bound.cost) & free):
            # In ascending order, so that each set is found once.
            yield from extend((*chosen, node), free & ~((2 << node) - 1))

    every = ((1 << len(index.of)) - 1) & ~(1 << item.fixed if item.fixed >= 0 else 0)
    return tuple(islice(extend((), every), most))
