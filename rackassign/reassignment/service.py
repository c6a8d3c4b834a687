"""Reassignments from the description of a cluster to their end: the commands without their output."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from rackassign.admin.cluster import cluster_id, describe_log_dirs, list_brokers
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.placement import state_file as state_files
from rackassign.placement.cluster_state import ClusterState, describe_cluster_state
from rackassign.placement.constraints import PlacementConstraints
from rackassign.placement.group_locality import GroupLocality, describe_readers
from rackassign.placement.state_file import PlacementState
from rackassign.reassignment import journal as journals
from rackassign.reassignment.batches import ExecutionLimits, ExecutionResult, Progress
from rackassign.reassignment.evenness import check_even
from rackassign.reassignment.executor import Direction, await_restored, execute_plan
from rackassign.reassignment.journal import Journal
from rackassign.reassignment.kafka_cluster import KafkaReassignmentCluster
from rackassign.reassignment.kafka_json import plan_from_json
from rackassign.reassignment.partition_state import ReplicaMove, Replicas
from rackassign.reassignment.plan_status import PlanStatus, plan_status
from rackassign.reassignment.planner import ReassignmentPlan, plan_leader_balance, plan_reassignment
from rackassign.reassignment.request import ReassignmentRequest
from rackassign.reassignment.throttle import restore_configs
from rackassign.util.text import counted, short_repr


@dataclass(frozen=True, slots=True)
class PreparedReassignment:
    """A reassignment that is ready to begin.

    Args:
        state: The cluster.
        planned: What would change.
        journal: The journal to be written and executed.
        readers: The group in whose racks replicas are to be placed; None without one.
        bytes: Bytes to be copied, by the current size of the logs; None if a broker does not report it.
    """

    state: ClusterState
    planned: ReassignmentPlan
    journal: Journal
    readers: GroupLocality | None = None
    bytes: int | None = None

    @property
    def has_changes(self) -> bool:
        """Whether a replica list would change, now or once a broker is available."""
        return bool(self.planned.moves or self.planned.waiting)

    @property
    def unlisted(self) -> tuple[int, ...]:
        """Brokers whose replicas would be replaced although the cluster only does not list them.

        Before Kafka 4.0, clusters do not list a broker that is offline.
        """
        listed = {broker.id for broker in self.state.brokers}
        replaced = {b for move in self.planned.moves.values() for b in set(move.before) - set(move.after)}
        return tuple(sorted(replaced - listed))


def prepare(admin: KafkaAdminClient, request: ReassignmentRequest, registry: PlacementState) -> PreparedReassignment:
    """Describe a cluster and plan a reassignment; nothing is changed.

    Raises:
        ConfigError: A topic, broker or rack does not exist.
        ReplicaPlacementError: No layout satisfies these constraints.
        UnevenError: The plan would leave brokers much less even, which the request does not allow.
        KafkaUnavailableError: No broker is available, or the brokers do not allow it.
        KafkaError: Raised by the admin client.
    """
    near = describe_readers(admin, request.group) if request.group else None
    topics = near.topics if near is not None and request.topics is None else request.topics
    state = _seen(admin, topics)
    if request.ignore_racks:
        state = replace(state, brokers=tuple(replace(broker, rack=None) for broker in state.brokers), gone={})
    _check_seen(state, request, registry)
    cluster, coverage = cluster_id(admin), None if near is None else near.members_per_rack(topics or ())
    planned = plan_reassignment(state, replace(request, topics=topics), registry.for_cluster(cluster), coverage, near)
    if not request.force:
        # With a group, --rebalance keeps the copies near its members, which may be what piles up.
        check_even(
            planned,
            request.rules_for(None),
            "" if request.rebalance or request.group else " (--rebalance plans an even one, which copies more)",
        )
    journal = Journal(cluster, request, planned.moves, planned.waiting)
    return PreparedReassignment(state, planned, journal, near, _to_copy(admin, state, planned.moves))


def _check_seen(state: ClusterState, request: ReassignmentRequest, registry: PlacementState) -> None:
    """Refuse a replication factor above the number of brokers ever seen, which is more often a mistake than not."""
    seen = {*registry.brokers, *(broker.id for broker in state.brokers)}
    if (
        request.replication_factor is not None
        and request.replication_factor > len(seen)
        and not request.allow_placeholders
    ):
        raise ConfigError(
            f"replication factor {request.replication_factor} is more than the {counted(len(seen), 'broker')} ever"
            " seen (offline ones are listed from Kafka 4.0); --allow-placeholders plans placeholders for future brokers"
        )


def prepare_from_lists(
    admin: KafkaAdminClient, lists: Mapping[TopicPartition, Replicas], *, force: bool = False
) -> PreparedReassignment:
    """Describe a cluster and plan given lists; nothing is changed.

    Raises:
        InputError: A partition or a broker does not exist.
        UnevenError: The plan would leave brokers much less even, and `force` is not set.
        KafkaUnavailableError: As for `prepare`.
        KafkaError: Raised by the admin client.
    """
    state = _seen(admin, {tp.topic for tp in lists})
    planned = plan_from_json(state, lists)
    if not force:
        check_even(planned, PlacementConstraints(rackless="rack"))
    return PreparedReassignment(
        state, planned, Journal(cluster_id(admin), moves=planned.moves), None, _to_copy(admin, state, planned.moves)
    )


def prepare_leaders(
    admin: KafkaAdminClient, rules: PlacementConstraints, topics: tuple[str, ...] | None
) -> PreparedReassignment:
    """Describe a cluster and plan orders of the lists with balanced leaders; nothing is changed.

    Raises:
        ConfigError: A topic does not exist.
        ReplicaPlacementError: Some brokers have no rack.
        KafkaUnavailableError: As for `prepare`.
        KafkaError: Raised by the admin client.
    """
    state = _seen(admin, topics)
    planned = plan_leader_balance(state, rules, topics)
    return PreparedReassignment(state, planned, Journal(cluster_id(admin), moves=planned.moves))


def prepare_remaining(admin: KafkaAdminClient, journal: Journal, registry: PlacementState) -> Journal | None:
    """Return the journal extended by what can be done now of its request; None if nothing can be done.

    Partitions that are not part of the journal stay as they are, even with problems. Given lists are tried again.

    Raises:
        ConfigError: A topic, broker or rack no longer exists.
        ReplicaPlacementError: As for `prepare`.
        KafkaUnavailableError: As for `prepare`.
        KafkaError: Raised by the admin client.
    """
    if journal.request is None:
        return journal
    again = prepare(admin, journal.request, registry).journal
    mine = journal.moves.keys() | journal.waiting.keys()
    moves = {tp: move for tp, move in again.moves.items() if tp in mine}
    waiting = {tp: row for tp, row in again.waiting.items() if tp in mine}
    return journal.joined(replace(again, moves=moves, waiting=waiting)) if moves else None


def store(prepared: PreparedReassignment, plan_file: Path, state_file: Path, registry: PlacementState) -> Path | None:
    """Write the plan file of a reassignment; without changes, archive an earlier plan that was never begun.

    Args:
        prepared: The reassignment.
        plan_file: The plan file, whose lock the caller has.
        state_file: The state file; placeholders that are obsolete are removed from it.
        registry: What the state file contained when the reassignment was prepared.

    Returns:
        The new name of the earlier plan file, if it was renamed.

    Raises:
        ConfigError: The existing plan is not over, or a file cannot be written.
    """
    obsolete = prepared.planned.obsolete_placeholders
    if obsolete:
        # Without moves, no `apply` follows that could update the state file.
        def without_obsolete(known: PlacementState) -> PlacementState:
            rows = {tp: () for tp in obsolete if known.plans.get(tp) == registry.plans.get(tp)}
            return known.for_cluster(prepared.journal.cluster).with_placeholders(rows)

        state_files.update(state_file, without_obsolete)
    return journals.begin(plan_file, prepared.journal) if prepared.has_changes else journals.archive(plan_file)


def _seen(admin: KafkaAdminClient, topics: Collection[str] | None) -> ClusterState:
    """Describe all topics, as unchanged partitions count as load; named topics must be among them."""
    state = describe_cluster_state(admin)
    missing = set(topics or ()) - state.topics.keys()
    if missing:
        # A describe by name returns the reason, or the topic was created just now.
        named = describe_cluster_state(admin, missing)
        state = replace(state, topics={**state.topics, **named.topics}, differing=(*state.differing, *named.differing))
    return state


def execute(
    admin: KafkaAdminClient,
    journal: Journal,
    direction: Direction,
    *,
    keep: Callable[[Journal], None],
    limits: ExecutionLimits,
    report_progress: Callable[[Progress], None],
    stop: Callable[[], bool],
) -> tuple[Journal, ExecutionResult]:
    """Execute a plan, or roll it back, on its cluster; arguments and errors are those of `execute_plan`.

    Raises:
        ConfigError: The plan is for another cluster, or was abandoned.
    """
    check_cluster(admin, journal)
    if journal.phase == "abandoned":
        raise ConfigError("plan: it was abandoned; create a new one of the current lists with `reassign plan`")
    return execute_plan(
        KafkaReassignmentCluster(admin),
        journal,
        direction,
        keep=keep,
        limits=limits,
        report_progress=report_progress,
        stop=stop,
    )


def check_cluster(admin: KafkaAdminClient, journal: Journal) -> None:
    """Refuse a plan for another cluster.

    Raises:
        ConfigError: The plan is for another cluster.
    """
    here = cluster_id(admin)
    if here != journal.cluster:
        raise ConfigError(f"plan: it is for cluster {short_repr(journal.cluster)}, but this is {short_repr(here)}")


def look(admin: KafkaAdminClient, journal: Journal) -> PlanStatus:
    """Return the states of a plan's partitions; nothing is changed.

    Raises:
        ConfigError: The plan is for another cluster.
        KafkaError: Raised by the admin client.
    """
    check_cluster(admin, journal)
    seen = KafkaReassignmentCluster(admin).describe(journal.moves) if journal.moves else {}
    return plan_status(journal.moves, seen, throttled=journal.throttled is not None)


def abandon(admin: KafkaAdminClient, journal: Journal, keep: Callable[[Journal], None]) -> tuple[Journal, PlanStatus]:
    """End a plan and leave all partitions as they are; only its throttle is removed, if one is left.

    Raises:
        ConfigError: The plan is for another cluster, or is over.
        KafkaError: Raised by the admin client; the plan then remains in progress.
    """
    if not journal.open and journal.phase != "planned":
        raise ConfigError(f"plan: it is over ({journal.phase}), so there is nothing to abandon")
    found = look(admin, journal)
    if journal.throttled is not None:
        cluster = KafkaReassignmentCluster(admin)
        restore_configs(cluster, journal.throttled)
        # The journal forgets the throttle. The next plan must not take it for what was set before.
        await_restored(cluster, journal.throttled)
    # A plan that was over and had left a throttle keeps its phase.
    over = journal.phase in {"applied", "rolled-back"}
    journal = replace(journal, phase=journal.phase if over else "abandoned", throttled=None)
    keep(journal)
    return journal, replace(found, throttled=False)


def updated_state(
    admin: KafkaAdminClient, registry: PlacementState, journal: Journal, outcome: ExecutionResult
) -> PlacementState:
    """Return the state file's content after a run: brokers that were seen, and replicas that wait for a broker.

    Raises:
        KafkaError: Raised by the admin client.
    """
    served = {tp: () for tp in outcome.done if tp in registry.plans}
    waiting = {tp: row for tp, row in journal.waiting.items() if tp not in outcome.failed}
    return (
        registry.for_cluster(journal.cluster).with_brokers(list_brokers(admin)).with_placeholders({**served, **waiting})
    )


def rolled_back_state(registry: PlacementState, journal: Journal, outcome: ExecutionResult) -> PlacementState:
    """Return the state file's content after a rollback: the placeholders of before the plan.

    A plan with a replication factor has added placeholders. Any other one has found them in the state file, and may
    have served some. The state of another cluster stays as it is.
    """
    if registry.cluster not in {"", journal.cluster}:
        return registry
    rows: dict[TopicPartition, Replicas] = {}
    if journal.request is not None and journal.request.replication_factor is not None:
        rows = {tp: () for tp, row in journal.waiting.items() if registry.plans.get(tp) == row}
    elif journal.request is not None:
        for tp in outcome.done:
            move = journal.moves[tp]
            missing = len(journal.waiting.get(tp, move.after)) - len(move.before)
            if missing > 0:
                rows[tp] = (*move.before, *range(-1, -missing - 1, -1))
    return registry.with_placeholders(rows)


def _to_copy(admin: KafkaAdminClient, state: ClusterState, moves: Mapping[TopicPartition, ReplicaMove]) -> int | None:
    """Return the bytes to be copied, by the size of the leaders' logs."""
    adding = {tp: len(set(move.after) - set(move.before)) for tp, move in moves.items()}
    leading: dict[int, dict[str, int]] = {}
    for tp, count in adding.items():
        topic = state.topics[tp.topic]
        leader = topic.partitions[tp.partition].leader
        if count and leader is not None:
            leading.setdefault(leader, {})[tp.topic] = len(topic.partitions)
    total = 0
    try:
        for broker, topics in leading.items():
            sizes = describe_log_dirs(admin, broker, topics)
            total += sum(size * adding.get(tp, 0) for tp, size in sizes.items() if _led(state, tp) == broker)
    except KafkaError:
        return None
    return total


def _led(state: ClusterState, tp: TopicPartition) -> int | None:
    return state.topics[tp.topic].partitions[tp.partition].leader
