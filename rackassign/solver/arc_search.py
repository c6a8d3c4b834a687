"""Paths along arcs between nodes, where the arcs of a node are the bits of an int."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator


def bits_of(bits: int) -> Iterator[int]:
    """Yield the nodes of a set."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def shortest_path_tree(arcs_of: Callable[[int], int], source: int, dead: int) -> dict[int, int]:
    """Return all nodes that can be reached, each with the one before it on a shortest path.

    Args:
        arcs_of: Tells the targets of a node, as bits.
        source: Where paths begin.
        dead: Nodes that none leads over.
    """
    before, seen, waiting = {source: source}, 1 << source | dead, deque([source])
    while waiting:
        node = waiting.popleft()
        new = arcs_of(node) & ~seen
        seen |= new
        for target in bits_of(new):
            before[target] = node
            waiting.append(target)
    return before
