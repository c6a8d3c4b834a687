"""Looking at all there is to see of some groups, in as few requests as it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from rackassign.admin.cluster import can_describe_cluster, list_brokers, list_groups_on
from rackassign.admin.groups import GroupAdmin
from rackassign.errors import ConfigError
from rackassign.monitoring.analysis import GroupAnalysis, inspect
from rackassign.monitoring.cluster import ObservedCluster, describe_cluster
from rackassign.monitoring.groups import GroupDescription, describe_group
from rackassign.monitoring.rack_map import RackMap
from rackassign.monitoring.snapshot import Snapshot, snapshot, topics_of
from rackassign.monitoring.throughput import LogSamples, Throughput, compute_throughput, sample_logs
from rackassign.racks import BrokerRackCache

ProgressCallback = Callable[[str, int, int], None]
"""Told what is being done, and how much of how much of it is done."""

_PATIENCE_S = 3.0
"""How long groups that are not at rest are waited for, all of them together."""

_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class SkippedGroup:
    """A group that cannot be looked at, or a broker that does not answer.

    Args:
        name: Of the group; empty if it is about more than one.
        problem: Why.
        unseen: Whether it might be a group of consumers.
    """

    name: str
    problem: str
    unseen: bool = True


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Groups as they are.

    Args:
        cluster: With all their topics.
        snapshots: In order of their names.
        skipped: What could not be looked at.
    """

    cluster: ObservedCluster
    snapshots: tuple[Snapshot, ...]
    skipped: tuple[SkippedGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """Groups, judged.

    Args:
        cluster: With all their topics.
        inspections: In order of the groups' names.
        skipped: What could not be looked at.
        measured: What is written to the topics.
    """

    cluster: ObservedCluster
    inspections: tuple[GroupAnalysis, ...]
    skipped: tuple[SkippedGroup, ...]
    measured: Throughput


class GroupCollector:
    """Looks at groups, again and again if that is wanted, and remembers the racks of brokers that go.

    Args:
        admin: That nobody else uses meanwhile.
        racks: Of members that send none.
    """

    def __init__(self, admin: KafkaAdminClient, racks: RackMap | None = None) -> None:
        self._admin = admin
        self._map = racks or RackMap()
        self._memory = BrokerRackCache()
        self._logs: LogSamples | None = None

    def snapshot(self, names: Sequence[str] | None, told: ProgressCallback = lambda *_: None) -> ClusterSnapshot:
        """Describe groups.

        Args:
            names: Of the groups; None for all there are.
            told: Told how far it is.

        Raises:
            ConfigError: A group that was asked for does not exist, or is not one of consumers.
            KafkaError: If nothing at all can be seen.
        """
        odd: list[SkippedGroup] = []
        live = self._described(self._all(odd) if names is None else list(names), odd, told, all_=names is None)
        topics = frozenset[str]().union(*map(topics_of, live))
        cluster = describe_cluster(self._admin, topics, self._memory)
        snapshots = tuple(snapshot(group, cluster.topology, self._map) for group in sorted(live, key=lambda g: g.name))
        return ClusterSnapshot(cluster, snapshots, tuple(odd))

    def report(
        self, names: Sequence[str] | None, *, interval_s: float = 0.0, told: ProgressCallback = lambda *_: None
    ) -> ClusterReport:
        """Describe groups, measure what is written to their topics, and judge them as they are then.

        Args:
            names: Of the groups; None for all there are.
            interval_s: How long to measure; 0 for not at all.
            told: Told how far it is.

        Raises:
            ConfigError: As for `snapshot`.
            KafkaError: The same.
        """
        shots, measured = self.measure(names, interval_s=interval_s, told=told)
        inspections = []
        for i, shot in enumerate(shots.snapshots):
            told("Working out what each group could read", i, len(shots.snapshots))
            inspections.append(inspect(shot, shots.cluster, measured))
        return ClusterReport(shots.cluster, tuple(inspections), shots.skipped, measured)

    def measure(
        self, names: Sequence[str] | None, *, interval_s: float = 0.0, told: ProgressCallback = lambda *_: None
    ) -> tuple[ClusterSnapshot, Throughput]:
        """Describe groups and measure what is written to their topics; takes the arguments of `report`."""
        shots = self.snapshot(names, told)
        if not interval_s or not shots.snapshots:
            return shots, Throughput()
        measured = self._measured(shots.cluster, interval_s, told)
        # What is judged is what is there now.
        return self.snapshot(names, told), measured

    def _all(self, odd: list[SkippedGroup]) -> list[str]:
        """Return the names of all groups of consumers; others are odd, and so is a broker that does not answer."""
        kinds: dict[str, str] = {}
        failed: list[KafkaError] = []
        brokers = [broker.id for broker in list_brokers(self._admin) if not broker.fenced]

        def ask(broker: int) -> None:
            try:
                kinds.update(list_groups_on(self._admin, broker))
            except KafkaError as error:
                failed.append(error)
                odd.append(SkippedGroup("", f"broker {broker} does not list its groups: {type(error).__name__}"))

        for broker in brokers:
            ask(broker)
        if failed and len(failed) == len(brokers):
            raise failed[0]
        if not can_describe_cluster(self._admin):
            odd.append(
                SkippedGroup(
                    "", "groups that may not be described are not listed: not allowed: DESCRIBE on the cluster"
                )
            )
        for name, kind in sorted(kinds.items()):
            if kind not in {"consumer", ""}:
                odd.append(
                    SkippedGroup(
                        name, f"not a group of consumers but of type {kind!r}, which is not supported", unseen=False
                    )
                )
        return sorted(name for name, kind in kinds.items() if kind in {"consumer", ""})

    def _described(
        self, names: list[str], odd: list[SkippedGroup], told: ProgressCallback, *, all_: bool
    ) -> list[GroupDescription]:
        """Describe groups one by one, those that are in a rebalance once more until they are over it."""
        calls = GroupAdmin(self._admin)
        found: dict[str, GroupDescription] = {}
        restless: Mapping[str, str] = {}
        until = time.monotonic() + _PATIENCE_S
        left: Iterable[str] = names
        while left:
            restless = {}
            for name in left:
                told("Describing groups", len(found), len(names))
                try:
                    group = describe_group(calls, name)
                except (ConfigError, KafkaError) as error:
                    if not all_:
                        raise
                    # One may be gone since it was listed; and no odd one shall spoil the others.
                    odd.append(SkippedGroup(name, str(error) or type(error).__name__))
                    continue
                if group.is_visible:
                    found[name] = group
                if not group.is_stable:
                    restless[name] = group.state
            if not restless or time.monotonic() > until:
                break
            left = list(restless)
            time.sleep(_PAUSE_S)
        odd.extend(
            SkippedGroup(name, f"in a rebalance ({state}), so its members are not shown")
            for name, state in restless.items()
            if name not in found
        )
        return list(found.values())

    def _measured(self, cluster: ObservedCluster, interval_s: float, told: ProgressCallback) -> Throughput:
        """Measure from the last survey on; the first one looks twice."""
        before = self._logs or sample_logs(self._admin, cluster)
        begin = time.monotonic()
        while (passed := time.monotonic() - begin) < interval_s:
            told("Measuring what is written", int(passed), round(interval_s))
            time.sleep(min(1.0, interval_s - passed))
        self._logs = sample_logs(self._admin, cluster)
        return compute_throughput(before, self._logs)
