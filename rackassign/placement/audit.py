"""What is wrong with how replicas lie, judged from one look at a cluster; nothing here asks anybody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

from rackassign.model import Partition, TopicPartition
from rackassign.placement.cluster_state import ClusterState, Throttles

Kind = Literal[
    "no-leader",
    "under-min-isr",
    "at-min-isr",
    "min-isr-above-rf",
    "min-isr-is-rf",
    "offline-replica",
    "under-replicated",
    "rf-below",
    "shared-rack",
    "leader-not-preferred",
    "broker-without-rack",
    "broker-fenced",
    "broker-silent",
    "broker-unknown",
    "throttle-left",
    "in-flight",
    "placeholder",
    "views-differ",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Args:
        kind: By which programs know it.
        problem: What is wrong, in plain words.
        advice: What to do.
        partitions: Which it is about.
        brokers: Ids of those it is about.
        topics: Names of those it is about, where it is about no single partition.
    """

    kind: Kind
    problem: str
    advice: str
    partitions: tuple[TopicPartition, ...] = ()
    brokers: tuple[int, ...] = ()
    topics: tuple[str, ...] = ()


class Load(NamedTuple):
    """What a broker, or a rack, carries.

    Args:
        leaders: Partitions it leads.
        replicas: Copies it holds.
        leader_share: Of all leaders, 0 to 1: what an outage would move.
        replica_share: Of all copies, 0 to 1.
    """

    leaders: int
    replicas: int
    leader_share: float
    replica_share: float


@dataclass(frozen=True, slots=True)
class Audit:
    """All that was found.

    Args:
        findings: What is worst comes first.
        by_broker: What each broker carries, those without anything included.
        by_rack: The same of each rack; None stands for brokers without one, or whose rack nobody knows.
        topics: How many were seen; those that may not be described are not among them.
        partitions: How many they have.
    """

    findings: tuple[Finding, ...]
    by_broker: dict[int, Load]
    by_rack: dict[str | None, Load]
    topics: int
    partitions: int

    @property
    def is_consistent(self) -> bool:
        """Whether brokers agree on what there is."""
        return all(finding.kind != "views-differ" for finding in self.findings)


class _Place(NamedTuple):
    """One partition with all that is known of it."""

    at: TopicPartition
    partition: Partition
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]
    least: int | None
    internal: bool

    @property
    def rf(self) -> int:
        return len(set(self.partition.replicas))


def audit(
    state: ClusterState, *, want_rf: int | None = None, plans: Mapping[TopicPartition, tuple[int, ...]] | None = None
) -> Audit:
    """Judge a cluster.

    Args:
        state: As it was seen. What is in flight is exempt from all that a reassignment changes. A replica on a broker
            that is no longer registered counts in the rack that broker was seen in last.
        want_rf: Copies that each partition should have; None for any number.
        plans: Where replicas of partitions are to be that wait for a broker, as placeholders (negative numbers).
    """
    places = list(_places(state))
    still = [place for place in places if place.at not in state.in_flight]
    racks = state.racks()
    findings = (
        *_of_the_views(state),
        *_of_in_sync(places, still),
        *_of_min_isr(still),
        *_of_layout(still, state, want_rf),
        *_of_brokers(state, places),
        *_of_what_goes_on(state),
        *_of_what_waits(state, plans or {}),
    )
    everywhere = {**state.gone, **racks}
    by_broker = _loads(places, lambda broker: broker, (b.id for b in state.brokers))
    by_rack: dict[str | None, Load] = _loads(places, everywhere.get, sorted(set(racks.values())))
    return Audit(findings, by_broker, by_rack, len(state.topics), len(places))


def _places(state: ClusterState) -> Iterator[_Place]:
    for name, topic in state.topics.items():
        rows = zip(topic.partitions, topic.in_sync, topic.offline, strict=True)
        for i, (partition, in_sync, offline) in enumerate(rows):
            yield _Place(TopicPartition(name, i), partition, in_sync, offline, state.min_isr.get(name), topic.internal)


def _of_the_views(state: ClusterState) -> Iterator[Finding]:
    if state.differing:
        count = _counted(len(state.differing), "topic")
        yield Finding(
            "views-differ",
            f"brokers go on saying different things of {count}: one of them is behind",
            "wait until the brokers have caught up, and look again",
            topics=state.differing,
        )


def _found(
    kind: Kind, places: list[_Place], tell: Callable[[str], str], advice: str, wrong: Callable[[_Place], bool]
) -> Iterator[Finding]:
    """Yield a finding if something is wrong with any."""
    bad = [place for place in places if wrong(place)]
    if bad:
        yield Finding(kind, tell(_counted(len(bad), "partition")), advice, tuple(place.at for place in bad))


def _thin(
    kind: Kind, places: list[_Place], tell: Callable[[str], str], advice: str, wrong: Callable[[_Place], bool]
) -> Iterator[Finding]:
    """Yield a finding that other numbers of replicas put right."""
    own = any(place.internal and wrong(place) for place in places)
    named = "; Kafka's own topics only where `--topic` names them" if own else ""
    yield from _found(kind, places, tell, advice + named, wrong)


def _of_in_sync(places: list[_Place], still: list[_Place]) -> Iterator[Finding]:
    yield from _found(
        "no-leader",
        places,
        lambda n: f"{n} without a leader: nobody can read or write there",
        "bring the brokers back that hold them",
        lambda p: p.partition.leader is None,
    )
    yield from _found(
        "under-min-isr",
        places,
        lambda n: f"{n} with fewer replicas in sync than min.insync.replicas: acks=all fails",
        "bring the missing brokers back, or replace them: `reassign plan --remove-broker ID`",
        lambda p: p.least is not None and len(p.in_sync) < min(p.least, p.rf),
    )
    yield from _found(
        "at-min-isr",
        places,
        lambda n: f"{n} with replicas missing, and just min.insync.replicas in sync: one more and acks=all fails",
        "bring the missing brokers back, or replace them: `reassign plan --remove-broker ID`",
        lambda p: p.least is not None and len(p.in_sync) == p.least < p.rf,
    )
    yield from _found(
        "offline-replica",
        places,
        lambda n: f"{n} with a replica on a broker or disk that is down",
        "bring it back, or replace the broker: `reassign plan --remove-broker ID`",
        lambda p: bool(p.offline),
    )
    yield from _found(
        "under-replicated",
        still,
        lambda n: f"{n} with a replica that is up and not in sync",
        "if that lasts, look at the broker that lags",
        lambda p: bool(set(p.partition.replicas) - set(p.in_sync) - set(p.offline)),
    )


def _of_min_isr(places: list[_Place]) -> Iterator[Finding]:
    yield from _thin(
        "min-isr-above-rf",
        places,
        lambda n: (
            f"{n} with min.insync.replicas above the number of replicas: brokers that take that number for the"
            " limit (4.3 does) ask for all replicas and no more, older ones refuse every acks=all"
        ),
        "lower min.insync.replicas, or add replicas: `reassign plan --replication-factor N`",
        lambda p: p.least is not None and p.least > p.rf,
    )
    yield from _thin(
        "min-isr-is-rf",
        places,
        lambda n: f"{n} with min.insync.replicas equal to the number of replicas: one broker down stops writing",
        "lower min.insync.replicas, or add a replica: `reassign plan --replication-factor N`",
        lambda p: p.least is not None and p.least == p.rf > 1,
    )


def _of_layout(places: list[_Place], state: ClusterState, want_rf: int | None) -> Iterator[Finding]:
    if want_rf is not None:
        yield from _thin(
            "rf-below",
            places,
            lambda n: f"{n} with fewer than {want_rf} replicas",
            f"`reassign plan --replication-factor {want_rf}`",
            lambda p: p.rf < want_rf,
        )
    there = frozenset(broker.rack for broker in state.brokers if broker.rack is not None and not broker.fenced)
    everywhere = {**state.gone, **state.racks()}
    yield from _found(
        "shared-rack",
        places,
        lambda n: f"{n} with replicas that share a rack while there are more racks: an outage takes several",
        "`reassign plan` moves as few as it takes",
        lambda p: _shares_a_rack(p, everywhere, there),
    )
    yield from _found(
        "leader-not-preferred",
        places,
        lambda n: f"{n} led by another replica than the preferred one",
        "`leaders` elects the preferred ones",
        lambda p: p.partition.leader is not None and p.partition.leader != p.partition.replicas[0],
    )


def _shares_a_rack(place: _Place, racks: Mapping[int, str], there: frozenset[str]) -> bool:
    """Tell whether another layout has fewer replicas in one rack.

    A rack none of whose brokers is up can take no replica; where one is there already, it counts.
    """
    known = [racks[broker] for broker in set(place.partition.replicas) if broker in racks]
    used = set(known)
    return len(used) < len(known) and len(used) < len(there | used)


def _of_brokers(state: ClusterState, places: list[_Place]) -> Iterator[Finding]:
    without = tuple(broker.id for broker in state.brokers if broker.rack is None)
    if without and len(without) < len(state.brokers):
        yield Finding(
            "broker-without-rack",
            f"brokers without broker.rack: {_listed(without)}; the controller takes them for one rack more, which"
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
        yield Finding(
            "broker-fenced",
            f"brokers that are down, or kept from serving: {_listed(fenced)}",
            "bring them back, or replace those that will not come back: `reassign plan --remove-broker ID`",
            brokers=fenced,
        )
    if state.silent:
        yield Finding(
            "broker-silent",
            f"brokers that are said to be up and do not answer: {_listed(state.silent)}",
            "look at them, and look again",
            brokers=state.silent,
        )
    known = {broker.id for broker in state.brokers}
    unknown = tuple(sorted({replica for place in places for replica in place.partition.replicas} - known))
    if unknown:
        named = (f"{broker} (in {state.gone[broker]})" if broker in state.gone else str(broker) for broker in unknown)
        yield Finding(
            "broker-unknown",
            f"replicas on brokers that the cluster does not know (any more): {', '.join(named)}",
            "`reassign plan` replaces them",
            brokers=unknown,
        )


def _of_what_goes_on(state: ClusterState) -> Iterator[Finding]:
    throttles = state.throttles
    if not state.in_flight and throttles != Throttles():
        slowed = [_counted(len(throttles.topics), "topic")] if throttles.topics else []
        slowed += [f"broker {broker}" for broker in throttles.brokers]
        slowed += ["all brokers"] if throttles.everywhere else []
        yield Finding(
            "throttle-left",
            f"a throttle of replication is set for {', '.join(slowed)}, and nothing is being reassigned",
            "`reassign apply` or `reassign rollback` takes away those that a repair has set; others"
            " go with kafka-configs",
            brokers=throttles.brokers,
            topics=throttles.topics,
        )
    if state.in_flight:
        yield Finding(
            "in-flight",
            f"{_counted(len(state.in_flight), 'partition')} being reassigned",
            "wait for the end of it; until then they are not judged",
            tuple(sorted(state.in_flight)),
        )


def _of_what_waits(state: ClusterState, plans: Mapping[TopicPartition, tuple[int, ...]]) -> Iterator[Finding]:
    waiting: dict[TopicPartition, int] = {}
    for place, row in sorted(plans.items()):
        topic = state.topics.get(place.topic)
        if topic is None or place.partition >= len(topic.partitions):
            continue
        # A plan of a topic that was deleted and made anew, or was given other replicas since, is none of it.
        there = {broker for broker in row if broker >= 0}
        if there == set(topic.partitions[place.partition].replicas):
            waiting[place] = len(row) - len(there)
    if waiting:
        replicas = sum(waiting.values())
        yield Finding(
            "placeholder",
            f"{_counted(len(waiting), 'partition')} with {_counted(replicas, 'replica')} that"
            f" {'waits' if replicas == 1 else 'wait'} for a broker",
            "bring brokers, then `reassign plan`; or `reassign plan --replication-factor` with the"
            " number there is, to wait no longer",
            tuple(waiting),
        )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _listed(ids: tuple[int, ...]) -> str:
    return ", ".join(map(str, ids))


K = TypeVar("K")


def _loads(places: list[_Place], key: Callable[[int], K], known: Iterable[K]) -> dict[K, Load]:
    leaders: Counter[K] = Counter()
    replicas: Counter[K] = Counter()
    for place in places:
        if place.partition.leader is not None:
            leaders[key(place.partition.leader)] += 1
        replicas.update(key(broker) for broker in set(place.partition.replicas))
    led, held = sum(leaders.values()) or 1, sum(replicas.values()) or 1
    names = dict.fromkeys((*known, *replicas))
    return {name: Load(leaders[name], replicas[name], leaders[name] / led, replicas[name] / held) for name in names}
