"""Prometheus metrics of `StatefulConsumer`s, by group."""

from __future__ import annotations

from dataclasses import asdict
from typing import Protocol

from rackassign.errors import ConfigError
from rackassign.monitoring.pool import Client, Figures, Metric, Pool
from rackassign.monitoring.prometheus import PoolMetrics
from rackassign.stateful._statistics import COUNTERS, ROLES, StateStatistics

_COUNTERS = {
    field: Metric(f"rackassign_state_{field}", f"{text[0].upper()}{text[1:]}.", ("group",))
    for field, (_, text) in COUNTERS.items()
}
_TASKS = Metric(
    "rackassign_state_tasks",
    "Tasks of the members: active (restored), restoring, standby.",
    ("group", "role"),
    "gauge",
)
# Several members of a process may have one partition: the one that is furthest behind counts.
_REMAINING = Metric(
    "rackassign_state_restore_remaining_records",
    "Records of the changelog that a restore has still to read.",
    ("group", "topic", "partition"),
    "greatest",
)
_LAG = Metric(
    "rackassign_state_standby_lag_records",
    "Records of the changelog that a standby lacks.",
    ("group", "topic", "partition"),
    "greatest",
)


class Member(Protocol):
    """A `StatefulConsumer`."""

    @property
    def group(self) -> str:
        """The group."""

    def statistics(self) -> StateStatistics:
        """Return the current statistics."""


class StateMetrics(PoolMetrics):
    """Metrics of the members of this process: `REGISTRY.register(StateMetrics(member))`.

    Register one for a process, and `add` further members to it. It may be used from any thread, and does not keep a
    member alive. Counters are sums over the members of a group, of which those of closed members remain a part.

    Args:
        member: The first member.

    Raises:
        ConfigError: It is no `StatefulConsumer`.
    """

    def __init__(self, member: Member | None = None) -> None:
        super().__init__(Pool(*_COUNTERS.values(), _TASKS, _REMAINING, _LAG, keeps=True))
        if member is not None:
            self.add(member)

    def add(self, member: Member) -> None:
        """Export a member as well; a second time has no effect.

        Raises:
            ConfigError: It is no `StatefulConsumer`.
        """
        if not callable(getattr(member, "statistics", None)):
            raise ConfigError(f"{type(member).__name__} has no statistics of state: give a StatefulConsumer")
        self._pool.add(ExportedMember(member, member.group))


class ExportedMember(Client):
    """A member of a group with state."""

    def figures(self) -> Figures | None:
        member: Member | None = self.ref()
        if member is None:
            return None
        now, group = member.statistics(), self.group
        figures: Figures = {_COUNTERS[field]: {(group,): count} for field, count in asdict(now.counts).items()}
        figures[_TASKS] = {(group, role): now.number(role) for role in ROLES}
        figures[_REMAINING] = {
            (group, each.tp.topic, str(each.tp.partition)): each.to_restore - each.restored
            for each in now.tasks
            if each.role == "restoring"
        }
        figures[_LAG] = {
            (group, each.tp.topic, str(each.tp.partition)): each.lag for each in now.tasks if each.role == "standby"
        }
        return figures
