"""Search for paths in a graph in which the arcs of a node are the bits of an int."""

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
    """Return all reachable nodes, each with its predecessor on a shortest path.

    Args:
        arcs_of: Returns the targets of a node, as bits.
        source: Node at which paths begin.
        dead: Nodes to exclude from paths, as bits.
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
