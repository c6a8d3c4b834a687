"""Creation of topics and partitions, which is possible while brokers are offline (KIP-409).

A KRaft controller silently places replicas on fenced brokers instead of live ones, without checking whether the
remaining ones suffice for writes. Here it is a choice, and a partition has at least as many live replicas as
`min.insync.replicas` requires. A replica that no registered broker can take becomes a *placeholder*, a negative number.
The cluster does not accept placeholders, so they stay in a state file until a broker is available (`reassignment`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, get_args

from kafka import KafkaAdminClient

from rackassign.admin.admin_client import AuthorizationError, topic_resource
from rackassign.admin.alter import RequestRejectedError, TopicAdmin
from rackassign.admin.describe import cluster_id, describe_topics_on, list_brokers, min_isr
from rackassign.admin.describe import describe_topics as described
from rackassign.errors import ConfigError, RackassignError
from rackassign.model import Broker, TopicPartition, Topology
from rackassign.placement.cluster_state import describe_cluster_state
from rackassign.placement.layout import Layout
from rackassign.placement.placer import ReplicaPlacer, ValidatedPlacer
from rackassign.placement.state_file import PlacementState
from rackassign.text import counted, short_repr

Policy = Literal["disabled", "enabled", "enabled_prefer_observed"]
"""Whether offline brokers may be used: never; if online ones do not suffice; or just like online ones."""

POLICIES: tuple[Policy, ...] = get_args(Policy)


class NotEnoughBrokersError(RackassignError):
    """Fewer brokers are online than the policy or `min.insync.replicas` requires."""


@dataclass(frozen=True, slots=True)
class KnownBroker:
    """A broker that is, or was, registered."""

    id: int
    rack: str | None = None
    online: bool = True
    # Whether the cluster accepts its ID in an assignment, online or not.
    registered: bool = True


Spread = Callable[[Sequence[KnownBroker], int], Sequence[Sequence[int]]]
"""Places all partitions with this many replicas on these brokers: a placer with all other arguments bound."""


@dataclass(frozen=True, slots=True)
class PolicyPlacement:
    """Brokers of the replicas of new partitions."""

    # Broker IDs of each partition, an online one first; negative numbers are placeholders.
    plan: tuple[tuple[int, ...], ...]
    offline: frozenset[int] = frozenset()

    def to_request(self) -> list[list[int]]:
        """Return the replica lists for the request to the cluster, without placeholders."""
        return [[broker for broker in row if broker >= 0] for row in self.plan]

    def placeholders(self) -> int:
        """Count the replicas that no broker can take yet."""
        return sum(broker < 0 for row in self.plan for broker in row)

    def under_replicated(self) -> int:
        """Count the partitions that begin with a replica missing or offline."""
        return sum(any(broker < 0 or broker in self.offline for broker in row) for row in self.plan)


def check_policy(policy: str) -> Policy:
    """Return the policy, typed; `ConfigError` lists the known ones."""
    for known in POLICIES:
        if policy == known:
            return known
    raise ConfigError(f"policy must be one of {', '.join(POLICIES)}, got {policy!r}")


def place_new(
    policy: Policy, spread: Spread, brokers: Iterable[KnownBroker], *, replicas: int, min_isr: int
) -> PolicyPlacement:
    """Place new partitions according to a policy, or raise `NotEnoughBrokersError`."""
    known = sorted(brokers, key=lambda broker: broker.id)
    online = [broker for broker in known if broker.online and broker.registered]
    required = min(min_isr, replicas)
    # No policy allows fewer than these.
    if len(online) < required:
        raise NotEnoughBrokersError(
            f"min.insync.replicas={min_isr} needs {required} online brokers, but there are {len(online)}"
        )
    if policy == "disabled" and len(online) < replicas:
        raise NotEnoughBrokersError(
            f"{replicas} replicas need as many brokers, but only {len(online)} are online;"
            " --policy enabled allows fewer"
        )
    if policy == "enabled_prefer_observed":
        rows = _as_if_up(spread, known, replicas, required)
    elif len(online) >= replicas:
        rows = [list(row) for row in spread(online, replicas)]
    else:
        rows = _completed([list(row) for row in spread(online, len(online))], known, replicas)
    up = {broker.id for broker in online}
    fewest = min((sum(broker in up for broker in row) for row in rows), default=required)
    if fewest < required:
        # The placer has left replicas without a broker, or has chosen offline brokers.
        raise NotEnoughBrokersError(
            f"min.insync.replicas={min_isr} needs {required} online replicas, but a partition has {fewest}"
        )
    plan = tuple(tuple(_live_first(row, up)) for row in rows)
    return PolicyPlacement(
        plan, frozenset(broker for row in plan for broker in row if broker >= 0 and broker not in up)
    )


def _live_first(row: list[int], up: set[int]) -> list[int]:
    """Move an online broker to the front: it becomes the leader, and the preferred one."""
    first = next(i for i, broker in enumerate(row) if broker in up)
    return [row[first], *row[:first], *row[first + 1 :]]


def _completed(rows: list[list[int]], known: Sequence[KnownBroker], replicas: int) -> list[list[int]]:
    """Add offline brokers, in racks without a replica first, and placeholders for the rest."""
    racks = {broker.id: broker.rack for broker in known}
    away = [broker.id for broker in known if broker.registered and not broker.online]
    used: Counter[int] = Counter()
    for row in rows:
        while len(row) < replicas:
            taken = {racks[broker] for broker in row if broker >= 0}
            free = [broker for broker in away if broker not in row]
            if not free:
                row.extend(range(-1, len(row) - replicas - 1, -1))
                break
            chosen = min(free, key=lambda broker: (racks[broker] in taken, used[broker], broker))
            used[chosen] += 1
            row.append(chosen)
    return rows


def _as_if_up(spread: Spread, known: Sequence[KnownBroker], replicas: int, required: int) -> list[list[int]]:
    """Place on all registered brokers, then replace offline ones until enough of each partition's are online."""
    registered = [broker for broker in known if broker.registered]
    rows = [list(row) for row in spread(registered, min(replicas, len(registered)))]
    rows = _completed(rows, known, replicas)
    up = [broker.id for broker in registered if broker.online]
    used = Counter(broker for row in rows for broker in row)
    for row in rows:
        for _ in range(required - sum(broker in up for broker in row)):
            chosen = min((broker for broker in up if broker not in row), key=lambda broker: (used[broker], broker))
            # The replica that would be usable last is replaced: a placeholder, otherwise the last offline one.
            index = max(i for i, broker in enumerate(row) if broker not in up)
            used[row[index]] -= 1
            used[chosen] += 1
            row[index] = chosen
    return rows


Keep = Callable[[Callable[[PlacementState], PlacementState]], None]
"""Changes a state file with a function of what is in it by then; raises if it cannot."""

_BAD_INPUT = frozenset(
    {"InvalidConfigurationError", "InvalidPartitionsError", "InvalidTopicError", "TopicAlreadyExistsError"}
)
"""Refusals of the request itself, independent of the cluster's state."""


@dataclass(frozen=True, slots=True)
class TopicRequest:
    """New partitions."""

    name: str
    partitions: int
    # Replicas of each; None for as many as the existing partitions have.
    replicas: int | None
    # Whether offline brokers may be used.
    policy: Policy = "disabled"
    configs: Mapping[str, str] | None = None
    # Whether to place as if brokers had no racks, and whether there may be more replicas than brokers ever seen.
    ignore_racks: bool = False
    allow_placeholders: bool = False

    def __post_init__(self) -> None:
        for name, count in (("partitions", self.partitions), ("replicas", self.replicas)):
            if count is not None and count < 1:
                raise ConfigError(f"{name} must be 1 or more, got {count}")


@dataclass(frozen=True, slots=True)
class CreateResult:
    """New partitions and their replicas."""

    name: str
    # Number of the first new partition.
    start: int
    placed: PolicyPlacement
    min_isr: int
    # What the placer does not prove, or which constraint it did not satisfy.
    notes: tuple[str, ...] = ()

    def plans(self) -> dict[TopicPartition, tuple[int, ...]]:
        return {TopicPartition(self.name, self.start + i): row for i, row in enumerate(self.placed.plan)}


def create(
    admin: KafkaAdminClient,
    wanted: TopicRequest,
    placer: ReplicaPlacer | ValidatedPlacer,
    registry: PlacementState,
    keep: Keep,
    *,
    dry: bool = False,
) -> CreateResult:
    """Create a topic; replicas without a broker are part of the result and not an error."""
    # `keep` adds the brokers and placeholders to the state file, before anything is created.
    if wanted.replicas is None:
        raise ConfigError("replicas: a new topic needs a replication factor")
    controller, validated = TopicAdmin(admin), ValidatedPlacer.of(placer)
    configs = dict(wanted.configs or {})
    cluster = cluster_id(admin)
    registry = registry.for_cluster(cluster)
    # The default of min.insync.replicas: the response to a validation of the topic contains it.
    with _input():
        least = controller.validate(wanted.name, configs).min_isr or 1
    brokers = list_brokers(admin)
    known = _observed(brokers, registry, ignore_racks=wanted.ignore_racks)
    _check_seen(wanted.replicas, known, allowed=wanted.allow_placeholders)
    _observe_load(admin, validated, brokers)
    placed = place_new(
        wanted.policy, _spread(validated, 0, wanted.partitions), known, replicas=wanted.replicas, min_isr=least
    )
    new = CreateResult(wanted.name, 0, placed, least, validated.notes)
    with _input():
        controller.validate(wanted.name, configs, placed.to_request())
        if not dry:
            keep(lambda seen: seen.for_cluster(cluster).with_brokers(brokers).with_placeholders(new.plans()))
            controller.create(wanted.name, configs, placed.to_request())
    return new


def add_partitions(
    admin: KafkaAdminClient,
    wanted: TopicRequest,
    placer: ReplicaPlacer | ValidatedPlacer,
    registry: PlacementState,
    keep: Keep,
    *,
    dry: bool = False,
) -> CreateResult:
    """Add partitions to a topic; the arguments and errors are those of `create`."""
    if wanted.configs:
        raise ConfigError("configs are for new topics only: the configurations of an existing topic stay as they are")
    if wanted.allow_placeholders:
        # The cluster refuses partitions with fewer replicas than the others have.
        raise ConfigError(
            "allow_placeholders is for new topics only: new partitions have as many replicas as the others"
        )
    controller, validated = TopicAdmin(admin), ValidatedPlacer.of(placer)
    cluster = cluster_id(admin)
    registry = registry.for_cluster(cluster)
    known = described(admin, [wanted.name])[wanted.name]
    if known.refused:
        raise AuthorizationError("DESCRIBE", topic_resource([wanted.name]))
    if known.problem:
        raise ConfigError(f"topic {short_repr(wanted.name)}: {known.problem}")
    state = describe_cluster_state(admin, [wanted.name])
    if any(tp.topic == wanted.name for tp in state.in_flight):
        raise ConfigError(f"topic {short_repr(wanted.name)} is being reassigned: wait until that completes")
    start = len(known.partitions)
    have = len(set(known.partitions[0].replicas))
    if wanted.replicas not in {None, have}:
        # The cluster accepts no other replication factor.
        raise ConfigError(f"topic {short_repr(wanted.name)} has {have} replicas, so new partitions need as many")
    least = min_isr(admin, [wanted.name]).get(wanted.name, 1)
    _observe_load(admin, validated, state.brokers)
    placed = place_new(
        wanted.policy,
        _spread(validated, start, wanted.partitions),
        _observed(state.brokers, registry, ignore_racks=wanted.ignore_racks),
        replicas=have,
        min_isr=least,
    )
    if placed.placeholders():
        raise ConfigError(
            f"topic {short_repr(wanted.name)} has {have} replicas, and fewer brokers are registered with the cluster"
        )
    new = CreateResult(wanted.name, start, placed, least, validated.notes)
    with _input():
        controller.add(wanted.name, start + wanted.partitions, placed.to_request(), validate_only=True)
        if not dry:
            keep(lambda seen: seen.for_cluster(cluster).with_brokers(state.brokers))
            controller.add(wanted.name, start + wanted.partitions, placed.to_request())
    return new


@contextmanager
def _input() -> Iterator[None]:
    """Turn refusals that only another request can avoid into `ConfigError`."""
    try:
        yield
    except RequestRejectedError as error:
        if error.kind in _BAD_INPUT:
            raise ConfigError(str(error)) from error
        raise


def _check_seen(replicas: int, known: Sequence[KnownBroker], *, allowed: bool) -> None:
    """Refuse a replication factor above the number of brokers ever seen, which is more often a mistake than not."""
    if replicas > len(known) and not allowed:
        raise ConfigError(
            f"replication factor {replicas} is more than the {counted(len(known), 'broker')} ever seen"
            " (offline ones are listed from Kafka 4.0);"
            " --allow-placeholders plans placeholders for future brokers"
        )


def _observe_load(admin: KafkaAdminClient, placer: ValidatedPlacer, brokers: Sequence[Broker]) -> None:
    live = [broker.id for broker in brokers if not broker.fenced]
    if live:
        known = {
            name: topic.partitions for name, topic in describe_topics_on(admin, live[0]).items() if not topic.problem
        }
        placer.observe(Layout.of(Topology(tuple(brokers), known)))


def _observed(brokers: Sequence[Broker], registry: PlacementState, *, ignore_racks: bool) -> list[KnownBroker]:
    """Return registered brokers, and those that were registered before."""
    listed = [KnownBroker(broker.id, broker.rack, online=not broker.fenced) for broker in brokers]
    known = {broker.id for broker in brokers}
    gone = [
        KnownBroker(broker, rack, online=False, registered=False)
        for broker, rack in sorted(registry.brokers.items())
        if broker not in known
    ]
    all_known = [*listed, *gone]
    return [replace(broker, rack=None) for broker in all_known] if ignore_racks else all_known


def _spread(placer: ValidatedPlacer, start: int, partitions: int) -> Spread:
    def spread(brokers: Sequence[KnownBroker], replicas: int) -> list[list[int]]:
        # The policy has chosen the brokers, so built-in placers may use all of them; custom placers are given the
        # fenced state and decide themselves.
        usable = [Broker(broker.id, broker.rack, placer.own and not broker.online) for broker in brokers]
        return placer.place(start, partitions, replicas, usable)

    return spread
