"""Rebalances of groups between reports, for a rate: how calm a group is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rackassign.model import Partitions
from rackassign.monitoring.live_groups import GroupDescription


@dataclass(frozen=True, slots=True)
class _Seen:
    generation: int
    assigned: Mapping[str, Partitions]


class RebalanceCounter:
    """Counts the rebalances of groups from their descriptions, one after the other.

    Members of cooperative and sticky strategies send their generation with their subscription, so the difference
    counts all rebalances in between. Without generations, a change of members or of their partitions counts as one.
    """

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._totals: dict[str, int] = {}

    def take(self, groups: Iterable[GroupDescription], hidden: frozenset[str]) -> None:
        """Take the descriptions of all groups.

        Args:
            groups: The groups.
            hidden: Names of groups that exist and could not be described now; those that are neither are forgotten.
        """
        named = {group.name: group for group in groups}
        for name in set(self._seen) - set(named) - hidden:
            del self._seen[name], self._totals[name]
        for name, group in named.items():
            now = _Seen(group.generation, {member.id: member.assigned for member in group.members})
            before = self._seen.get(name)
            self._totals[name] = self._totals.get(name, 0) + (0 if before is None else _between(before, now))
            self._seen[name] = now

    def totals(self) -> dict[str, int]:
        """Return the rebalances of each group since it was first described."""
        return dict(self._totals)


def _between(before: _Seen, now: _Seen) -> int:
    changed = before.assigned != now.assigned
    if before.generation < 0 or now.generation < before.generation:
        # No generations are sent, or the group was empty in between and its generations began again.
        return int(changed)
    return max(now.generation - before.generation, int(changed))
