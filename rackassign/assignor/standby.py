"""Placing standbys: which members keep copies of which partitions (KIP-708, KIP-441).

Members send in their subscription's user data what members of Kafka Streams send: their client tags, and the positions
of their copies. The leader sends in each assignment's user data which copies the member is to keep. A task is a
partition of a topic: the name of the topology is the topic's.

The leader compares the copies with the ends of the changelogs, as far as they are known. A member that is to take over
a partition from a live member first keeps a copy of it, and requests another rebalance once that copy is warm. The
partitions for which this is pending are sent where the leader of Kafka Streams sends the standbys of a host: they are
those of the host `warming:0`.

Three parts do this: `StandbyCodec` encodes what a member sends, `StandbyPlanner` places copies as the leader, and
`StandbyCopies` are the copies that this member is to keep.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID, uuid4

from rackassign.assignor.history import LeaderAssignment
from rackassign.assignor.member import MemberContext
from rackassign.assignor.optimal_planner import OptimalPlanner
from rackassign.assignor.planner import Planning
from rackassign.assignor.subscriptions import CooperativeCodec, JoinMember
from rackassign.errors import ConfigError, WireError
from rackassign.model import Group, Partitions, TopicPartition
from rackassign.strategies import Planned
from rackassign.strategies.standby import Copies, StandbyOptions, StandbyPlan, assign_standbys, validate_client_tags
from rackassign.text import short_repr
from rackassign.util.callbacks import check_function
from rackassign.wire import Subscription
from rackassign.wire.streams import (
    ACTIVE_SUM,
    NO_REBALANCE,
    StreamsAssignmentInfo,
    StreamsSubscriptionInfo,
    TaskId,
    decode_streams,
    decode_streams_assignment,
    encode_streams,
    encode_streams_assignment,
)

Positions = Mapping[TopicPartition, int]
"""Offsets in changelogs, by the partition whose state the changelog has."""

OnStandbys = Callable[[frozenset[TopicPartition], frozenset[TopicPartition]], None]
"""Called with the copies to be kept from now on, and with those to be removed."""

NAME = "rackassign-standby"


def default_changelog(group: str, *topics: str) -> str:
    """Return the name of a topic's changelog, or of that of co-partitioned topics, if members choose no other."""
    return f"{group}-{'-'.join(sorted(topics))}-changelog"


_WHEN_WARM = 0
"""Value of the next rebalance's time: as soon as all copies of this member are warm."""

_WARMING = "warming:0"
_NAMED = 5

_CHECK_INTERVAL_S = 1.0

_MAX_INTERVAL_S = 600.0
"""Kafka's probing.rebalance.interval.ms."""


@dataclass(frozen=True, slots=True)
class StandbyConfig:
    """Options of a member that keeps copies."""

    # Kafka's `client.tag.*`, up to five. Errors in tags have Kafka's own messages.
    client_tags: Mapping[str, str] = field(default_factory=dict)
    # How copies are placed; the leader's options apply. Their tags must be among this member's.
    standbys: StandbyOptions = field(default_factory=StandbyOptions)
    # Returns the changelog positions of this member's copies, except of partitions for which it is active. It is called
    # where the client handles its group, and must not block. Without it all copies that are to be kept count as warm.
    positions: Callable[[], Positions] | None = None
    # Returns the known ends of changelogs; called in the same way, but not any more once it was too slow. If no end is
    # known, the most advanced copy counts as warm.
    ends: Callable[[], Positions] = dict
    # Called with added and removed copies, in the same way. Partitions for which this member becomes active are among
    # the removed ones. It is not called when the member unsubscribes.
    on_standbys: OnStandbys | None = None
    # Returns the name of a topic's changelog, for readers of the assignment.
    changelog: Callable[[str], str] = "{}-changelog".format
    # The leader's sets apply. Copies of such a state are named by the first topic of the set in alphabetical order.
    copartition: Sequence[Sequence[str]] = ()

    def __post_init__(self) -> None:
        standbys: object = self.standbys
        if not isinstance(standbys, StandbyOptions):
            raise ConfigError(f"standbys must be StandbyOptions, got {short_repr(standbys)}")
        check_function(self.ends, "ends")
        check_function(self.changelog, "changelog", "topic")
        if self.positions is not None:
            check_function(self.positions, "positions")
        if self.on_standbys is not None:
            check_function(self.on_standbys, "on_standbys", "added", "removed")
        tags = validate_client_tags(self.client_tags, standbys.rack_aware_assignment_tags)
        object.__setattr__(self, "client_tags", tags)


class StandbyCopies:
    """The copies that a member is to keep."""

    def __init__(self, member: MemberContext, config: StandbyConfig) -> None:
        self._member = member
        self._config = config
        self.topics: frozenset[str] = frozenset()
        self.kept: frozenset[TopicPartition] = frozenset()
        self._awaited: frozenset[TopicPartition] = frozenset()
        self._retry_interval_s = 0.0

    def positions(self) -> Positions:
        """Return the changelog positions of the copies; raises whatever the user's function does.

        A copy, since the user's own mapping may change on a thread that restores copies.
        """
        return dict.fromkeys(self.kept, 0) if self._config.positions is None else dict(self._config.positions())

    def on_assigned(self, user_data: bytes | None) -> None:
        """Record the copies this member is to keep; without user data they are unchanged."""
        if not user_data:
            return
        try:
            decoded = decode_streams_assignment(user_data)
            standbys = map(_tp, decoded.standby)
            assigned_standbys = frozenset(tp for tp in standbys if tp.topic in self.topics and tp.partition >= 0)
        except WireError as error:
            self._warn("standbys", "%s: the copies to keep cannot be decoded: %s", error)
            return
        before, self.kept = self.kept, assigned_standbys
        if self._config.on_standbys is not None and assigned_standbys != before:
            with self._member.user_code("on_standbys", "on_standbys raised"):
                self._config.on_standbys(assigned_standbys - before, before - assigned_standbys)
        awaited = assigned_standbys.intersection(decoded.standby_hosts.get(_WARMING, ()))
        if awaited != self._awaited:
            self._retry_interval_s = 0.0
        self._awaited = awaited
        if not awaited or decoded.next_rebalance_ms != _WHEN_WARM:
            return
        if not self._retry_interval_s:
            self._await_warm(awaited)
        elif self._member.membership is not None:
            self._warn(
                "in vain",
                "%s: copies that are warm here are not warm for the leader, which has later ends or another "
                "acceptable_recovery_lag; rebalances are requested less and less often",
            )
            self._member.membership.call_later(self._retry_interval_s, lambda: self._await_warm(awaited))

    def _await_warm(self, awaited: frozenset[TopicPartition]) -> None:
        """Request another rebalance once these copies are warm, unless another one comes first.

        A leader with other ends or another acceptable lag may not agree: each rebalance that is requested in vain
        doubles the time until the next one.
        """
        membership = self._member.membership
        if membership is None or self._awaited is not awaited:
            return
        lags: Mapping[TopicPartition, int] = {}
        with self._member.user_code("ends", "the ends of changelogs are not available"):
            positions = {_task(tp): position for tp, position in self.positions().items()}
            lags = _lags({"self": positions}, self._config.ends())["self"]
        if all(lags.get(tp, _FAR) <= self._config.standbys.acceptable_recovery_lag for tp in awaited):
            self._retry_interval_s = min(_MAX_INTERVAL_S, max(_CHECK_INTERVAL_S, 2 * self._retry_interval_s))
            membership.request_rejoin()
        else:
            membership.call_later(_CHECK_INTERVAL_S, lambda: self._await_warm(awaited))

    def _warn(self, key: str, text: str, *args: object, exc_info: bool = False) -> None:
        self._member.once.warn(key, text, self._member.name, *args, exc_info=exc_info)


class StandbyCodec(CooperativeCodec):
    """The cooperative subscription, with tags and positions of copies as user data."""

    def __init__(self, member: MemberContext, config: StandbyConfig, copies: StandbyCopies) -> None:
        super().__init__(member)
        self._config = config
        self._copies = copies
        self._process: UUID = uuid4()

    def encode(self, topics: tuple[str, ...]) -> Subscription:
        sent = super().encode(topics)
        self._copies.topics = frozenset(topics)
        sums = {_task(tp): ACTIVE_SUM for tp in _tps(sent.owned)}
        user_data = b""
        with self._member.user_code("positions", "the positions of copies are not available"):
            for tp, position in self._copies.positions().items():
                sums.setdefault(_task(tp), position)
            user_data = encode_streams(StreamsSubscriptionInfo(self._process, sums, self._config.client_tags))
        if not user_data:
            user_data = encode_streams(StreamsSubscriptionInfo(self._process, tags=self._config.client_tags))
        return replace(sent, user_data=user_data)


class StandbyPlanner(OptimalPlanner):
    """Sticky and local assignment, with standbys spread over client tags.

    The rack monitor compares assignments with the cooperative strategy alone.
    """

    planned: Planned = "standbys"

    def __init__(self, member: MemberContext, config: StandbyConfig) -> None:
        super().__init__(member, "cooperative-sticky", copartition=config.copartition)
        self._config = config
        self._missing = 0

    def prepare(self, group: Group, members: Sequence[JoinMember]) -> Planning:
        """Decode the user data of all members, and return the function that plans."""
        infos = {joined.id: self._decoded_user_data(joined) for joined in members}
        copies = self._copies({member: info.task_offset_sums for member, info in infos.items()})
        self._warn_of_missing_tags(infos)
        self._warn_of_single_values(infos)
        members_with_tags = tuple(replace(each, tags=infos[each.id].tags) for each in group.members)
        tagged = replace(group, members=members_with_tags, copartition=self.copartition)
        return lambda limit_s: self._plan(tagged, copies, limit_s)

    def _plan(self, group: Group, copies: Copies, limit_s: float) -> LeaderAssignment:
        self.warn_of_exceptions(group)
        config, options = self._config, replace(self.options, time_limit_s=limit_s)
        assignment = assign_standbys(group, copies, config.standbys, options)
        missing, partitions = sum(assignment.missing.values()), len(assignment.missing)
        if missing != self._missing:
            self._member.log.log(
                logging.WARNING if missing > self._missing else logging.INFO,
                "%s: %d standbys of %d partitions cannot be placed: there are too few members, or values of their tags",
                *(self._member.name, missing, partitions),
            )
        self._missing = missing
        plan = assignment.plan
        return LeaderAssignment(plan.assignment, not plan.withheld, group, plan, self._user_data(assignment))

    def _copies(self, sums: Mapping[str, Mapping[TaskId, int]]) -> Copies:
        with self._member.user_code("ends", "the ends of changelogs are not available"):
            return _lags(sums, self._ends())
        return _lags(sums, {})

    def _ends(self) -> Positions:
        """Return the known ends of changelogs; none once the user's function has taken too long."""
        if "ends" in self._member.too_slow:
            return {}
        with self._member.timed("ends", "the most advanced copies count as warm"):
            return dict(self._config.ends())

    def _warn_of_missing_tags(self, infos: Mapping[str, StreamsSubscriptionInfo]) -> None:
        wanted = self._config.standbys.rack_aware_assignment_tags
        untagged = sorted(member for member, info in infos.items() if any(key not in info.tags for key in wanted))
        if untagged:
            self._member.once.warn(
                "untagged",
                "%s: %d members do not have all of the tags %s, so their copies are not separated from others: %s",
                *(self._member.name, len(untagged), ", ".join(wanted), ", ".join(untagged[:_NAMED])),
                about=tuple(untagged),
            )

    def _warn_of_single_values(self, infos: Mapping[str, StreamsSubscriptionInfo]) -> None:
        """Warn if no other value of a tag is there for copies; a strict rule reports the copies that are missing."""
        options = self._config.standbys
        if len(infos) <= 1 or not options.num_standby_replicas or options.rule == "strict":
            return
        for key in options.rack_aware_assignment_tags:
            values = {info.tags.get(key) for info in infos.values()}
            if len(values) == 1 and None not in values and key not in options.forced_tag_values:
                (value,) = values
                self._member.once.warn(
                    "single",
                    "%s: all %d members have %s=%s, so all copies of a partition are there",
                    *(self._member.name, len(infos), key, value),
                    about=(key, value),
                )

    def _decoded_user_data(self, joined: JoinMember) -> StreamsSubscriptionInfo:
        """Return the decoded user data of a member; empty if it cannot be decoded."""
        try:
            return decode_streams(joined.subscription.user_data or b"")
        except WireError as error:
            self._member.once.warn(
                "tags", "%s: tags of member %s cannot be read: %s", self._member.name, joined.id, error, about=joined.id
            )
            return StreamsSubscriptionInfo()

    def _user_data(self, found: StandbyPlan) -> Mapping[str, bytes]:
        """Return user data of each member's assignment; empty if it cannot be encoded."""
        with self._member.user_code("user data", "the copies to keep cannot be sent to members"):
            return {member: self._encoded(found, member, given) for member, given in found.plan.assignment.items()}
        return {}

    def _encoded(self, found: StandbyPlan, member: str, given: Partitions) -> bytes:
        awaited = tuple(_tps(found.warmups[member]))
        return encode_streams_assignment(
            StreamsAssignmentInfo(
                tuple(map(_task, _tps(given))),
                {
                    _task(tp): (TopicPartition(self._config.changelog(tp.topic), tp.partition),)
                    for tp in _tps(found.standbys[member])
                },
                standby_hosts={_WARMING: awaited} if awaited else {},
                next_rebalance_ms=_WHEN_WARM if awaited else NO_REBALANCE,
            )
        )


_FAR = 1 << 62


def _lags(sums: Mapping[str, Mapping[TaskId, int]], ends: Positions) -> Copies:
    """Return the lag of each member's copies in records; 0 for the most advanced copy if no end is known."""
    furthest: dict[TopicPartition, int] = dict(ends)
    for theirs in sums.values():
        for task, position in theirs.items():
            tp = _tp(task)
            if tp not in ends:
                furthest[tp] = max(furthest.get(tp, 0), position)
    return {
        member: {
            _tp(task): 0 if position == ACTIVE_SUM else max(0, furthest[_tp(task)] - position)
            for task, position in theirs.items()
            if position >= 0 or position == ACTIVE_SUM
        }
        for member, theirs in sums.items()
    }


def _task(tp: TopicPartition) -> TaskId:
    return TaskId(0, tp.partition, tp.topic)


def _tp(task: TaskId) -> TopicPartition:
    return TopicPartition(task.topology or "", task.partition)


def _tps(partitions: Partitions) -> Iterable[TopicPartition]:
    return (TopicPartition(topic, partition) for topic, ids in partitions.items() for partition in ids)
