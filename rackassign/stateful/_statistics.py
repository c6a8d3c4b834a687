"""What a member has done with state so far, and how far its tasks are: for metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from rackassign.clients.kafka_python.internals.traffic import MetricGroup
from rackassign.model import TopicPartition
from rackassign.text import WarnOnce

GROUP = "rackassign-state-metrics"

Role = Literal["active", "restoring", "standby"]
"""An active task whose state is restored, one whose state is not, and a standby."""

ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(slots=True)
class StateCounts:
    """Counters of a member; written by its thread, read by any."""

    # Those included that are processed again.
    records: int = 0
    commits: int = 0
    changelog_records: int = 0
    changelog_bytes: int = 0
    gets: int = 0
    puts: int = 0
    damaged_files: int = 0


@dataclass(frozen=True, slots=True)
class TaskStatistics:
    """How far a task is."""

    tp: TopicPartition
    role: Role
    # Records of the changelog that its local state lacks, as far as the end is known: it is looked up every two
    # seconds. For a task that is restored it counts what is being written.
    lag: int
    # While its state is restored: records read so far, and to be read in all.
    restored: int = 0
    to_restore: int = 0


@dataclass(frozen=True, slots=True)
class StateStatistics:
    """The tasks of a member, and its counters since it was created.

    Args:
        tasks: Its tasks, active ones and standbys, in order.
        counts: A copy of its counters.
    """

    tasks: tuple[TaskStatistics, ...]
    counts: StateCounts

    def number(self, role: Role) -> int:
        """Return the number of tasks with a role."""
        return sum(each.role == role for each in self.tasks)

    @property
    def restore_remaining(self) -> int:
        """Records that restores have still to read (KIP-869: restore-remaining-records-total)."""
        return sum(each.to_restore - each.restored for each in self.tasks if each.role == "restoring")

    @property
    def standby_lag_max(self) -> int:
        """Records that the standby lacks which is furthest behind."""
        return max((each.lag for each in self.tasks if each.role == "standby"), default=0)


COUNTERS: Mapping[str, tuple[str, str]] = {
    "records": ("processed-records-total", "input records processed"),
    "commits": ("commits-total", "commits written to changelogs"),
    "changelog_records": ("changelog-records-total", "records written to changelogs"),
    "changelog_bytes": ("changelog-bytes-total", "bytes written to changelogs, before compression"),
    "gets": ("store-gets-total", "reads of single keys"),
    "puts": ("store-puts-total", "changes of keys, deletions included"),
    "damaged_files": ("damaged-files-total", "local files that were damaged and deleted"),
}
"""The name of each counter in kafka-python's metrics, and its description, by the field of `StateCounts`."""


def publish(consumer: object, statistics: Callable[[], StateStatistics], counts: StateCounts, once: WarnOnce) -> None:
    group = MetricGroup(consumer, GROUP, once, "state is")
    for field, (name, description) in COUNTERS.items():
        group.add(name, description, {}, lambda field=field: float(getattr(counts, field)))  # type: ignore[misc]
    gauges: Mapping[str, tuple[str, Callable[[StateStatistics], int]]] = {
        "active-tasks": ("active tasks whose state is restored", lambda now: now.number("active")),
        "active-restoring-tasks": ("active tasks whose state is being restored", lambda now: now.number("restoring")),
        "standby-tasks": ("standbys", lambda now: now.number("standby")),
        "restore-remaining-records-total": ("records that restores have to read", lambda now: now.restore_remaining),
        "standby-lag-records-max": ("records that the furthest standby lacks", lambda now: now.standby_lag_max),
    }
    for name, (description, value) in gauges.items():
        group.add(name, description, {}, lambda value=value: float(value(statistics())))  # type: ignore[misc]
