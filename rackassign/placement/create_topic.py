"""Making topics, and adding partitions to them, while brokers may be away (KIP-409)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from kafka import KafkaAdminClient

from rackassign.admin.authorization import AuthorizationError, topic_resource
from rackassign.admin.cluster import cluster_id, describe_topics_on, list_brokers, min_isr
from rackassign.admin.cluster import describe_topics as described
from rackassign.admin.topics import RequestRejectedError, TopicAdmin
from rackassign.errors import ConfigError
from rackassign.model import Broker, TopicPartition, Topology
from rackassign.placement.cluster_state import describe_cluster_state
from rackassign.placement.creation_policy import KnownBroker, Policy, PolicyPlacement, Spread, place_new
from rackassign.placement.layout import Layout
from rackassign.placement.placer import ReplicaPlacer
from rackassign.placement.state_file import PlacementState
from rackassign.placement.validated_placer import ValidatedPlacer
from rackassign.util.text import short_repr

Keep = Callable[[PlacementState], None]
"""Writes a registry down; raises if it cannot."""

_BAD_INPUT = frozenset(
    {"InvalidConfigurationError", "InvalidPartitionsError", "InvalidTopicError", "TopicAlreadyExistsError"}
)
"""Refusals that are about what was asked for, whatever the cluster is like."""


@dataclass(frozen=True, slots=True)
class TopicRequest:
    """New partitions.

    Args:
        name: Of the topic.
        partitions: How many are new.
        replicas: Of each; None for as many as the topic has that they are added to.
        policy: Whether brokers that are away may be named.
        configs: Of a new topic.
        ignore_racks: Whether brokers are taken to have no racks.
        allow_placeholders: Whether there may be more replicas than brokers were ever seen.
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
    """New partitions and where they are.

    Args:
        name: Of the topic.
        start: Id of the first that is new.
        placed: Where their replicas are, or are to be.
        min_isr: `min.insync.replicas` of the topic.
        notes: What the placer does not prove of it, or did not keep to.
    """

    name: str
    start: int
    placed: PolicyPlacement
    min_isr: int
    notes: tuple[str, ...] = ()

    def plans(self) -> dict[TopicPartition, tuple[int, ...]]:
        """Return the plan of each partition."""
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
    """Make a topic; what is missing of it is in the result, and success all the same.

    Args:
        admin: To look and to make with.
        wanted: The topic.
        placer: Decides which brokers.
        registry: Brokers that were seen before.
        keep: Writes down what was seen, and placeholders, before anything is made.
        dry: Have it checked, and make nothing.

    Raises:
        ConfigError: What is asked for cannot be, such a topic exists, or the registry is of another cluster.
        NotEnoughBrokersError: The policy cannot have its way.
        RefusedError: The cluster refuses.
        NotAllowedError: A permission is missing.
        ReplicaPlacementError: The placer cannot place.
        PlacerError: It is none of ours, and fails or answers what cannot be.
        KafkaError: As the admin client does.
    """
    if wanted.replicas is None:
        raise ConfigError("replicas: a new topic needs a number of them")
    controller, asked = TopicAdmin(admin), ValidatedPlacer.of(placer)
    configs = dict(wanted.configs or {})
    registry = registry.for_cluster(cluster_id(admin))
    # What is in force when the topic does not say: the cluster tells that of a topic it is only asked about.
    with _input():
        least = controller.validate(wanted.name, configs).min_isr or 1
    brokers = list_brokers(admin)
    known = _observed(brokers, registry, ignore_racks=wanted.ignore_racks)
    _check_seen(wanted.replicas, known, allowed=wanted.allow_placeholders)
    _count_in(admin, asked, brokers)
    placed = place_new(
        wanted.policy, _spread(asked, 0, wanted.partitions), known, replicas=wanted.replicas, min_isr=least
    )
    new = CreateResult(wanted.name, 0, placed, least, asked.notes)
    with _input():
        controller.validate(wanted.name, configs, placed.to_request())
        if not dry:
            keep(registry.with_brokers(brokers).with_placeholders(new.plans()))
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
        ConfigError: There is no such topic, it is being reassigned, or has another number of replicas; configurations
            are given, or the registry is of another cluster.
    """
    if wanted.configs:
        raise ConfigError("configs are for a new topic: those of one that exists stay as they are")
    controller, asked = TopicAdmin(admin), ValidatedPlacer.of(placer)
    registry = registry.for_cluster(cluster_id(admin))
    known = described(admin, [wanted.name])[wanted.name]
    if known.refused:
        raise AuthorizationError("DESCRIBE", topic_resource([wanted.name]))
    if known.problem:
        raise ConfigError(f"topic {short_repr(wanted.name)}: {known.problem}")
    state = describe_cluster_state(admin, [wanted.name])
    if any(place.topic == wanted.name for place in state.in_flight):
        raise ConfigError(f"topic {short_repr(wanted.name)} is being reassigned: wait for the end of that")
    start = len(known.partitions)
    have = len(set(known.partitions[0].replicas))
    if wanted.replicas not in {None, have}:
        # The cluster takes no others.
        raise ConfigError(f"topic {short_repr(wanted.name)} has {have} replicas, so new partitions have as many")
    least = min_isr(admin, [wanted.name]).get(wanted.name, 1)
    _count_in(admin, asked, state.brokers)
    placed = place_new(
        wanted.policy,
        _spread(asked, start, wanted.partitions),
        _observed(state.brokers, registry, ignore_racks=wanted.ignore_racks),
        replicas=have,
        min_isr=least,
    )
    if placed.placeholders():
        raise ConfigError(
            f"topic {short_repr(wanted.name)} has {have} replicas, and there are not as many brokers"
            f" known to the cluster"
        )
    new = CreateResult(wanted.name, start, placed, least, asked.notes)
    with _input():
        controller.add(wanted.name, start + wanted.partitions, placed.to_request(), validate_only=True)
        if not dry:
            keep(registry.with_brokers(state.brokers))
            controller.add(wanted.name, start + wanted.partitions, placed.to_request())
    return new


@contextmanager
def _input() -> Iterator[None]:
    """Tell what nobody but the user can mend from what the cluster may do at another time."""
    try:
        yield
    except RequestRejectedError as error:
        if error.kind in _BAD_INPUT:
            raise ConfigError(str(error)) from error
        raise


def _check_seen(replicas: int, known: Sequence[KnownBroker], *, allowed: bool) -> None:
    """Refuse more replicas than brokers were ever seen, which is more often a slip than a plan."""
    if replicas > len(known) and not allowed:
        raise ConfigError(
            f"rf: {replicas} replicas, and {len(known)} broker{'' if len(known) == 1 else 's'} were ever seen;"
            " --allow-placeholders keeps the rest for brokers to come"
        )


def _count_in(admin: KafkaAdminClient, placer: ValidatedPlacer, brokers: Sequence[Broker]) -> None:
    """Tell a placer what brokers carry already."""
    live = [broker.id for broker in brokers if not broker.fenced]
    if live:
        known = {
            name: topic.partitions for name, topic in describe_topics_on(admin, live[0]).items() if not topic.problem
        }
        placer.observe(Layout.of(Topology(tuple(brokers), known)))


def _observed(brokers: Sequence[Broker], registry: PlacementState, *, ignore_racks: bool) -> list[KnownBroker]:
    """Return the brokers there are, and those that were."""
    listed = [KnownBroker(broker.id, broker.rack, online=not broker.fenced) for broker in brokers]
    known = {broker.id for broker in brokers}
    gone = [
        KnownBroker(broker, rack, online=False, registered=False)
        for broker, rack in sorted(registry.brokers.items())
        if broker not in known
    ]
    everybody = [*listed, *gone]
    return [replace(broker, rack=None) for broker in everybody] if ignore_racks else everybody


def _spread(placer: ValidatedPlacer, start: int, partitions: int) -> Spread:
    def spread(brokers: Sequence[KnownBroker], replicas: int) -> list[list[int]]:
        # The policy has chosen them, so to placers of ours all are fit for use; others are told and judge themselves.
        usable = [Broker(broker.id, broker.rack, placer.own and not broker.online) for broker in brokers]
        return placer.place(start, partitions, replicas, usable)

    return spread
