"""Changes of a state that its file does not have yet, in the order of keys."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping


class Overlay:
    """Changes by key, None for a deletion.

    Keys are sorted when they are first read in order, and kept sorted from then on: most tasks never read them so.
    """

    __slots__ = ("_sorted", "changes")

    def __init__(self) -> None:
        self.changes: dict[bytes, bytes | None] = {}
        self._sorted: list[bytes] | None = None

    def update(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Add changes, in place of earlier ones of their keys."""
        if self._sorted is not None:
            for key in changes:
                if key not in self.changes:
                    insort(self._sorted, key)
        self.changes.update(changes)

    def between(self, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the changes of keys from one up to another, in order.

        Args:
            start: The first key.
            end: The key behind the last one; None for all.
        """
        if not self.changes:
            return
        if self._sorted is None:
            self._sorted = sorted(self.changes)
        first = bisect_left(self._sorted, start)
        last = None if end is None else bisect_left(self._sorted, end)
        for key in self._sorted[first:last]:
            yield key, self.changes[key]
