"""A repair from looking to the end: what the commands do, without what they print."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from rackassign.admin.cluster import cluster_id, describe_log_dirs, list_brokers
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.placement.cluster_state import ClusterState, describe_cluster_state
from rackassign.placement.constraints import PlacementConstraints
from rackassign.placement.group_locality import GroupLocality, describe_readers
from rackassign.placement.state_file import PlacementState
from rackassign.reassignment.batches import ExecutionLimits, ExecutionResult, Progress
from rackassign.reassignment.evenness import check_even
from rackassign.reassignment.executor import Direction, execute_plan
from rackassign.reassignment.journal import Journal
from rackassign.reassignment.kafka_cluster import KafkaReassignmentCluster
from rackassign.reassignment.kafka_json import plan_from_json
from rackassign.reassignment.partition_state import ReplicaMove, Replicas
from rackassign.reassignment.plan_status import PlanStatus, plan_status
from rackassign.reassignment.planner import ReassignmentPlan, plan_leader_balance, plan_reassignment
from rackassign.reassignment.request import ReassignmentRequest
from rackassign.reassignment.throttle import restore_configs
from rackassign.util.text import short_repr


@dataclass(frozen=True, slots=True)
class PreparedReassignment:
    """A repair that could begin.

    Args:
        state: The cluster.
        planned: What would change.
        journal: To be written down and carried out.
        readers: The group near which replicas are to be; None without one.
        bytes: What would be copied, as large as the logs are now; None where brokers do not tell.
    """

    state: ClusterState
    planned: ReassignmentPlan
    journal: Journal
    readers: GroupLocality | None = None
    bytes: int | None = None


def prepare(admin: KafkaAdminClient, wish: ReassignmentRequest, registry: PlacementState) -> PreparedReassignment:
    """Look at a cluster and work out a repair; nothing is changed.

    Raises:
        ConfigError: Something is named that there is not.
        ReplicaPlacementError: There is no layout with these rules.
        UnevenError: It would leave brokers much less even, which the wish does not allow.
        NoAnswerError: No broker is up, or they do not allow it.
        KafkaError: As the admin client does.
    """
    near = describe_readers(admin, wish.group) if wish.group else None
    topics = near.topics if near is not None and wish.topics is None else wish.topics
    state = _seen(admin, topics)
    if wish.ignore_racks:
        state = replace(state, brokers=tuple(replace(broker, rack=None) for broker in state.brokers), gone={})
    _check_seen(state, wish, registry)
    cluster, coverage = cluster_id(admin), None if near is None else near.members_per_rack(topics or ())
    planned = plan_reassignment(state, replace(wish, topics=topics), registry.for_cluster(cluster), coverage, near)
    if not wish.force:
        check_even(planned)
    journal = Journal(cluster, wish, planned.moves, planned.waiting)
    return PreparedReassignment(state, planned, journal, near, _to_copy(admin, state, planned.moves))


def _check_seen(state: ClusterState, wish: ReassignmentRequest, registry: PlacementState) -> None:
    """Refuse more replicas than brokers were ever seen, which is more often a slip than a plan."""
    seen = {*registry.brokers, *(broker.id for broker in state.brokers)}
    if wish.replication_factor is not None and wish.replication_factor > len(seen) and not wish.allow_placeholders:
        raise ConfigError(
            f"rf: {wish.replication_factor} replicas, and {len(seen)}"
            f" broker{'' if len(seen) == 1 else 's'} were ever seen;"
            " --allow-placeholders keeps the rest for brokers to come"
        )


def prepare_from_lists(
    admin: KafkaAdminClient, lists: Mapping[TopicPartition, Replicas], *, force: bool = False
) -> PreparedReassignment:
    """Look at a cluster and work out the repair that makes these lists; nothing is changed.

    Raises:
        InputError: A partition or a broker is named that there is not.
        UnevenError: They would leave brokers much less even, and `force` does not allow that.
        NoAnswerError: As for `prepare`.
        KafkaError: The same.
    """
    state = _seen(admin, {place.topic for place in lists})
    planned = plan_from_json(state, lists)
    if not force:
        check_even(planned)
    return PreparedReassignment(
        state, planned, Journal(cluster_id(admin), moves=planned.moves), None, _to_copy(admin, state, planned.moves)
    )


def prepare_leaders(
    admin: KafkaAdminClient, rules: PlacementConstraints, topics: tuple[str, ...] | None
) -> PreparedReassignment:
    """Look at a cluster and work out orders of the lists in which leaders are even; nothing is changed.

    Raises:
        ConfigError: A topic is named that there is not.
        ReplicaPlacementError: Some brokers have no rack.
        NoAnswerError: As for `prepare`.
        KafkaError: The same.
    """
    state = _seen(admin, topics)
    planned = plan_leader_balance(state, rules, topics)
    return PreparedReassignment(state, planned, Journal(cluster_id(admin), moves=planned.moves))


def prepare_remaining(admin: KafkaAdminClient, journal: Journal, registry: PlacementState) -> Journal | None:
    """Return what there is to do now of what a repair was for; None if nothing can be done.

    Partitions that it was not for stay as they are, whatever is wrong with them. Lists that were given are tried again.

    Raises:
        ConfigError: Something is not there any more.
        ReplicaPlacementError: As for `prepare`.
        NoAnswerError: The same.
        KafkaError: The same.
    """
    if journal.wish is None:
        return journal
    again = prepare(admin, journal.wish, registry).journal
    mine = journal.moves.keys() | journal.waiting.keys()
    moves = {place: move for place, move in again.moves.items() if place in mine}
    waiting = {place: row for place, row in again.waiting.items() if place in mine}
    return journal.joined(replace(again, moves=moves, waiting=waiting)) if moves else None


def _seen(admin: KafkaAdminClient, topics: Collection[str] | None) -> ClusterState:
    """Look at all topics, as what is not to be changed is load; those that are named must be among them."""
    state = describe_cluster_state(admin)
    missing = set(topics or ()) - state.topics.keys()
    if missing:
        # Asked for by name it says why, or it has just been made.
        named = describe_cluster_state(admin, missing)
        state = replace(state, topics={**state.topics, **named.topics}, differing=(*state.differing, *named.differing))
    return state


def execute(
    admin: KafkaAdminClient,
    journal: Journal,
    direction: Direction,
    *,
    keep: Callable[[Journal], None],
    pace: ExecutionLimits,
    told: Callable[[Progress], None],
    stop: Callable[[], bool],
) -> tuple[Journal, ExecutionResult]:
    """Carry a repair out, or back, on the cluster it was planned for; arguments and errors are those of `execute_plan`.

    Raises:
        ConfigError: It is another cluster, or the plan was abandoned.
    """
    check_cluster(admin, journal)
    if journal.phase == "abandoned":
        raise ConfigError("plan: it was abandoned; `reassign plan` makes a new one, of lists as they are now")
    return execute_plan(KafkaReassignmentCluster(admin), journal, direction, keep=keep, pace=pace, told=told, stop=stop)


def check_cluster(admin: KafkaAdminClient, journal: Journal) -> None:
    """Refuse a plan that is of another cluster.

    Raises:
        ConfigError: It is.
    """
    here = cluster_id(admin)
    if here != journal.cluster:
        raise ConfigError(f"plan: it is for cluster {short_repr(journal.cluster)}, and this is {short_repr(here)}")


def look(admin: KafkaAdminClient, journal: Journal) -> PlanStatus:
    """Return where the partitions of a plan stand; nothing is changed.

    Raises:
        ConfigError: It is of another cluster.
        KafkaError: As the admin client does.
    """
    check_cluster(admin, journal)
    seen = KafkaReassignmentCluster(admin).describe(journal.moves) if journal.moves else {}
    return plan_status(journal.moves, seen, throttled=journal.throttled is not None)


def abandon(admin: KafkaAdminClient, journal: Journal, keep: Callable[[Journal], None]) -> tuple[Journal, PlanStatus]:
    """End a plan and leave all partitions as they are; only a throttle that it has left is taken away.

    Raises:
        ConfigError: It is of another cluster, or is over.
        KafkaError: As the admin client does; the plan goes on then.
    """
    if not journal.open and journal.phase != "planned":
        raise ConfigError(f"plan: it is over ({journal.phase}), so there is nothing to abandon")
    found = look(admin, journal)
    if journal.throttled is not None:
        restore_configs(KafkaReassignmentCluster(admin), journal.throttled)
    # One that is over and had left a throttle stays what it is.
    over = journal.phase in {"applied", "rolled-back"}
    journal = replace(journal, phase=journal.phase if over else "abandoned", throttled=None)
    keep(journal)
    return journal, replace(found, throttled=False)


def updated_state(
    admin: KafkaAdminClient, registry: PlacementState, journal: Journal, outcome: ExecutionResult
) -> PlacementState:
    """Return the registry after a repair: what waits for a broker now, and the brokers that were seen.

    Raises:
        KafkaError: As the admin client does.
    """
    served = {place: () for place in outcome.done if place in registry.plans}
    waiting = {place: row for place, row in journal.waiting.items() if place not in outcome.failed}
    return (
        registry.for_cluster(journal.cluster).with_brokers(list_brokers(admin)).with_placeholders({**served, **waiting})
    )


def _to_copy(admin: KafkaAdminClient, state: ClusterState, moves: Mapping[TopicPartition, ReplicaMove]) -> int | None:
    """Return the bytes that are to be copied, by the leaders' logs."""
    adding = {place: len(set(move.after) - set(move.before)) for place, move in moves.items()}
    leading: dict[int, dict[str, int]] = {}
    for place, count in adding.items():
        topic = state.topics[place.topic]
        leader = topic.partitions[place.partition].leader
        if count and leader is not None:
            leading.setdefault(leader, {})[place.topic] = len(topic.partitions)
    total = 0
    try:
        for broker, topics in leading.items():
            sizes = describe_log_dirs(admin, broker, topics)
            total += sum(size * adding.get(place, 0) for place, size in sizes.items() if _led(state, place) == broker)
    except KafkaError:
        return None
    return total


def _led(state: ClusterState, place: TopicPartition) -> int | None:
    return state.topics[place.topic].partitions[place.partition].leader
