"""Prometheus metrics of `StatefulConsumer`s, by group."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Protocol

from rackassign.errors import ConfigError, MissingExtraError
from rackassign.stateful._statistics import COUNTERS, ROLES, StateStatistics

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ModuleNotFoundError:
    raise MissingExtraError("prometheus-client", "prometheus") from None


class Member(Protocol):
    """A `StatefulConsumer`."""

    @property
    def group(self) -> str:
        """The group."""

    def statistics(self) -> StateStatistics:
        """Return the current statistics."""


@dataclass(slots=True)
class _Exported:
    """A member that is exported, and its counters as they were read last."""

    member: weakref.ref[Member]
    group: str
    counts: Mapping[str, int] = field(default_factory=dict)


class StateMetrics(Collector):
    """Metrics of the members of this process: `REGISTRY.register(StateMetrics(member))`.

    Register one for a process, and `add` further members to it. It may be used from any thread, and does not keep a
    member alive. Counters are sums over the members of a group, of which those of closed members remain a part.

    Args:
        member: The first member.

    Raises:
        ConfigError: It is no `StatefulConsumer`.
    """

    def __init__(self, member: Member | None = None) -> None:
        self._lock = threading.Lock()
        self._members: list[_Exported] = []
        self._finished: dict[str, Counter[str]] = {}
        """The counters of members that are gone, by group."""
        if member is not None:
            self.add(member)

    def add(self, member: Member) -> None:
        """Export a member as well; a second time has no effect.

        Raises:
            ConfigError: It is no `StatefulConsumer`.
        """
        if not callable(getattr(member, "statistics", None)):
            raise ConfigError(f"{type(member).__name__} has no statistics of state: give a StatefulConsumer")
        with self._lock:
            self._remove_gone()
            if all(known.member() is not member for known in self._members):
                self._members.append(_Exported(weakref.ref(member), member.group))
                self._finished.setdefault(member.group, Counter())

    def _remove_gone(self) -> None:
        """Keep only the sum of members that are gone: a process may create one after each failure for years."""
        present: list[_Exported] = []
        for known in self._members:
            if known.member() is None:
                self._finished[known.group].update(known.counts)
            else:
                present.append(known)
        self._members = present

    def describe(self) -> Iterable[Metric]:
        """Return the metrics without samples."""
        return [*_counters().values(), *_gauges()]

    def collect(self) -> Iterable[Metric]:
        """Return the current metrics; called from the server's thread."""
        tasks: dict[tuple[str, str], int] = {}
        # Several members of a process may have one partition: the one that is furthest behind counts.
        remaining: dict[tuple[str, str, str], int] = {}
        lags: dict[tuple[str, str, str], int] = {}
        with self._lock:
            self._remove_gone()
            totals = {
                (group, name): count for group, counts in self._finished.items() for name, count in counts.items()
            }
            for known in self._members:
                member, group = known.member(), known.group
                if member is not None:
                    now = member.statistics()
                    known.counts = asdict(now.counts)
                    for role in ROLES:
                        tasks[group, role] = tasks.get((group, role), 0) + now.number(role)
                    for each in now.tasks:
                        where = (group, each.tp.topic, str(each.tp.partition))
                        if each.role == "restoring":
                            remaining[where] = max(remaining.get(where, 0), each.to_restore - each.restored)
                        elif each.role == "standby":
                            lags[where] = max(lags.get(where, 0), each.lag)
                for name, count in known.counts.items():
                    totals[group, name] = totals.get((group, name), 0) + count
        counters, gauges = _counters(), _gauges()
        for (group, name), total in totals.items():
            counters[name].add_metric((group,), total)
        every: tuple[Mapping[tuple[str, ...], int], ...] = (tasks, remaining, lags)  # type: ignore[assignment]
        for gauge, samples in zip(gauges, every, strict=True):
            for labels, value in samples.items():
                gauge.add_metric(labels, value)
        return [*counters.values(), *gauges]


def _counters() -> dict[str, CounterMetricFamily]:
    return {
        field: CounterMetricFamily(f"rackassign_state_{field}", f"{text[0].upper()}{text[1:]}.", labels=("group",))
        for field, (_, text) in COUNTERS.items()
    }


def _gauges() -> tuple[GaugeMetricFamily, GaugeMetricFamily, GaugeMetricFamily]:
    where = ("group", "topic", "partition")
    return (
        GaugeMetricFamily(
            "rackassign_state_tasks",
            "Tasks of the members: active (restored), restoring, standby.",
            labels=("group", "role"),
        ),
        GaugeMetricFamily(
            "rackassign_state_restore_remaining_records",
            "Records of the changelog that a restore has still to read.",
            labels=where,
        ),
        GaugeMetricFamily(
            "rackassign_state_standby_lag_records",
            "Records of the changelog that a standby lacks.",
            labels=where,
        ),
    )
