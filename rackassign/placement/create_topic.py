"""Creation of topics and partitions, which is possible while brokers are offline (KIP-409)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from kafka import KafkaAdminClient

from rackassign.admin.admin_client import AuthorizationError, topic_resource
from rackassign.admin.alter import RequestRejectedError, TopicAdmin
from rackassign.admin.describe import cluster_id, describe_topics_on, list_brokers, min_isr
from rackassign.admin.describe import describe_topics as described
from rackassign.errors import ConfigError
from rackassign.model import Broker, TopicPartition, Topology
from rackassign.placement.cluster_state import describe_cluster_state
from rackassign.placement.creation_policy import KnownBroker, Policy, PolicyPlacement, Spread, place_new
from rackassign.placement.layout import Layout
from rackassign.placement.placer import ReplicaPlacer
from rackassign.placement.state_file import PlacementState
from rackassign.placement.validated_placer import ValidatedPlacer
from rackassign.util.text import counted, short_repr

Keep = Callable[[Callable[[PlacementState], PlacementState]], None]
"""Changes a state file with a function of what is in it by then; raises if it cannot."""

_BAD_INPUT = frozenset(
    {"InvalidConfigurationError", "InvalidPartitionsError", "InvalidTopicError", "TopicAlreadyExistsError"}
)
"""Refusals of the request itself, independent of the cluster's state."""


@dataclass(frozen=True, slots=True)
class TopicRequest:
    """New partitions.

    Args:
        name: Topic.
        partitions: Number of new partitions.
        replicas: Replicas of each; None for as many as the existing partitions have.
        policy: Whether offline brokers may be used.
        configs: Configurations of a new topic.
        ignore_racks: Whether to place as if brokers had no racks.
        allow_placeholders: Whether there may be more replicas than brokers ever seen.
    """

    name: str
    partitions: int
    replicas: int | None
    policy: Policy = "disabled"
    configs: Mapping[str, str] | None = None
    ignore_racks: bool = False
    allow_placeholders: bool = False

    def __post_init__(self) -> None:
        for name, count in (("partitions", self.partitions), ("replicas", self.replicas)):
            if count is not None and count < 1:
                raise ConfigError(f"{name} must be 1 or more, got {count}")


@dataclass(frozen=True, slots=True)
class CreateResult:
    """New partitions and their replicas.

    Args:
        name: Topic.
        start: Number of the first new partition.
        placed: The brokers of their replicas.
        min_isr: `min.insync.replicas` of the topic.
        notes: What the placer does not prove, or which constraint it did not satisfy.
    """

    name: str
    start: int
    placed: PolicyPlacement
    min_isr: int
    notes: tuple[str, ...] = ()

    def plans(self) -> dict[TopicPartition, tuple[int, ...]]:
        """Return the replica list of each partition, with placeholders."""
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
    """Create a topic; replicas without a broker are part of the result and not an error.

    Args:
        admin: Admin client.
        wanted: The topic.
        placer: Places the replicas.
        registry: Brokers that were seen before.
        keep: Adds the brokers and placeholders to the state file, before anything is created.
        dry: Validate only, create nothing.

    Raises:
        ConfigError: The request is invalid, the topic exists, or the state file belongs to another cluster.
        NotEnoughBrokersError: The policy cannot be satisfied.
        RequestRejectedError: The cluster refuses.
        AuthorizationError: A permission is missing.
        ReplicaPlacementError: The placer finds no placement.
        PlacerError: A custom placer fails or returns an invalid result.
        KafkaError: Raised by the admin client.
    """
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
    """Add partitions to a topic; the arguments and errors are those of `create`.

    Raises:
        ConfigError: The topic does not exist, is being reassigned, or has another replication factor; configurations
            are given, or the state file belongs to another cluster.
    """
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
    """Pass the existing layout to a placer."""
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
