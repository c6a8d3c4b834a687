"""Checks of replica placement, computed from one description of the cluster without any request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

from rackassign.model import Broker, Partition, TopicPartition
from rackassign.placement.cluster_state import ClusterState, Throttles
from rackassign.solver.placement import Constraints, bounds_of
from rackassign.text import counted, join_ids

Kind = Literal[
    "no-leader",
    "under-min-isr",
    "at-min-isr",
    "min-isr-above-rf",
    "min-isr-is-rf",
    "offline-replica",
    "under-replicated",
    "rf-below",
    "rf-above",
    "shared-rack",
    "leader-not-preferred",
    "broker-without-rack",
    "broker-fenced",
    "broker-empty",
    "broker-silent",
    "broker-unknown",
    "throttle-left",
    "in-flight",
    "placeholder",
    "views-differ",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem.

    Args:
        kind: Machine-readable kind.
        problem: Description of the problem.
        advice: What to do.
        partitions: Affected partitions.
        brokers: IDs of the affected brokers.
        topics: Affected topics, where single partitions are not affected.
    """

    kind: Kind
    problem: str
    advice: str
    partitions: tuple[TopicPartition, ...] = ()
    brokers: tuple[int, ...] = ()
    topics: tuple[str, ...] = ()


class Load(NamedTuple):
    """Load of a broker or a rack."""

    leaders: int
    replicas: int
    # Of all leaders, 0 to 1, which an outage would move, and of all replicas.
    leader_share: float
    replica_share: float


@dataclass(frozen=True, slots=True)
class Audit:
    """Result of an audit."""

    # The worst first.
    findings: tuple[Finding, ...]
    # Including brokers without any load. None is the key of brokers without a rack or of unknown rack.
    by_broker: dict[int, Load]
    by_rack: dict[str | None, Load]
    # Without topics that may not be described.
    topics: int
    partitions: int

    @property
    def is_consistent(self) -> bool:
        """Whether brokers agree on the metadata."""
        return all(finding.kind != "views-differ" for finding in self.findings)


class _Place(NamedTuple):
    """A partition with all that is known about it."""

    at: TopicPartition
    partition: Partition
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]
    least: int | None

    @property
    def rf(self) -> int:
        return len(set(self.partition.replicas))


def audit(
    state: ClusterState,
    *,
    want_rf: int | None = None,
    plans: Mapping[TopicPartition, tuple[int, ...]] | None = None,
    all_topics: bool = True,
) -> Audit:
    """Check the replica placement of a cluster.

    Args:
        state: State of the cluster. Partitions in reassignment are exempt from checks of what a reassignment changes. A
            replica on a broker that is no longer registered counts in the last known rack of that broker.
        want_rf: Expected replication factor; None for any.
        plans: Replica lists of partitions with placeholders (negative numbers) for brokers to come.
        all_topics: Whether the state has all topics; otherwise a broker without replicas may have others.
    """
    tps = list(_places(state))
    still = [tp for tp in tps if tp.at not in state.in_flight]
    racks = state.racks()
    findings = (
        *_metadata_findings(state),
        *_in_sync_findings(tps, still),
        *_min_isr_findings(still),
        *_layout_findings(still, state, want_rf),
        *_broker_findings(state, tps, all_topics=all_topics),
        *_progress_findings(state),
        *_placeholder_findings(state, plans or {}),
    )
    everywhere = {**state.gone, **racks}
    by_broker = _loads(tps, lambda broker: broker, (b.id for b in state.brokers))
    by_rack: dict[str | None, Load] = _loads(tps, everywhere.get, sorted(set(racks.values())))
    return Audit(findings, by_broker, by_rack, len(state.topics), len(tps))


def _places(state: ClusterState) -> Iterator[_Place]:
    for name, topic in state.topics.items():
        rows = zip(topic.partitions, topic.in_sync, topic.offline, strict=True)
        for i, (partition, in_sync, offline) in enumerate(rows):
            yield _Place(TopicPartition(name, i), partition, in_sync, offline, state.min_isr.get(name))


def _metadata_findings(state: ClusterState) -> Iterator[Finding]:
    if state.differing:
        count = counted(len(state.differing), "topic")
        yield Finding(
            "views-differ",
            f"brokers keep reporting different metadata of {count}: one of them lags behind",
            "wait until the brokers have caught up, and repeat the audit",
            topics=state.differing,
        )


def _found(
    kind: Kind, tps: list[_Place], describe: Callable[[str], str], advice: str, wrong: Callable[[_Place], bool]
) -> Iterator[Finding]:
    bad = [tp for tp in tps if wrong(tp)]
    if bad:
        yield Finding(kind, describe(counted(len(bad), "partition")), advice, tuple(tp.at for tp in bad))


def _in_sync_findings(tps: list[_Place], still: list[_Place]) -> Iterator[Finding]:
    yield from _found(
        "no-leader",
        tps,
        lambda n: f"{n} without a leader: clients can neither read nor write",
        "bring back the brokers that have its replicas",
        lambda p: p.partition.leader is None,
    )
    yield from _found(
        "under-min-isr",
        tps,
        lambda n: f"{n} with fewer in-sync replicas than min.insync.replicas: writes with acks=all fail",
        "bring the missing brokers back",
        lambda p: p.least is not None and len(p.in_sync) < min(p.least, p.rf),
    )
    yield from _found(
        "at-min-isr",
        still,
        lambda n: (
            f"{n} with replicas missing and exactly min.insync.replicas in sync: if one more is missing, writes with"
            " acks=all fail"
        ),
        "bring the missing brokers back",
        lambda p: p.least is not None and len(p.in_sync) == p.least < p.rf,
    )
    yield from _found(
        "offline-replica",
        tps,
        lambda n: f"{n} with a replica on an offline broker or disk",
        "bring it back",
        lambda p: bool(p.offline),
    )
    yield from _found(
        "under-replicated",
        still,
        lambda n: f"{n} with a replica that is online and not in sync",
        "if that lasts, check the broker that lags behind",
        lambda p: bool(set(p.partition.replicas) - set(p.in_sync) - set(p.offline)),
    )


# Without --topic, --replication-factor would also take replicas away from topics that have more, and Kafka's own topics
# would keep theirs.
def _min_isr_findings(tps: list[_Place]) -> Iterator[Finding]:
    yield from _found(
        "min-isr-above-rf",
        tps,
        lambda n: (
            f"{n} with min.insync.replicas above the replication factor: brokers that limit it to the replication"
            " factor (4.3 does) require all replicas, older ones refuse every write with acks=all"
        ),
        "lower min.insync.replicas, or add replicas: `reassign plan --topic TOPIC --replication-factor N`",
        lambda p: p.least is not None and p.least > p.rf,
    )
    yield from _found(
        "min-isr-is-rf",
        tps,
        lambda n: f"{n} with min.insync.replicas equal to the replication factor: one offline broker stops writes",
        "lower min.insync.replicas, or add a replica: `reassign plan --topic TOPIC --replication-factor N`",
        lambda p: p.least is not None and p.least == p.rf > 1,
    )


def _layout_findings(tps: list[_Place], state: ClusterState, want_rf: int | None) -> Iterator[Finding]:
    if want_rf is not None:
        yield from _found(
            "rf-below",
            tps,
            lambda n: f"{n} with fewer than {want_rf} replicas",
            f"`reassign plan --topic TOPIC --replication-factor {want_rf}`",
            lambda p: p.rf < want_rf,
        )
        yield from _found(
            "rf-above",
            tps,
            lambda n: f"{n} with more than {want_rf} replicas",
            f"`reassign plan --topic TOPIC --replication-factor {want_rf}`",
            lambda p: p.rf > want_rf,
        )
    online = {broker.id for broker in state.brokers if not broker.fenced}
    everywhere = {**state.gone, **state.racks()}
    yield from _found(
        "shared-rack",
        tps,
        lambda n: f"{n} with more replicas in a rack than in an even spread over the racks: an outage affects several",
        "`reassign plan` moves as few replicas as possible",
        lambda p: _shares_a_rack(p, everywhere, online),
    )
    yield from _found(
        "leader-not-preferred",
        tps,
        lambda n: f"{n} not led by the preferred leader",
        "`balance-leaders` elects preferred leaders",
        lambda p: p.partition.leader is not None and p.partition.leader != p.partition.replicas[0],
    )


def _shares_a_rack(tp: _Place, racks: Mapping[int, str], online: Collection[int]) -> bool:
    """Return whether a reassignment would spread the replicas over other racks, by the same bounds.

    A broker that is offline can get no replica; one that it already has counts.
    """
    replicas = set(tp.partition.replicas).intersection(racks)
    used = [racks[broker] for broker in replicas]
    if len(set(used)) == len(used):
        return False
    free = Counter(racks[broker] for broker in replicas.union(online) if broker in racks)
    numbers = {rack: number for number, rack in enumerate(sorted(free))}
    bounds = bounds_of(len(used), [free[rack] for rack in numbers], Constraints())
    return not bounds.allow(numbers[rack] for rack in used)


def _broker_findings(state: ClusterState, tps: list[_Place], *, all_topics: bool) -> Iterator[Finding]:
    without = tuple(broker.id for broker in state.brokers if broker.rack is None)
    if without and len(without) < len(state.brokers):
        yield Finding(
            "broker-without-rack",
            f"brokers without broker.rack: {join_ids(without)}; the controller treats them as one more rack, which"
            " attracts replicas",
            "set broker.rack and restart",
            brokers=without,
        )
    elif without:
        yield Finding(
            "broker-without-rack", "no broker has a rack", "set broker.rack and restart them", brokers=without
        )
    fenced = tuple(broker.id for broker in state.brokers if broker.fenced)
    if fenced:
        down = sorted(set(state.racks().values()) - {b.rack for b in state.brokers if not b.fenced and b.rack})
        wait = f"wait until rack {', '.join(down)} is back, whose replicas then catch up" if down else "bring them back"
        yield Finding(
            "broker-fenced",
            f"brokers that are offline or fenced: {join_ids(fenced)}",
            f"{wait}; remove only those that will not come back: `reassign plan --remove-broker ID`",
            brokers=fenced,
        )
    if all_topics and (found := empty_brokers(state.brokers, (tp.partition.replicas for tp in tps))):
        empty, share = found
        yield Finding(
            "broker-empty",
            f"brokers without replicas: {join_ids(empty)}",
            f"`reassign plan --rebalance` copies about {counted(share, 'replica')} to each",
            brokers=empty,
        )
    if state.silent:
        yield Finding(
            "broker-silent",
            f"brokers that are registered as online and do not respond: {join_ids(state.silent)}",
            "check them, and repeat the audit",
            brokers=state.silent,
        )
    known = {broker.id for broker in state.brokers}
    unknown = tuple(sorted({replica for tp in tps for replica in tp.partition.replicas} - known))
    if unknown:
        named = (f"{broker} (in {state.gone[broker]})" if broker in state.gone else str(broker) for broker in unknown)
        yield Finding(
            "broker-unknown",
            f"replicas on brokers that are not (or no longer) registered: {', '.join(named)}",
            "before Kafka 4.0 they may only be offline: bring those back; `reassign plan` replaces the others",
            brokers=unknown,
        )


def empty_brokers(brokers: Iterable[Broker], lists: Iterable[Collection[int]]) -> tuple[tuple[int, ...], int] | None:
    """Return the online brokers without replicas, and the even share of each; None if that is one at most."""
    online, held = {broker.id for broker in brokers if not broker.fenced}, Counter(b for row in lists for b in row)
    empty, share = tuple(sorted(online - held.keys())), held.total() // max(1, len(online))
    return (empty, share) if empty and share > 1 else None


def _progress_findings(state: ClusterState) -> Iterator[Finding]:
    throttles = state.throttles
    if not state.in_flight and throttles != Throttles():
        slowed = [counted(len(throttles.topics), "topic")] if throttles.topics else []
        slowed += [f"broker {broker}" for broker in throttles.brokers]
        slowed += ["all brokers"] if throttles.everywhere else []
        yield Finding(
            "throttle-left",
            f"a replication throttle is set for {', '.join(slowed)}, but no reassignment is in progress",
            "`reassign apply` or `reassign rollback` removes the throttle of a plan; remove others with kafka-configs",
            brokers=throttles.brokers,
            topics=throttles.topics,
        )
    if state.in_flight:
        yield Finding(
            "in-flight",
            f"{counted(len(state.in_flight), 'partition')} being reassigned",
            "wait until they complete; until then these partitions are not checked",
            tuple(sorted(state.in_flight)),
        )


def _placeholder_findings(state: ClusterState, plans: Mapping[TopicPartition, tuple[int, ...]]) -> Iterator[Finding]:
    waiting: dict[TopicPartition, int] = {}
    for tp, row in sorted(plans.items()):
        topic = state.topics.get(tp.topic)
        if topic is None or tp.partition >= len(topic.partitions):
            continue
        # A topic that was deleted and created again, or whose replicas were changed since, has nothing to do with the
        # plan.
        there = {broker for broker in row if broker >= 0}
        if there == set(topic.partitions[tp.partition].replicas):
            waiting[tp] = len(row) - len(there)
    if waiting:
        replicas = sum(waiting.values())
        yield Finding(
            "placeholder",
            f"{counted(len(waiting), 'partition')} with {counted(replicas, 'replica')} that"
            f" {'waits' if replicas == 1 else 'wait'} for a broker",
            "add brokers, then run `reassign plan`; to drop the placeholders, run"
            " `reassign plan --topic TOPIC --replication-factor N` with the current replication factor",
            tuple(waiting),
        )


K = TypeVar("K")


def _loads(tps: list[_Place], key: Callable[[int], K], known: Iterable[K]) -> dict[K, Load]:
    leaders: Counter[K] = Counter()
    replicas: Counter[K] = Counter()
    for tp in tps:
        if tp.partition.leader is not None:
            leaders[key(tp.partition.leader)] += 1
        replicas.update(key(broker) for broker in set(tp.partition.replicas))
    led, held = sum(leaders.values()) or 1, sum(replicas.values()) or 1
    names = dict.fromkeys((*known, *replicas))
    return {name: Load(leaders[name], replicas[name], leaders[name] / led, replicas[name] / held) for name in names}
