"""The data model: a consumer group, the cluster it reads from, and the plan for it.

Rules of this module:

* It contains values only. Nothing here computes an assignment, decodes bytes or uses a client; it imports nothing of
  rackassign except the errors.
* A value that exists is valid: every class validates itself when it is created and raises `InputError` with the name
  of the field. A caller (JSON, a live group, the protocol) only has to add where it found the value.
* Conditions that are normal in a live cluster are no errors: a replica listed twice, a replica on an unknown broker,
  a subscribed topic without metadata, a claim on a partition that no longer exists.

A partition is identified by its topic and its index in the topic's tuple, so that a topology of 500,000 partitions
contains only as many `Partition` objects as there are different replica lists.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from rackassign.errors import InputError
from rackassign.text import short_repr

LocalityMode = Literal["any-replica", "leader"]
"""Which replicas make a partition local: all of them (with follower fetching), or only the leader."""

LOCALITY_MODES: tuple[LocalityMode, ...] = get_args(LocalityMode)

BalanceMode = Literal["total", "topic"]
"""What is balanced first: the members' numbers of partitions, or their numbers of each topic's partitions."""

BALANCE_MODES: tuple[BalanceMode, ...] = get_args(BalanceMode)

PlanObjective = Literal["topic-balance", "balance", "locality", "moves", "leaders"]
"""What a plan optimizes: balance of each topic, balance of totals, local partitions, few moves, local leaders."""

ClassicStrategyName = Literal["range", "sticky", "cooperative-sticky"]
"""Strategies of members, by their names in the classic protocol."""

STRATEGY_NAMES: tuple[ClassicStrategyName, ...] = get_args(ClassicStrategyName)

StrategyName = Literal[ClassicStrategyName, "consumer-protocol", "uniform"]
"""Those, and what brokers plan in the consumer protocol (KIP-848): rackassign's plug-in, and Kafka's `uniform`."""

TOPIC_NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}")
"""Topic names that brokers accept, as a whole."""

_LARGEST_INT32 = 2**31 - 1

Partitions = Mapping[str, tuple[int, ...]]
"""Partition IDs by topic."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


def _check_id(path: str, value: object) -> None:
    """Reject a value that is not an ID: Kafka numbers brokers and partitions from 0."""
    if type(value) is not int:
        raise InputError(path, f"expected an integer, got {short_repr(value)}")
    if value < 0:
        raise InputError(path, f"expected 0 or more, got {value}")


def _check_text(path: str, value: object) -> None:
    if not isinstance(value, str):
        raise InputError(path, f"expected a string, got {short_repr(value)}")


def _check_rack(path: str, value: object) -> None:
    if value is not None:
        _check_text(path, value)


def _check_different(path: str, partitions: tuple[int, ...]) -> None:
    """Reject the first partition that is listed twice."""
    seen: set[int] = set()
    for i, partition in enumerate(partitions):
        if partition in seen:
            raise InputError(f"{path}[{i}]", f"partition {partition} is listed twice")
        seen.add(partition)


def _check_owned(owned: Partitions) -> None:
    """Reject partitions that are no IDs, or listed twice."""
    # A leader checks tens of thousands, which are nearly always right: all at once first, and then for the error.
    arrays = owned.values()
    ids = [*chain.from_iterable(arrays)]
    integers = {*map(type, ids)} <= {int} and min(ids, default=0) >= 0
    if integers and (max(map(len, arrays), default=0) <= 1 or sum(map(len, map(set, arrays))) == len(ids)):
        return
    for topic, partitions in owned.items():
        for i, partition in enumerate(partitions):
            _check_id(f"owned.{topic}[{i}]", partition)
        _check_different(f"owned.{topic}", partitions)


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker and its rack.

    Args:
        id: Node ID, 0 or more.
        rack: `broker.rack`; None if it has none.
        fenced: Whether it is fenced, so that it neither leads nor serves partitions.
    """

    id: int
    rack: str | None = None
    fenced: bool = False

    def __post_init__(self) -> None:
        _check_id("id", self.id)
        _check_rack("rack", self.rack)


@dataclass(frozen=True, slots=True)
class Partition:
    """The replicas of a partition.

    Args:
        replicas: Broker IDs, preferred leader first, in or out of the ISR, online or not. An ID that appears
            twice counts once. An ID that no broker has is a replica of unknown rack.
        leader: Broker ID of the leader; None if there is none now.
    """

    replicas: tuple[int, ...]
    leader: int | None = None

    def __post_init__(self) -> None:
        for i, replica in enumerate(self.replicas):
            _check_id(f"replicas[{i}]", replica)
        if self.leader is not None:
            _check_id("leader", self.leader)


@dataclass(frozen=True, slots=True)
class Topology:
    """Brokers and topics of a cluster.

    Args:
        brokers: All known brokers, with distinct IDs.
        topics: For each topic its partitions, in order of partition ID from 0.
    """

    brokers: tuple[Broker, ...]
    topics: Mapping[str, tuple[Partition, ...]]

    def __post_init__(self) -> None:
        seen: set[int] = set()
        for i, broker in enumerate(self.brokers):
            if broker.id in seen:
                raise InputError(f"brokers[{i}].id", f"broker {broker.id} is listed twice")
            seen.add(broker.id)

    def broker_racks(self) -> dict[int, str]:
        """Return the rack of every broker that has one, by broker ID."""
        return {broker.id: broker.rack for broker in self.brokers if broker.rack is not None}


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a consumer group, as described by its subscription.

    Args:
        id: Member ID, not empty.
        topics: Subscribed topics; one that is named twice counts once.
        rack: `client.rack`; None and "" both mean that it has none.
        instance_id: `group.instance.id` of a static member.
        owned: Partitions it claims to own, by topic.
        generation: Generation of that claim; None and -1 both mean that it is unknown.
        tags: Client tags (KIP-708).
    """

    id: str
    topics: frozenset[str]
    rack: str | None = None
    instance_id: str | None = None
    owned: Partitions = field(default_factory=dict)
    generation: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_text("id", self.id)
        if not self.id:
            raise InputError("id", "expected a member id, got an empty string")
        _check_rack("rack", self.rack)
        _check_rack("instance_id", self.instance_id)
        if self.rack == "":
            object.__setattr__(self, "rack", None)
        if self.generation == -1:
            object.__setattr__(self, "generation", None)
        if self.generation is not None:
            _check_id("generation", self.generation)
            if self.generation > _LARGEST_INT32:
                raise InputError("generation", f"expected at most {_LARGEST_INT32}, got {short_repr(self.generation)}")
        _check_owned(self.owned)


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group and the topology it reads from: the input of every strategy.

    Args:
        topology: Brokers and topics.
        members: Members with distinct IDs; their order has no influence on any result.
        weights: For some topics a weight of each partition, finite and 0 or more.
        costs: Cost of reading across racks, by the reader's rack and the replica's rack; finite and 0 or more.
        name: Name for users.
        copartition: Sets of topics whose partitions of one number go to one member; no topic is in two of them.
    """

    topology: Topology
    members: tuple[Member, ...]
    weights: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    costs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    name: str | None = None
    copartition: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for i, member in enumerate(self.members):
            if member.id in seen:
                raise InputError(f"members[{i}].id", f"member {short_repr(member.id)} is listed twice")
            seen.add(member.id)
        for topic, weights in self.weights.items():
            for i, weight in enumerate(weights):
                _check_amount(f"weights.{topic}[{i}]", weight)
        _check_costs(self.costs)
        _check_sets(self.copartition)

    def without_member_racks(self) -> Group:
        """Return the group as an assignor sees it that does not look at racks."""
        return replace(self, members=tuple(replace(member, rack=None) for member in self.members))


def cost_unit(costs: Mapping[str, Mapping[str, float]]) -> float:
    """Return the unit in which costs are counted, so that sums of half a million of them are exact integers."""
    largest = max((cost for reader, row in costs.items() for rack, cost in row.items() if rack != reader), default=1.0)
    return _SMALLEST_COST * max(1.0, largest / _LARGEST_COST)


_SMALLEST_COST = 1e-6

_LARGEST_COST = 1e6
"""Larger costs are counted in a coarser unit."""


def _check_costs(costs: Mapping[str, Mapping[str, float]]) -> None:
    for reader, row in costs.items():
        for rack, cost in row.items():
            _check_amount(f"costs.{reader}.{rack}", cost)
    unit = cost_unit(costs)
    for reader, row in costs.items():
        for rack, cost in row.items():
            # It would count as free, in a plan that is called optimal. In one's own rack it is.
            if 0 < cost < unit and rack != reader:
                raise InputError(
                    f"costs.{reader}.{rack}",
                    f"expected 0, or at least {unit:g} beside the other costs, got {short_repr(cost)}; only ratios"
                    " count, and a missing pair costs 1, so choose a larger unit",
                )


def _check_sets(copartition: Sequence[Sequence[str]]) -> None:
    if isinstance(copartition, (str, bytes)) or not isinstance(copartition, Sequence):
        raise InputError("copartition", f"expected lists of topics, got {short_repr(copartition)}")
    known: set[str] = set()
    for i, topics in enumerate(copartition):
        if isinstance(topics, (str, bytes)) or not isinstance(topics, Sequence):
            raise InputError(f"copartition[{i}]", f"expected a list of topics, got {short_repr(topics)}")
        if len(topics) < _LEAST_TOPICS:
            raise InputError(f"copartition[{i}]", f"expected two topics or more, got {short_repr(topics)}")
        for j, topic in enumerate(topics):
            if topic == "" or not isinstance(topic, str):
                raise InputError(f"copartition[{i}][{j}]", f"expected a topic, got {short_repr(topic)}")
            if topic in known:
                raise InputError(f"copartition[{i}][{j}]", f"{short_repr(topic)} is listed twice")
            known.add(topic)


_LEAST_TOPICS = 2


def _check_amount(path: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(path, f"expected a number, got {short_repr(value)}")
    try:
        fits = math.isfinite(value) and value >= 0
    except OverflowError:
        fits = False
    if not fits:
        raise InputError(path, f"expected a finite number, 0 or more, got {short_repr(value)}")


Reason = Literal["no-member-in-replica-racks", "members-full", "unknown-rack"]
"""Why a partition is not local."""


class NonLocalPartition(NamedTuple):
    """A partition that is not local, and the reason.

    Args:
        topic: Its topic.
        partition: Its ID.
        member: Its reader, by `target`.
        reason: `unknown-rack`: the member has no rack, or no counting replica has a known one.
            `no-member-in-replica-racks`: none of the topic's members is in a rack with a counting replica.
            `members-full`: some are, but each has its share, or would have to give up a partition that is as local.
    """

    topic: str
    partition: int
    member: str
    reason: Reason


Change = Literal["member", "max-skew", "replicas"]


class Recommendation(NamedTuple):
    """A recommended change with its gain, computed by solving the group with that change.

    Args:
        kind: `member`: one more member in `rack`, subscribed to `topics`. `max-skew`: the option, set to
            `max_skew`. `replicas`: a counting replica of each of `partitions` in `rack`.
        gain: Decrease of the number of cross-rack partitions.
        cost_gain: Decrease of the group's cost of cross-rack reads, in the unit of the group's costs; equal to
            `gain` for a group without costs.
        rack: For `member` and `replicas`.
        topics: For `member`.
        partitions: For `replicas`.
        max_skew: For `max-skew`.
    """

    kind: Change
    gain: int
    cost_gain: float
    rack: str | None = None
    topics: tuple[str, ...] = ()
    partitions: Partitions = MappingProxyType({})
    max_skew: int | None = None


class Explanation(NamedTuple):
    """Reasons for the non-local partitions of a plan, and recommendations.

    Args:
        not_local: Every partition that is not local, by topic and ID.
        advice: Recommendations, the best first; only those with a gain.
    """

    not_local: tuple[NonLocalPartition, ...]
    advice: tuple[Recommendation, ...]


def weight_misfits(weights: Mapping[str, Any], topics: Mapping[str, Sequence[Partition]]) -> list[str]:
    """Return, as text for users, the topics that have another number of weights than of partitions.

    Args:
        weights: A list of weights of each topic; what is no list is skipped.
        topics: Partitions of each topic.
    """
    rows = ((topic, len(partitions), weights.get(topic, ())) for topic, partitions in sorted(topics.items()))
    return [
        f"{topic} has {size} partitions and {len(row)} weights"
        for topic, size, row in rows
        if isinstance(row, Sized) and len(row) != size
    ]


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a strategy for a group.

    Args:
        strategy: Name of the strategy, as in the protocol.
        locality: Which replicas made a partition local.
        assignment: Assignment of this rebalance; an entry for every member, topics and IDs in order.
        target: Assignment that the group reaches once withheld partitions are revoked; equal to `assignment` for
            strategies that withhold nothing.
        withheld: Partitions in `target` that are not in `assignment`.
        moved: Number of partitions that leave a valid owner, over `target`.
        optimal: Whether the result is proven optimal; None for a strategy that does not optimize.
        seconds: Duration of the computation.
        proven: Objectives in which the result is proven optimal, in their order. Each is optimal within the ones before
            it.
        optimality_note: Why the other objectives are not proven; empty if all are.
        optimality_gap: With weights: how much heavier the heaviest load is, relative to the lower bound; None without
            weights.
        weight_loads: With weights: the lightest and the heaviest load; None without.
        explain_fn: Function of the strategy that `explain` calls.
    """

    strategy: StrategyName
    locality: LocalityMode
    assignment: Mapping[str, Partitions]
    target: Mapping[str, Partitions]
    withheld: Partitions
    moved: int
    optimal: bool | None
    seconds: float
    proven: tuple[PlanObjective, ...] = ()
    optimality_note: str = ""
    optimality_gap: float | None = None
    weight_loads: tuple[float, float] | None = None
    explain_fn: Callable[[Plan], Explanation] | None = field(default=None, repr=False, compare=False)

    def unproven(self) -> str:
        """Return how far the plan may be from the best one, and why, as text for users; empty if it is proven."""
        if not self.optimality_note:
            return ""
        if self.optimality_gap is not None:
            return f"the heaviest load is up to {self.optimality_gap:.1%} above the least: {self.optimality_note}"
        return f"proven optimal in {', '.join(self.proven) or 'no objective'} only: {self.optimality_note}"

    def explain(self) -> Explanation:
        """Return the reason for each non-local partition, and recommendations. Solves the group a few times more."""
        return Explanation((), ()) if self.explain_fn is None else self.explain_fn(self)
