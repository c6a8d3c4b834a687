"""The operations on a plan: prepare, apply, roll back, show the status, abandon, verify what a group gained.

These are the commands without their output.

The plan file is locked by the caller for as long as a runner uses it::

    with journal.open_exclusive(plan_file) as plan:
        outcome = ReassignmentRunner(admin, plan_file, state_file).apply(plan, wait_for_brokers=600)
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from rackassign.admin.describe import cluster_id, describe_log_dirs, list_brokers
from rackassign.errors import ConfigError, KafkaUnavailableError, RackassignError
from rackassign.locality import Locality
from rackassign.model import TopicPartition
from rackassign.monitoring.written_bytes import WrittenBytes
from rackassign.placement import state_file as state_files
from rackassign.placement.cluster_state import ClusterState, describe_cluster_state
from rackassign.placement.constraints import PlacementConstraints
from rackassign.placement.leader_traffic import CrossRackBytes, LeaderTraffic, OwnerReads
from rackassign.placement.local_reads import GroupLocality, describe_readers
from rackassign.placement.state_file import PlacementState
from rackassign.reassignment import journal as journals
from rackassign.reassignment.executor import (
    Direction,
    ExecutionLimits,
    ExecutionResult,
    Progress,
    ProgressCallback,
    await_restored,
    execute_plan,
)
from rackassign.reassignment.journal import Journal, plan_from_json
from rackassign.reassignment.kafka_cluster import ReassignmentCluster
from rackassign.reassignment.partition_execution import PartitionStatus, ReplicaMove, Replicas
from rackassign.reassignment.plan import (
    ReassignmentPlan,
    check_even,
    plan_leader_balance,
    plan_reassignment,
)
from rackassign.reassignment.request import ReassignmentRequest
from rackassign.reassignment.throttle import restore_configs
from rackassign.text import counted, describe_error, short_repr

PartitionState = Literal["as-planned", "as-before", "on-its-way", "changed-by-others", "gone"]
"""State of a partition: its planned list, its original one, between the two, another one, or deleted."""

PARTITION_STATES: tuple[PartitionState, ...] = get_args(PartitionState)


@dataclass(frozen=True, slots=True)
class PlanStatus:
    """The states of a plan's partitions."""

    states: Mapping[TopicPartition, PartitionState]
    # Replicas of each partition that exists, and whether a throttle of the plan is still set.
    lists: Mapping[TopicPartition, tuple[int, ...]]
    throttled: bool

    def of(self, state: PartitionState) -> tuple[TopicPartition, ...]:
        return tuple(sorted(partition for partition, found in self.states.items() if found == state))


def plan_status(
    moves: Mapping[TopicPartition, ReplicaMove], seen: Mapping[TopicPartition, PartitionStatus], *, throttled: bool
) -> PlanStatus:
    states = {partition: _state(move, seen.get(partition)) for partition, move in moves.items()}
    lists = {partition: seen[partition].replicas for partition in moves if partition in seen}
    return PlanStatus(states, lists, throttled)


def _state(move: ReplicaMove, seen: PartitionStatus | None) -> PartitionState:
    if seen is None:
        return "gone"
    if seen.target is not None:
        return "on-its-way" if seen.target in move.known() else "changed-by-others"
    if seen.replicas == move.after:
        return "as-planned"
    if seen.replicas == move.before:
        return "as-before"
    # After a cancelled reassignment, a partition has a list of the plan in another order.
    return "on-its-way" if set(seen.replicas) in map(set, move.known()) else "changed-by-others"


@dataclass(frozen=True, slots=True)
class PreparedReassignment:
    """A reassignment that is ready to begin.

    Args:
        state: The cluster.
        planned: What would change.
        journal: The journal to be written and executed.
        readers: The group in whose racks replicas are to be placed; None without one.
        received: Bytes to be copied to each broker, by the current size of the logs; None if a broker does not report
            it.
        clients: What producers write, near which leaders are to be; None without metrics of producers.
    """

    state: ClusterState
    planned: ReassignmentPlan
    journal: Journal
    readers: GroupLocality | None = None
    received: Mapping[int, int] | None = None
    clients: LeaderTraffic | None = None

    @property
    def bytes(self) -> int | None:
        """Bytes to be copied; None if a broker does not report the size of its logs."""
        return None if self.received is None else sum(self.received.values())

    def predicted(self) -> dict[str, CrossRackBytes]:
        """Return the bytes of each topic, and how many of them cross racks now and with the plan."""
        if self.clients is None:
            return {}
        topics, planned = self.state.topics, self.planned

        def leader(tp: TopicPartition) -> int | None:
            return topics[tp.topic].partitions[tp.partition].leader

        return self.clients.predicted(planned.before, planned.after, planned.topics, leader, planned.skipped)

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


def prepare(
    admin: KafkaAdminClient,
    request: ReassignmentRequest,
    registry: PlacementState,
    *,
    written: WrittenBytes | None = None,
    max_skew: int = 0,
    free_replication: bool = False,
) -> PreparedReassignment:
    """Describe a cluster and plan a reassignment; nothing is changed."""
    # The plan file does not contain `written`.
    near = describe_readers(admin, request.group) if request.group else None
    topics = near.topics if near is not None and request.topics is None else request.topics
    state = _seen(admin, topics)
    if request.ignore_racks:
        state = replace(state, brokers=tuple(replace(broker, rack=None) for broker in state.brokers), gone={})
    _check_seen(state, request, registry)
    cluster, coverage = cluster_id(admin), None if near is None else near.members_per_rack(topics or ())
    clients = _clients(written, state, near, max_skew, free_replication=free_replication)
    planned = plan_reassignment(
        state, replace(request, topics=topics), registry.for_cluster(cluster), coverage, near, clients=clients
    )
    if not request.force:
        # With a group, --rebalance keeps the copies near its members, which may be what piles up.
        check_even(
            planned,
            request.rules_for(None),
            "" if request.rebalance or request.group else " (--rebalance plans an even one, which copies more)",
        )
    journal = Journal(cluster, request, planned.moves, planned.waiting)
    return PreparedReassignment(state, planned, journal, near, _to_copy(admin, state, planned.moves), clients)


def _clients(
    written: WrittenBytes | None,
    state: ClusterState,
    near: GroupLocality | None,
    max_skew: int,
    *,
    free_replication: bool,
) -> LeaderTraffic | None:
    if written is None:
        return None
    readers = None if near is None else OwnerReads.of(near)
    return LeaderTraffic.of(written, state, readers, max_skew, free_replication=free_replication)


def _check_seen(state: ClusterState, request: ReassignmentRequest, registry: PlacementState) -> None:
    """Refuse a replication factor above the number of brokers ever seen, which is more often a mistake than not."""
    known = {*registry.brokers, *(broker.id for broker in state.brokers)}
    if (
        request.replication_factor is not None
        and request.replication_factor > len(known)
        and not request.allow_placeholders
    ):
        raise ConfigError(
            f"replication factor {request.replication_factor} is more than the {counted(len(known), 'broker')} ever"
            " seen (offline ones are listed from Kafka 4.0); --allow-placeholders plans placeholders for future brokers"
        )


def prepare_from_lists(
    admin: KafkaAdminClient, lists: Mapping[TopicPartition, Replicas], *, force: bool = False
) -> PreparedReassignment:
    """Describe a cluster and plan given lists; nothing is changed."""
    state = _seen(admin, {tp.topic for tp in lists})
    planned = plan_from_json(state, lists)
    if not force:
        check_even(planned, PlacementConstraints(rackless="rack"))
    return PreparedReassignment(
        state, planned, Journal(cluster_id(admin), moves=planned.moves), None, _to_copy(admin, state, planned.moves)
    )


def prepare_leaders(
    admin: KafkaAdminClient,
    rules: PlacementConstraints,
    topics: tuple[str, ...] | None,
    *,
    written: WrittenBytes | None = None,
    group: str = "",
    max_skew: int = 0,
    free_replication: bool = False,
) -> PreparedReassignment:
    """Describe a cluster and plan orders of the lists with balanced leaders; nothing is changed."""
    # With `written`, leaders are where the fewest bytes cross racks, and reads of a group count as well.
    state = _seen(admin, topics)
    near = describe_readers(admin, group) if group else None
    clients = _clients(written, state, near, max_skew, free_replication=free_replication)
    planned = plan_leader_balance(state, rules, topics, clients)
    return PreparedReassignment(state, planned, Journal(cluster_id(admin), moves=planned.moves), near, clients=clients)


def prepare_remaining(admin: KafkaAdminClient, journal: Journal, registry: PlacementState) -> Journal | None:
    """Return the journal extended by what can be done now of its request; None if nothing can be done.

    Partitions that are not part of the journal stay as they are, even with problems. Given lists are tried again.
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
    """Execute a plan, or roll it back, on its cluster; arguments and errors are those of `execute_plan`."""
    check_cluster(admin, journal)
    if journal.phase == "abandoned":
        raise ConfigError("plan: it was abandoned; create a new one of the current lists with `reassign plan`")
    return execute_plan(
        ReassignmentCluster(admin),
        journal,
        direction,
        keep=keep,
        limits=limits,
        report_progress=report_progress,
        stop=stop,
    )


def check_cluster(admin: KafkaAdminClient, journal: Journal) -> None:
    here = cluster_id(admin)
    if here != journal.cluster:
        raise ConfigError(f"plan: it is for cluster {short_repr(journal.cluster)}, but this is {short_repr(here)}")


def look(admin: KafkaAdminClient, journal: Journal) -> PlanStatus:
    """Return the states of a plan's partitions; nothing is changed."""
    check_cluster(admin, journal)
    seen = ReassignmentCluster(admin).describe(journal.moves) if journal.moves else {}
    return plan_status(journal.moves, seen, throttled=journal.throttled is not None)


def abandon(admin: KafkaAdminClient, journal: Journal, keep: Callable[[Journal], None]) -> tuple[Journal, PlanStatus]:
    """End a plan and leave all partitions as they are; only its throttle is removed, if one is left."""
    # After a `KafkaError` the plan remains in progress.
    if not journal.open and journal.phase != "planned":
        raise ConfigError(f"plan: it is over ({journal.phase}), so there is nothing to abandon")
    found = look(admin, journal)
    if journal.throttled is not None:
        cluster = ReassignmentCluster(admin)
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
    """Return the state file's content after a run: brokers that were seen, and replicas that wait for a broker."""
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


def _to_copy(
    admin: KafkaAdminClient, state: ClusterState, moves: Mapping[TopicPartition, ReplicaMove]
) -> dict[int, int] | None:
    """Return the bytes to be copied to each broker, by the size of the leaders' logs."""
    adding = {tp: set(move.after) - set(move.before) for tp, move in moves.items()}
    leading: dict[int, dict[str, int]] = {}
    for tp, brokers in adding.items():
        leader = state.leader(tp)
        if brokers and leader is not None:
            leading.setdefault(leader, {})[tp.topic] = len(state.topics[tp.topic].partitions)
    received = Counter[int]()
    try:
        for broker, topics in leading.items():
            for tp, size in describe_log_dirs(admin, broker, topics).items():
                if tp in adding and state.leader(tp) == broker:
                    received.update(dict.fromkeys(adding[tp], size))
    except KafkaError:
        return None
    return dict(sorted(received.items()))


_LOOK_EVERY_S = 5.0
_MEASURE_EVERY_S = 1.0
_STOP_EVERY_S = 0.2

ProgressDisplay = Callable[[], AbstractContextManager[ProgressCallback]]
"""Open a display for one execution; what it yields is called with the progress."""


@contextmanager
def no_display() -> Iterator[ProgressCallback]:
    yield lambda _: None


@dataclass(frozen=True, slots=True)
class ReassignmentOutcome:
    """What has become of a plan.

    Args:
        direction: Whether it was applied or rolled back.
        journal: The plan as it was written last.
        result: Result of the last execution.
        locality: Partitions that the group of `--near-group` reads locally; None if it was not measured.
    """

    direction: Direction
    journal: Journal
    result: ExecutionResult
    locality: Locality | None = None

    @property
    def pending_replicas(self) -> int:
        """Number of planned replicas for which no broker is available yet; 0 after a rollback."""
        if self.direction == "rollback":
            return 0
        return sum(broker < 0 for row in self.journal.waiting.values() for broker in row)


class ReassignmentRunner:
    """Executes plans on a cluster; plan file and state file are written as it proceeds.

    Args:
        admin: Client of the cluster.
        plan_file: The plan file.
        state_file: The file of known brokers and placeholders.
        limits: Limits of each execution.
        stop: Called many times, return whether to stop; reassignments in progress are then reverted.
        display: Opens the display of one execution's progress.
        report_problem: Called with one line for each problem that does not end the run.

    Raises:
        ConfigError: The state file cannot be read.
    """

    def __init__(
        self,
        admin: KafkaAdminClient,
        plan_file: Path,
        state_file: Path,
        *,
        limits: ExecutionLimits | None = None,
        stop: Callable[[], bool] = lambda: False,
        display: ProgressDisplay = no_display,
        report_problem: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._admin, self._plan_file, self._state_file = admin, plan_file, state_file
        self._limits, self._stop = limits or ExecutionLimits(), stop
        self._display, self._report_problem = display, report_problem
        # An unreadable state file is reported before anything is changed.
        state_files.read(state_file)

    def apply(
        self, journal: Journal, *, wait_for_brokers: float = 0.0, verify_timeout: float = 30.0
    ) -> ReassignmentOutcome:
        """Apply or resume a plan.

        Args:
            journal: The plan.
            wait_for_brokers: Seconds to keep running and place pending replicas when a broker joins.
            verify_timeout: Seconds for the group of the plan's request to rebalance, before its locality is measured.

        Raises:
            ConfigError: The plan is for another cluster or was abandoned, or a file cannot be read or written.
            ThrottleNotRemovedError: As for `execute_plan`.
            KafkaError: Raised by the client; the plan can be applied again.
        """
        journal, result = self._execute(journal, "apply")
        if wait_for_brokers:
            journal, result = self._wait_for_brokers(journal, result, wait_for_brokers)
        group = journal.request.group if journal.request is not None else ""
        locality = self._verify(group, verify_timeout) if group and not self._stop() else None
        return ReassignmentOutcome("apply", journal, result, locality)

    def rollback(self, journal: Journal) -> ReassignmentOutcome:
        """Restore the original replica lists of a plan; errors are those of `apply`."""
        return ReassignmentOutcome("rollback", *self._execute(journal, "rollback"))

    def _execute(self, journal: Journal, direction: Direction) -> tuple[Journal, ExecutionResult]:
        check_cluster(self._admin, journal)
        if direction == "apply":
            # A state file of another cluster is reported before anything is changed.
            state_files.read(self._state_file).for_cluster(journal.cluster)
        with self._display() as report_progress:
            journal, result = execute(
                self._admin,
                journal,
                direction,
                keep=lambda written: journals.write(self._plan_file, written),
                limits=self._limits,
                report_progress=report_progress,
                stop=self._stop,
            )
        if direction == "apply":
            state_files.update(self._state_file, lambda known: updated_state(self._admin, known, journal, result))
        elif (known := state_files.read(self._state_file)) != rolled_back_state(known, journal, result):
            state_files.update(self._state_file, lambda known: rolled_back_state(known, journal, result))
        return journal, result

    def _wait_for_brokers(
        self, journal: Journal, result: ExecutionResult, seconds: float
    ) -> tuple[Journal, ExecutionResult]:
        """Plan and execute again and again for some time: what is pending or failed may have become possible.

        An execution that was interrupted by an error is always resumed, at the latest when the time is over.
        """
        until, interrupted = time.monotonic() + seconds, False
        while (journal.waiting or result.failed or interrupted) and not self._stop() and time.monotonic() < until:
            self._sleep(min(_LOOK_EVERY_S, until - time.monotonic()))
            try:
                more = prepare_remaining(self._admin, journal, state_files.read(self._state_file))
                more = journal if more is None and interrupted else more
                if more is not None and not self._stop():
                    interrupted = True
                    journal, result = self._execute(more, "apply")
                    interrupted = False
            except (KafkaError, RackassignError) as error:
                # The brokers that are waited for may be those that do not respond.
                away = isinstance(error, (KafkaError, KafkaUnavailableError))
                self._report_problem(f"{'cluster not available: ' if away else ''}{describe_error(error)}")
                # The interrupted execution has written what it has begun, and which throttle it has left.
                journal = journals.read(self._plan_file)
        return self._execute(journal, "apply") if interrupted else (journal, result)

    def _verify(self, group: str, seconds: float) -> Locality | None:
        """Return the locality of a group once it is the best possible or time is up; None if it is unavailable."""
        until = time.monotonic() + seconds
        while True:
            try:
                near = describe_readers(self._admin, group)
            except (KafkaError, RackassignError) as error:
                self._report_problem(f"not measured: {error}")
                return None
            now = near.inspection.partitions
            best = near.inspection.best.partitions
            if now.local >= best.local or time.monotonic() > until or self._stop():
                return now
            self._sleep(_MEASURE_EVERY_S)

    def _sleep(self, seconds: float) -> None:
        """Sleep, but not longer than until the run is to stop."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._stop():
            time.sleep(min(_STOP_EVERY_S, seconds))
