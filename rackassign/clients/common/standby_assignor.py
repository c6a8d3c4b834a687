"""Assignor that also places standbys: which members keep copies of which partitions (KIP-708, KIP-441).

Members send in their subscription's user data what members of Kafka Streams send: their client tags, and the positions
of their copies. The leader sends in each assignment's user data which copies the member is to keep. A task is a
partition of a topic: the name of the topology is the topic's.

The leader compares the copies with the ends of the changelogs, as far as they are known. A member that is to take over
a partition from a live member first keeps a copy of it, and requests another rebalance once that copy is warm. The
partitions for which this is pending are sent where the leader of Kafka Streams sends the standbys of a host: they are
those of the host `warming:0`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from uuid import uuid4

from rackassign.clients.common.adapter import AnyCluster
from rackassign.clients.common.assignor import FROM_ENVIRONMENT, WATCHING, EnvRackDefault
from rackassign.clients.common.rack_monitor import RackChangePolicy
from rackassign.clients.common.sticky_assignor import CooperativeStickyAssignor
from rackassign.clients.common.subscriptions import JoinMember
from rackassign.errors import ConfigError, WireError
from rackassign.model import Group, Partitions, Plan, TopicPartition
from rackassign.strategies import Options
from rackassign.strategies.standby import Copies, StandbyOptions, StandbyPlan, assign_standbys, validate_client_tags
from rackassign.util.text import short_repr
from rackassign.wire import (
    ACTIVE_SUM,
    NO_REBALANCE,
    StreamsAssignmentInfo,
    StreamsSubscriptionInfo,
    Subscription,
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

_WHEN_WARM = 0
"""Value of the next rebalance's time: as soon as all copies of this member are warm."""

_WARMING = "warming:0"
_NAMED = 5

_LOOK_S = 1.0

_LONGEST_S = 600.0
"""Kafka's probing.rebalance.interval.ms."""


class StandbyAssignor(CooperativeStickyAssignor):
    """Sticky and local assignment, with standbys spread over client tags (KIP-708), for the cooperative protocol.

    Args:
        rack: As for `Assignor`.
        client_tags: Client tags of this member, up to five; Kafka's `client.tag.*`.
        standbys: How copies are placed; the leader's options apply. Their tags must be among this member's.
        positions: Returns the changelog positions of this member's copies, except of partitions for which it is
            active. It is called where the client handles its group, and must not block. Without it all copies that are
            to be kept count as warm.
        ends: Returns the known ends of changelogs; called in the same way. If no end is known, the most advanced copy
            counts as warm.
        on_standbys: Called with added and removed copies, in the same way. Partitions for which this member becomes
            active are among the removed ones. It is not called when the member unsubscribes.
        changelog: Returns the name of a topic's changelog, for readers of the assignment.
        locality: As for `Assignor`.
        name: As for `Assignor`, with a default of its own, because other assignors cannot read what its members send.
        rack_monitor: As for `Assignor`.

    Raises:
        ConfigError: If an option is not valid; errors in tags have Kafka's own messages.
    """

    name = NAME

    def __init__(
        self,
        rack: str | EnvRackDefault | None = FROM_ENVIRONMENT,
        *,
        client_tags: Mapping[str, str] | None = None,
        standbys: StandbyOptions | None = None,
        positions: Callable[[], Positions] | None = None,
        ends: Callable[[], Positions] = dict,
        on_standbys: OnStandbys | None = None,
        changelog: Callable[[str], str] = "{}-changelog".format,
        locality: str = "any-replica",
        name: str | None = None,
        rack_monitor: RackChangePolicy | None = WATCHING,
    ) -> None:
        super().__init__(rack, locality=locality, name=name, rack_monitor=rack_monitor)
        if not isinstance(standbys, StandbyOptions | None):
            raise ConfigError(f"standbys must be StandbyOptions, got {short_repr(standbys)}")
        functions: dict[str, object] = {"ends": ends, "changelog": changelog}
        optional = {"positions": positions, "on_standbys": on_standbys}
        functions.update({option: value for option, value in optional.items() if value is not None})
        for option, value in functions.items():
            if not callable(value):
                raise ConfigError(f"{option} must be a function, got {short_repr(value)}")
        self._standbys = standbys or StandbyOptions()
        self._tags = validate_client_tags(client_tags or {}, self._standbys.rack_aware_assignment_tags)
        self._positions = positions or self._all_warm
        self._ends = ends
        self._on_standbys = on_standbys
        self._changelog = changelog
        self._process = uuid4()
        self._kept: frozenset[TopicPartition] = frozenset()
        self._awaited: frozenset[TopicPartition] = frozenset()
        self._in_vain_s = 0.0
        self._missing = 0
        self._topics: frozenset[str] = frozenset()
        self._copies: Copies = {}
        self._found: StandbyPlan | None = None
        self._strategy = self._plan

    @property
    def standbys(self) -> frozenset[TopicPartition]:
        """The partitions of which this member is to keep a copy."""
        return self._kept

    @property
    def generation(self) -> int:
        """The generation of the last assignment; -1 before there was one."""
        return self._generation

    def request_rejoin(self) -> None:
        """Make this member rejoin with its next poll, if its consumer is known."""
        if self._membership is not None:
            self._membership.request_rejoin()

    def _plan(self, group: Group, options: Options) -> Plan:
        self._found = assign_standbys(group, self._copies, self._standbys, options)
        missing, partitions = sum(self._found.missing.values()), len(self._found.missing)
        if missing != self._missing:
            self._log.log(
                logging.WARNING if missing > self._missing else logging.INFO,
                "%s: %d standbys of %d partitions cannot be placed: there are too few members, or values of their tags",
                *(self.name, missing, partitions),
            )
        self._missing = missing
        return self._found.plan

    def _all_warm(self) -> Positions:
        return dict.fromkeys(self._kept, 0)

    def _subscription(self, topics: tuple[str, ...]) -> Subscription:
        sent = super()._subscription(topics)
        self._topics = frozenset(topics)
        sums = {_task(place): ACTIVE_SUM for place in _places(sent.owned)}
        try:
            for place, position in self._positions().items():
                sums.setdefault(_task(place), position)
            user_data = encode_streams(StreamsSubscriptionInfo(self._process, sums, self._tags))
        except Exception:  # noqa: BLE001 - the owner's function, whatever it raises: every poll() would fail
            self._once.warn("positions", "%s: the positions of copies are not available", self.name, exc_info=True)
            user_data = encode_streams(StreamsSubscriptionInfo(self._process, tags=self._tags))
        return replace(sent, user_data=user_data)

    def _group(self, cluster: AnyCluster, members: list[JoinMember]) -> Group:
        group = super()._group(cluster, members)
        infos = {joined.id: self._decoded_user_data(joined) for joined in members}
        sums = {member: info.task_offset_sums for member, info in infos.items()}
        try:
            self._copies = _lags(sums, self._ends())
        except Exception:  # noqa: BLE001 - the owner's function, whatever it raises or returns
            self._once.warn("ends", "%s: the ends of changelogs are not available", self.name, exc_info=True)
            self._copies = _lags(sums, {})
        wanted = self._standbys.rack_aware_assignment_tags
        untagged = sorted(member for member, info in infos.items() if any(key not in info.tags for key in wanted))
        if untagged:
            self._once.warn(
                "untagged",
                "%s: %d members do not have all of the tags %s, so their copies are not separated from others: %s",
                *(self.name, len(untagged), ", ".join(wanted), ", ".join(untagged[:_NAMED])),
                about=tuple(untagged),
            )
        return replace(group, members=tuple(replace(member, tags=infos[member.id].tags) for member in group.members))

    def _decoded_user_data(self, joined: JoinMember) -> StreamsSubscriptionInfo:
        """Return the decoded user data of a member; empty if it cannot be decoded."""
        try:
            return decode_streams(joined.subscription.user_data or b"")
        except WireError as error:
            self._once.warn(
                "tags", "%s: tags of member %s cannot be read: %s", self.name, joined.id, error, about=joined.id
            )
            return StreamsSubscriptionInfo()

    def assignment_user_data(self, assignment: Mapping[str, Partitions]) -> dict[str, bytes]:
        """Return user data of each member's assignment; empty if standbys could not be planned."""
        found, self._found = self._found, None
        if found is None or assignment is not found.plan.assignment:
            return {}
        try:
            return {member: self._what_for(found, member, given) for member, given in assignment.items()}
        except Exception:  # noqa: BLE001 - without this no member would get an assignment
            self._once.warn("user data", "%s: the copies to keep cannot be sent to members", self.name, exc_info=True)
            return {}

    def _what_for(self, found: StandbyPlan, member: str, given: Partitions) -> bytes:
        awaited = tuple(_places(found.warmups[member]))
        return encode_streams_assignment(
            StreamsAssignmentInfo(
                tuple(map(_task, _places(given))),
                {
                    _task(place): (TopicPartition(self._changelog(place.topic), place.partition),)
                    for place in _places(found.standbys[member])
                },
                standby_hosts={_WARMING: awaited} if awaited else {},
                next_rebalance_ms=_WHEN_WARM if awaited else NO_REBALANCE,
            )
        )

    def apply_standby_user_data(self, user_data: bytes | None) -> None:
        """Record the copies this member is to keep; without user data they are unchanged."""
        if not user_data:
            return
        try:
            decoded = decode_streams_assignment(user_data)
            standbys = map(_place, decoded.standby)
            kept = frozenset(place for place in standbys if place.topic in self._topics and place.partition >= 0)
        except WireError as error:
            self._once.warn("standbys", "%s: the copies to keep cannot be decoded: %s", self.name, error)
            return
        before, self._kept = self._kept, kept
        if self._on_standbys is not None and kept != before:
            try:
                self._on_standbys(kept - before, before - kept)
            except Exception:  # noqa: BLE001 - the owner's function must not keep a member from its partitions
                self._once.warn("on_standbys", "%s: on_standbys raised", self.name, exc_info=True)
        awaited = kept.intersection(decoded.standby_hosts.get(_WARMING, ()))
        if awaited != self._awaited:
            self._in_vain_s = 0.0
        self._awaited = awaited
        if not awaited or decoded.next_rebalance_ms != _WHEN_WARM:
            return
        if not self._in_vain_s:
            self._await_warm(awaited)
        elif self._membership is not None:
            self._once.warn(
                "in vain",
                "%s: copies that are warm here are not warm for the leader, which has later ends or another "
                "acceptable_recovery_lag; rebalances are requested less and less often",
                self.name,
            )
            self._membership.call_later(self._in_vain_s, lambda: self._await_warm(awaited))

    def _await_warm(self, awaited: frozenset[TopicPartition]) -> None:
        """Request another rebalance once these copies are warm, unless another one comes first.

        A leader with other ends or another acceptable lag may not agree: each rebalance that is requested in vain
        doubles the time until the next one.
        """
        if self._membership is None or self._awaited is not awaited:
            return
        try:
            lags = _lags({"it": {_task(place): at for place, at in self._positions().items()}}, self._ends())["it"]
        except Exception:  # noqa: BLE001 - the owner's functions: then nothing is known, and looked at again
            lags = {}
        if all(lags.get(place, _FAR) <= self._standbys.acceptable_recovery_lag for place in awaited):
            self._in_vain_s = min(_LONGEST_S, max(_LOOK_S, 2 * self._in_vain_s))
            self._membership.request_rejoin()
        else:
            self._membership.call_later(_LOOK_S, lambda: self._await_warm(awaited))


_FAR = 1 << 62


def _lags(sums: Mapping[str, Mapping[TaskId, int]], ends: Positions) -> Copies:
    """Return the lag of each member's copies in records; 0 for the most advanced copy if no end is known."""
    furthest: dict[TopicPartition, int] = dict(ends)
    for theirs in sums.values():
        for task, position in theirs.items():
            place = _place(task)
            if place not in ends:
                furthest[place] = max(furthest.get(place, 0), position)
    return {
        member: {
            _place(task): 0 if position == ACTIVE_SUM else max(0, furthest[_place(task)] - position)
            for task, position in theirs.items()
            if position >= 0 or position == ACTIVE_SUM
        }
        for member, theirs in sums.items()
    }


def _task(place: TopicPartition) -> TaskId:
    return TaskId(0, place.partition, place.topic)


def _place(task: TaskId) -> TopicPartition:
    return TopicPartition(task.topology or "", task.partition)


def _places(partitions: Partitions) -> Iterable[TopicPartition]:
    return (TopicPartition(topic, partition) for topic, ids in partitions.items() for partition in ids)
