"""The examination of one group: observe it, recover it if it is wedged and that is requested, and check it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from kafka import KafkaAdminClient

from rackassign.admin.admin_client import AuthorizationError
from rackassign.admin.describe import UNCLEAN_ELECTION, topic_configs
from rackassign.admin.groups import GroupAdmin
from rackassign.assignor.standby import NAME as STANDBY
from rackassign.assignor.standby import default_changelog
from rackassign.locality import Locality
from rackassign.monitoring.analysis import current_reads
from rackassign.monitoring.cluster import ObservedCluster, describe_cluster
from rackassign.monitoring.groups import (
    BrokerDescription,
    GroupDescription,
    GroupObservation,
    MemberDescription,
    watch,
)
from rackassign.monitoring.health import Finding, changelog_findings, findings, may_not_settle
from rackassign.monitoring.migration import MigrationStep, migration_step
from rackassign.monitoring.rack_map import RackMap
from rackassign.monitoring.snapshot import snapshot, topics_of
from rackassign.monitoring.traffic import count_locality
from rackassign.monitoring.wedged_group import RecoveryResult, is_wedged, recover
from rackassign.racks import BrokerRackCache


def _with_unlisted(cluster: ObservedCluster) -> tuple[BrokerDescription, ...]:
    """Return all brokers with those that only the replicas of the group's topics show: older clusters list no dead one.

    Topics that may not be described are left out.
    """
    listed = {broker.id for broker in cluster.brokers}
    topics = cluster.topology.topics.values()
    hosts = {replica for partitions in topics for partition in partitions for replica in partition.replicas}
    return (*cluster.brokers, *(BrokerDescription(broker, None, fenced=True) for broker in sorted(hosts - listed)))


def _unclean_changelogs(admin: KafkaAdminClient, group: GroupDescription) -> list[str]:
    """Return the changelogs of a group with state that may lose their last records; none if that may not be read.

    Looked at are those with the names that members choose by default.
    """
    if group.strategy != STANDBY:
        return []
    names = [default_changelog(group.name, topic) for topic in topics_of(group)]
    with suppress(AuthorizationError):
        configs = topic_configs(admin, names, [UNCLEAN_ELECTION])
        return [name for name, values in configs.items() if values[UNCLEAN_ELECTION] == "true"]
    return []


@dataclass(frozen=True, slots=True)
class Examination:
    """A group that was examined.

    Args:
        group: The group, as observed last.
        findings: Its problems; those that keep it from working come first.
        migration: Progress of its migration to `cooperative-sticky`.
        recovery: Members that were removed to recover it.
        locality: The partitions that its members have, by whether they are read in the reader's rack now.
        missing: Topics that cannot be described, each with the reason; `locality` is without them.
    """

    group: GroupDescription
    findings: tuple[Finding, ...]
    migration: MigrationStep
    recovery: RecoveryResult
    locality: Locality
    missing: Mapping[str, str] = field(default_factory=dict)


def examine(
    admin: KafkaAdminClient,
    name: str,
    *,
    observe_s: float,
    fix: bool = False,
    watching: Callable[[], None] = lambda: None,
    report_removed: Callable[[MemberDescription], None] = lambda _: None,
) -> Examination:
    """Examine a group and the brokers. Nothing is changed unless the group is wedged and `fix` is set.

    Args:
        admin: Admin client.
        name: Name of the group.
        observe_s: Seconds to observe a group that is not stable or may not stay so.
        fix: Whether to remove members of a wedged group until it continues.
        watching: Called before each observation that takes time.
        report_removed: Called with each member that was removed, also if an error follows.

    Raises:
        ConfigError: The group does not exist.
        KafkaError: Raised by the admin client.
    """
    calls = GroupAdmin(admin)

    def observe() -> tuple[GroupObservation, bool | None]:
        seen = watch(calls, name, observe_s, suspicious=may_not_settle, waiting=watching)
        # Only a rebalance that does not end can be one that the broker cannot complete.
        return seen, seen.preparing and is_wedged(calls, name)

    seen, wedged = observe()
    recovery = RecoveryResult()
    if wedged and fix:
        recovery = recover(admin, calls, name, report_removed)
        # The group is checked as it is now, since it may have other problems.
        seen, wedged = observe()
    cluster = describe_cluster(admin, topics_of(seen.group), BrokerRackCache())
    found = (
        *findings(seen, _with_unlisted(cluster), wedged=wedged),
        *changelog_findings(_unclean_changelogs(admin, seen.group)),
    )
    reads = current_reads(snapshot(seen.group, cluster.topology, RackMap()), cluster)
    return Examination(seen.group, found, migration_step(seen.group), recovery, count_locality(reads), cluster.missing)
