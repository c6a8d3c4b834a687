"""A repair from looking to the end: what the commands do, without what they print."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from rackassign.admin.cluster import cluster_id, listed_brokers, log_sizes
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.placement.cluster_state import ClusterState, observe
from rackassign.placement.constraints import Rules
from rackassign.placement.group_locality import Readers, readers
from rackassign.placement.state_file import Registry
from rackassign.reassignment.batches import Outcome, Pace, Progress
from rackassign.reassignment.evenness import check_even
from rackassign.reassignment.executor import Direction, carry_out
from rackassign.reassignment.journal import Journal
from rackassign.reassignment.kafka_cluster import LiveHands
from rackassign.reassignment.kafka_json import plan_given
from rackassign.reassignment.partition_state import Move, Replicas
from rackassign.reassignment.plan_status import Standing, standing
from rackassign.reassignment.planner import Planned, plan_leaders, plan_repair
from rackassign.reassignment.request import Wish
from rackassign.reassignment.throttle import lift
from rackassign.util.text import short_repr


@dataclass(frozen=True, slots=True)
class Prepared:
    """A repair that could begin.

    Args:
        state: The cluster.
        planned: What would change.
        journal: To be written down and carried out.
        readers: The group near which replicas are to be; None without one.
        bytes: What would be copied, as large as the logs are now; None where brokers do not tell.
    """

    state: ClusterState
    planned: Planned
    journal: Journal
    readers: Readers | None = None
    bytes: int | None = None


def prepare(admin: KafkaAdminClient, wish: Wish, registry: Registry) -> Prepared:
    """Look at a cluster and work out a repair; nothing is changed.

    Raises:
        ConfigError: Something is named that there is not.
        ReplicaPlacementError: There is no layout with these rules.
        UnevenError: It would leave brokers much less even, which the wish does not allow.
        NoAnswerError: No broker is up, or they do not allow it.
        KafkaError: As the admin client does.
    """
    near = readers(admin, wish.group) if wish.group else None
    topics = near.topics if near is not None and wish.topics is None else wish.topics
    state = _seen(admin, topics)
    if wish.ignore_racks:
        state = replace(state, brokers=tuple(replace(broker, rack=None) for broker in state.brokers), gone={})
    _check_seen(state, wish, registry)
    cluster, coverage = cluster_id(admin), None if near is None else near.coverage_of(topics or ())
    planned = plan_repair(state, replace(wish, topics=topics), registry.on(cluster), coverage, near)
    if not wish.force:
        check_even(planned)
    journal = Journal(cluster, wish, planned.moves, planned.waiting)
    return Prepared(state, planned, journal, near, _to_copy(admin, state, planned.moves))


def _check_seen(state: ClusterState, wish: Wish, registry: Registry) -> None:
    """Refuse more replicas than brokers were ever seen, which is more often a slip than a plan."""
    seen = {*registry.brokers, *(broker.id for broker in state.brokers)}
    if wish.rf is not None and wish.rf > len(seen) and not wish.allow_placeholders:
        raise ConfigError(
            f"rf: {wish.rf} replicas, and {len(seen)} broker{'' if len(seen) == 1 else 's'} were ever seen;"
            " --allow-placeholders keeps the rest for brokers to come"
        )


def prepare_given(
    admin: KafkaAdminClient, lists: Mapping[TopicPartition, Replicas], *, force: bool = False
) -> Prepared:
    """Look at a cluster and work out the repair that makes these lists; nothing is changed.

    Raises:
        InputError: A partition or a broker is named that there is not.
        UnevenError: They would leave brokers much less even, and `force` does not allow that.
        NoAnswerError: As for `prepare`.
        KafkaError: The same.
    """
    state = _seen(admin, {place.topic for place in lists})
    planned = plan_given(state, lists)
    if not force:
        check_even(planned)
    return Prepared(
        state, planned, Journal(cluster_id(admin), moves=planned.moves), None, _to_copy(admin, state, planned.moves)
    )


def prepare_leaders(admin: KafkaAdminClient, rules: Rules, topics: tuple[str, ...] | None) -> Prepared:
    """Look at a cluster and work out orders of the lists in which leaders are even; nothing is changed.

    Raises:
        ConfigError: A topic is named that there is not.
        ReplicaPlacementError: Some brokers have no rack.
        NoAnswerError: As for `prepare`.
        KafkaError: The same.
    """
    state = _seen(admin, topics)
    planned = plan_leaders(state, rules, topics)
    return Prepared(state, planned, Journal(cluster_id(admin), moves=planned.moves))


def prepare_more(admin: KafkaAdminClient, journal: Journal, registry: Registry) -> Journal | None:
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
    state = observe(admin)
    missing = set(topics or ()) - state.topics.keys()
    if missing:
        # Asked for by name it says why, or it has just been made.
        named = observe(admin, missing)
        state = replace(state, topics={**state.topics, **named.topics}, differing=(*state.differing, *named.differing))
    return state


def perform(
    admin: KafkaAdminClient,
    journal: Journal,
    direction: Direction,
    *,
    keep: Callable[[Journal], None],
    pace: Pace,
    told: Callable[[Progress], None],
    stop: Callable[[], bool],
) -> tuple[Journal, Outcome]:
    """Carry a repair out, or back, on the cluster it was planned for; arguments and errors are those of `carry_out`.

    Raises:
        ConfigError: It is another cluster, or the plan was abandoned.
    """
    check_cluster(admin, journal)
    if journal.phase == "abandoned":
        raise ConfigError("plan: it was abandoned; `repair plan` makes a new one, of lists as they are now")
    return carry_out(LiveHands(admin), journal, direction, keep=keep, pace=pace, told=told, stop=stop)


def check_cluster(admin: KafkaAdminClient, journal: Journal) -> None:
    """Refuse a plan that is of another cluster.

    Raises:
        ConfigError: It is.
    """
    here = cluster_id(admin)
    if here != journal.cluster:
        raise ConfigError(f"plan: it is for cluster {short_repr(journal.cluster)}, and this is {short_repr(here)}")


def look(admin: KafkaAdminClient, journal: Journal) -> Standing:
    """Return where the partitions of a plan stand; nothing is changed.

    Raises:
        ConfigError: It is of another cluster.
        KafkaError: As the admin client does.
    """
    check_cluster(admin, journal)
    seen = LiveHands(admin).look(journal.moves) if journal.moves else {}
    return standing(journal.moves, seen, throttled=journal.throttled is not None)


def abandon(admin: KafkaAdminClient, journal: Journal, keep: Callable[[Journal], None]) -> tuple[Journal, Standing]:
    """End a plan and leave all partitions as they are; only a throttle that it has left is taken away.

    Raises:
        ConfigError: It is of another cluster, or is over.
        KafkaError: As the admin client does; the plan goes on then.
    """
    if not journal.open and journal.phase != "planned":
        raise ConfigError(f"plan: it is over ({journal.phase}), so there is nothing to abandon")
    found = look(admin, journal)
    if journal.throttled is not None:
        lift(LiveHands(admin), journal.throttled)
    # One that is over and had left a throttle stays what it is.
    over = journal.phase in {"applied", "rolled-back"}
    journal = replace(journal, phase=journal.phase if over else "abandoned", throttled=None)
    keep(journal)
    return journal, replace(found, throttled=False)


def noted(admin: KafkaAdminClient, registry: Registry, journal: Journal, outcome: Outcome) -> Registry:
    """Return the registry after a repair: what waits for a broker now, and the brokers that were seen.

    Raises:
        KafkaError: As the admin client does.
    """
    served = {place: () for place in outcome.done if place in registry.plans}
    waiting = {place: row for place, row in journal.waiting.items() if place not in outcome.failed}
    return registry.on(journal.cluster).see(listed_brokers(admin)).plan({**served, **waiting})


def _to_copy(admin: KafkaAdminClient, state: ClusterState, moves: Mapping[TopicPartition, Move]) -> int | None:
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
            sizes = log_sizes(admin, broker, topics)
            total += sum(size * adding.get(place, 0) for place, size in sizes.items() if _led(state, place) == broker)
    except KafkaError:
        return None
    return total


def _led(state: ClusterState, place: TopicPartition) -> int | None:
    return state.topics[place.topic].partitions[place.partition].leader
