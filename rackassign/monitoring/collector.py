"""Collection of everything about some groups, with as few requests as possible."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from rackassign.admin.describe import can_describe_cluster, cluster_id, list_brokers, list_groups_on
from rackassign.admin.groups import GroupAdmin
from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.monitoring.analysis import GroupAnalysis, SortKey, inspect
from rackassign.monitoring.live_groups import (
    GroupDescription,
    RackMap,
    Snapshot,
    assigned_partitions,
    describe_group,
    snapshot,
    topics_of,
    with_own_assignor,
)
from rackassign.monitoring.read_rates import Measurement, RateMeter
from rackassign.monitoring.throughput import Throughput
from rackassign.monitoring.traffic import ObservedCluster, TrafficMatrix, describe_cluster, total_traffic
from rackassign.racks import BrokerRackCache
from rackassign.text import describe_error, name_error
from rackassign.util.callbacks import Progress, ProgressCallback, ignore_progress

SHORTEST_S = 1.0
"""Shortest interval of repeated reports: the brokers have other work to do."""

UNMEASURED_S = 10.0
"""Seconds between repeated reports that measure nothing."""

_PATIENCE_S = 3.0
"""How long to wait for groups in a rebalance, in total."""

_PAUSE_S = 0.1

_FAILED = 2
"""Reports in a row that fail until a new connection is made. One fails also if the coordinator of a group moves."""


@dataclass(frozen=True, slots=True)
class SkippedGroup:
    """A group that cannot be described, or a broker that does not respond.

    Args:
        name: Name of the group; empty if more than one is affected.
        problem: Reason.
        unseen: Whether it may be a consumer group.
        unlisted: Whether the names of groups are not known because of this.
    """

    name: str
    problem: str
    unseen: bool = True
    unlisted: bool = False


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Groups as they are.

    Args:
        cluster: Cluster with all their topics.
        snapshots: Snapshots by group name.
        skipped: Groups that could not be described.
    """

    cluster: ObservedCluster
    snapshots: tuple[Snapshot, ...]
    skipped: tuple[SkippedGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """Groups with their analysis.

    Args:
        cluster: Cluster with all their topics.
        inspections: Analyses, by group name unless sorted otherwise.
        skipped: Groups that could not be described.
        measured: Throughput of the topics.
        duration_s: Time it took to make the report, with the time between the two samples.
    """

    cluster: ObservedCluster
    inspections: tuple[GroupAnalysis, ...]
    skipped: tuple[SkippedGroup, ...]
    measured: Throughput
    duration_s: float = 0.0

    @property
    def flows(self) -> TrafficMatrix:
        """Traffic between racks of all groups together."""
        return total_traffic(found.flows for found in self.inspections)

    @property
    def savings_bytes_s(self) -> tuple[float, float]:
        """Sum of the groups' `savings_bytes_s`."""
        bounds = [found.savings_bytes_s for found in self.inspections]
        return sum(least for least, _ in bounds), sum(most for _, most in bounds)

    def sorted_by(self, by: SortKey) -> ClusterReport:
        """Return the report with its groups in another order."""
        return replace(self, inspections=tuple(sorted(self.inspections, key=lambda found: found.sort_key(by))))


class GroupCollector:
    """Describes groups, repeatedly if needed, and remembers the racks of brokers that disappear.

    Args:
        admin: Admin client that is not used by another thread meanwhile.
        racks: Racks of members that report none.
    """

    def __init__(self, admin: KafkaAdminClient, racks: RackMap | None = None) -> None:
        self._admin = admin
        self._map = racks or RackMap()
        self._memory = BrokerRackCache()
        self._meter = RateMeter(admin)
        self._cluster_id: str | None = None
        self._seen: set[str] = set()

    def use(self, admin: KafkaAdminClient) -> None:
        """Use another admin client of the same cluster from now on; what is remembered stays."""
        self._admin = self._meter.admin = admin

    def list_topics(self) -> list[str]:
        """Return the names of all topics."""
        found: list[str] = self._admin.list_topics()
        return found

    def snapshot(
        self,
        names: Sequence[str] | None,
        report_progress: ProgressCallback = ignore_progress,
        *,
        committed: bool = False,
        topics: Collection[str] = (),
    ) -> ClusterSnapshot:
        """Describe groups.

        Args:
            names: Names of the groups; None for all.
            report_progress: Called with the progress.
            committed: Whether the cluster also has the topics of which groups without members have committed offsets.
            topics: Topics that the cluster has in any case, if they exist.

        Raises:
            ConfigError: A requested group that was never described does not exist, or is not a consumer group; or none
                of the requested groups exists any more.
            KafkaError: Nothing at all could be described.
        """
        skipped: list[SkippedGroup] = []
        live = self._described(
            self._all(skipped) if names is None else list(names), skipped, report_progress, all_=names is None
        )
        wanted = frozenset(topics).union(*map(topics_of, live))
        if committed:
            wanted |= self._committed_topics(group.name for group in live if not group.members)
        if self._cluster_id is None:
            self._cluster_id = cluster_id(self._admin)
        cluster = replace(describe_cluster(self._admin, wanted, self._memory), id=self._cluster_id)
        named = (with_own_assignor(group, cluster.brokers) for group in sorted(live, key=lambda g: g.name))
        snapshots = tuple(snapshot(group, cluster.topology, self._map) for group in named)
        return ClusterSnapshot(cluster, snapshots, tuple(skipped))

    def _committed_topics(self, names: Iterable[str]) -> frozenset[str]:
        calls, found = GroupAdmin(self._admin), set[str]()
        for name in names:
            # Offsets that are not available are reported by the measurement.
            with suppress(KafkaError):
                found |= {tp.topic for tp in calls.committed_offsets(name)}
        return frozenset(found)

    def report(
        self,
        names: Sequence[str] | None,
        *,
        interval_s: float = 0.0,
        report_progress: ProgressCallback = ignore_progress,
        topics: Collection[str] = (),
        on_sample: Callable[[], None] = lambda: None,
    ) -> ClusterReport:
        """Describe groups, measure what they read, and analyze them as they are after that.

        Args:
            names: Names of the groups; None for all.
            interval_s: How long to measure; 0 to not measure.
            report_progress: Called with the progress.
            topics: Topics that are measured even if no group reads them.
            on_sample: Called beside each sample of the logs.

        Raises:
            ConfigError: As for `snapshot`.
            KafkaError: As for `snapshot`.
        """
        begin = time.monotonic()
        shots, measured = self.measure(
            names, interval_s=interval_s, report_progress=report_progress, topics=topics, on_sample=on_sample
        )
        inspections = []
        for i, shot in enumerate(shots.snapshots):
            report_progress(Progress("Working out what each group could read", i, len(shots.snapshots), unit=""))
            inspections.append(
                inspect(shot, shots.cluster, measured.of_group(shot.live.name, assigned_partitions(shot)))
            )
        seconds = time.monotonic() - begin
        return ClusterReport(shots.cluster, tuple(inspections), shots.skipped, measured.written, seconds)

    def measure(
        self,
        names: Sequence[str] | None,
        *,
        interval_s: float = 0.0,
        report_progress: ProgressCallback = ignore_progress,
        topics: Collection[str] = (),
        on_sample: Callable[[], None] = lambda: None,
    ) -> tuple[ClusterSnapshot, Measurement]:
        """Describe groups and measure what they read, with the arguments of `report`."""
        shots = self.snapshot(names, report_progress, committed=bool(interval_s), topics=topics)
        if not interval_s or not (shots.snapshots or topics):
            return shots, Measurement()
        names_seen = [shot.live.name for shot in shots.snapshots]
        before = self._meter.last
        measured = self._meter.measure(shots.cluster, names_seen, interval_s, report_progress, on_sample)
        try:
            # The analysis uses the state after the measurement.
            return self.snapshot(names, report_progress, topics=topics), measured
        except BaseException:
            # The next measurement contains this one, or its bytes would be in no report.
            self._meter.last = before
            raise

    def _all(self, skipped: list[SkippedGroup]) -> list[str]:
        """Return the names of all consumer groups; skip other groups, and brokers that do not respond."""
        kinds: dict[str, str] = {}
        failed: list[KafkaError] = []
        brokers = [broker.id for broker in list_brokers(self._admin) if not broker.fenced]

        def ask(broker: int) -> None:
            try:
                kinds.update(list_groups_on(self._admin, broker))
            except KafkaError as error:
                failed.append(error)
                problem = f"broker {broker} does not list its groups: {name_error(error)}"
                skipped.append(SkippedGroup("", problem, unlisted=True))

        for broker in brokers:
            ask(broker)
        if failed and len(failed) == len(brokers):
            raise failed[0]
        if not can_describe_cluster(self._admin):
            skipped.append(
                SkippedGroup(
                    "", "groups that may not be described are not listed: not allowed: DESCRIBE on the cluster"
                )
            )
        for name, kind in sorted(kinds.items()):
            if kind not in {"consumer", ""}:
                skipped.append(
                    SkippedGroup(
                        name, f"not a group of consumers but of type {kind!r}, which is not supported", unseen=False
                    )
                )
        return sorted(name for name, kind in kinds.items() if kind in {"consumer", ""})

    def _described(
        self, names: list[str], skipped: list[SkippedGroup], report_progress: ProgressCallback, *, all_: bool
    ) -> list[GroupDescription]:
        """Describe groups one by one; repeat those in a rebalance until it is over."""
        calls = GroupAdmin(self._admin)
        descriptions: dict[str, GroupDescription] = {}
        rebalancing: Mapping[str, str] = {}
        failure: ConfigError | KafkaError | None = None
        until = time.monotonic() + _PATIENCE_S
        left: Iterable[str] = names
        while left:
            rebalancing = {}
            for name in left:
                report_progress(Progress("Describing groups", len(descriptions), len(names), unit=""))
                try:
                    group = describe_group(calls, name)
                except (ConfigError, KafkaError) as error:
                    if not all_ and name not in self._seen:
                        raise
                    # A group may be deleted since it was listed, and no single group may prevent the description of the
                    # others.
                    if name not in descriptions:
                        skipped.append(SkippedGroup(name, describe_error(error)))
                    failure = error
                    continue
                if not all_:
                    # Of all groups, none is asked for by its name; a cluster may have others every day.
                    self._seen.add(name)
                if group.is_visible:
                    descriptions[name] = group
                if not group.is_stable:
                    rebalancing[name] = group.state
            if not rebalancing or time.monotonic() > until:
                break
            left = list(rebalancing)
            time.sleep(_PAUSE_S)
        if not all_ and failure is not None and len({odd.name for odd in skipped}) == len(names):
            raise failure
        skipped.extend(
            SkippedGroup(name, f"in a rebalance ({state}), so its members are not shown")
            for name, state in rebalancing.items()
            if name not in descriptions
        )
        return list(descriptions.values())


def period_s(interval_s: float) -> float:
    """Return the seconds from one repeated report to the next, for an interval of measurement; 0 is none."""
    return max(interval_s, SHORTEST_S) if interval_s else UNMEASURED_S


def collect_repeatedly(
    collector: GroupCollector,
    names: Sequence[str] | None,
    *,
    interval_s: float,
    looks: int = 0,
    reconnect: Callable[[], None] | None = None,
    report_progress: ProgressCallback = ignore_progress,
    all_topics: bool = False,
) -> Iterator[ClusterReport | str]:
    """Report groups repeatedly, each time measured since the last report; yield the reason of a report that failed.

    Args:
        collector: Collector of the reports.
        names: Names of the groups; None for all.
        interval_s: Seconds of each report, at least 1; 0 measures nothing, and reports every `UNMEASURED_S`.
        looks: Number of reports; 0 for no end.
        reconnect: Connects the collector again; called after the second report in a row that failed, and each further
            one. An admin client of kafka-python (3.0.12) refuses each request to a broker that has once rejected its
            login, and never looks the addresses up again from which it was started, so that some outages have no end
            for it.
        report_progress: Called with the progress of each report.
        all_topics: Whether topics that no group reads are measured as well.

    Raises:
        ConfigError: The first report finds that a group does not exist.
        KafkaError: The first report fails.
    """
    period = period_s(interval_s)
    measured_s = period if interval_s else 0.0
    failed = 0
    for look in count(1):
        begin = time.monotonic()
        try:
            topics = collector.list_topics() if all_topics and measured_s else ()
            yield collector.report(names, interval_s=measured_s, report_progress=report_progress, topics=topics)
            failed = 0
        except (ConfigError, KafkaError) as error:
            # A first report that fails is reported at once, as a wrong name or address may be the reason.
            if look == 1:
                raise
            yield f"not seen now: {describe_error(error)}"
            failed += 1
            if reconnect is not None and failed >= _FAILED and isinstance(error, KafkaError):
                # Without a connection the next report fails with the reason.
                with suppress(KafkaError, KafkaUnavailableError):
                    reconnect()
        if look == looks:
            return
        # A report that has nothing to measure is over at once.
        time.sleep(max(0.0, begin + period - time.monotonic()))
