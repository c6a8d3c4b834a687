"""The assignor that also places warm copies: who keeps which, besides who runs what (KIP-708, KIP-441).

Members say in their subscription's user data what Kafka Streams' members say there: their client tags, and how far
their copies are. The leader says in each assignment's user data which copies that member is to keep. A task is a
partition of a topic: the name of the topology is the topic's.

Copies that members have are compared with the ends of the changelogs as the leader knows them. A member that is to take
over a partition from one that lives keeps a copy of it first, and asks for another round once that is warm. Which ones
are waited for stands where Kafka Streams' leader says what a host has on standby: those of the host `warming:0`.
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
"""Offsets in the changelog, by the partition whose state it holds."""

OnStandbys = Callable[[frozenset[TopicPartition], frozenset[TopicPartition]], None]
"""Told of copies that are to be kept from now on, and of those no more."""

NAME = "rackassign-standby"

_WHEN_WARM = 0
"""As the time of the next rebalance: as soon as all copies of this member are warm."""

_WARMING = "warming:0"
_NAMED = 5

_LOOK_S = 1.0

_LONGEST_S = 600.0
"""Kafka's probing.rebalance.interval.ms."""


class StandbyAssignor(CooperativeStickyAssignor):
    """Sticky assignment near home, and standbys spread over client tags (KIP-708), for the cooperative protocol.

    Args:
        rack: As for `Assignor`.
        client_tags: Of this member, up to five; Kafka's `client.tag.*`.
        standbys: How copies are placed; the leader's count. Its tags must be among this member's.
        positions: Tells how far this member's copies are in their changelogs, those of partitions it runs left out.
            It is called where the client handles its group, and must not block. Without it all copies that are to be
            kept count as warm.
        ends: Tells where changelogs end, as far as that is known; the same. Where no end is known, the furthest copy
            counts as warm.
        on_standbys: Told of what is added and what is removed, in the same place. What this member runs from now on is
            among what is removed; and it is not called when the member unsubscribes.
        changelog: Names the changelog of a topic, for who reads the assignment.
        locality: As for `Assignor`.
        name: The same; of our own by default, since others cannot read what its members send.
        rack_monitor: As of `Assignor`.

    Raises:
        ConfigError: If an option cannot work; tags are refused with Kafka's own words.
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
        functions.update({told: value for told, value in optional.items() if value is not None})
        for told, value in functions.items():
            if not callable(value):
                raise ConfigError(f"{told} must be a function, got {short_repr(value)}")
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
        """The partitions this member is to keep a copy of."""
        return self._kept

    @property
    def generation(self) -> int:
        """The generation of the last assignment; -1 before there was one."""
        return self._generation

    def request_rejoin(self) -> None:
        """Have this member join again with its next poll, if it is known whose it is."""
        if self._membership is not None:
            self._membership.request_rejoin()

    def _plan(self, group: Group, options: Options) -> Plan:
        self._found = assign_standbys(group, self._copies, self._standbys, options)
        missing, partitions = sum(self._found.missing.values()), len(self._found.missing)
        if missing != self._missing:
            self._log.log(
                logging.WARNING if missing > self._missing else logging.INFO,
                "%s: %d standbys of %d partitions have no place: members are too few, or the values of their tags",
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
            self._once.warn("positions", "%s: what copies there are cannot be told", self.name, exc_info=True)
            user_data = encode_streams(StreamsSubscriptionInfo(self._process, tags=self._tags))
        return replace(sent, user_data=user_data)

    def _group(self, cluster: AnyCluster, members: list[JoinMember]) -> Group:
        group = super()._group(cluster, members)
        said = {joined.id: self._said(joined) for joined in members}
        sums = {member: info.task_offset_sums for member, info in said.items()}
        try:
            self._copies = _lags(sums, self._ends())
        except Exception:  # noqa: BLE001 - the owner's function, whatever it raises or returns
            self._once.warn("ends", "%s: where changelogs end cannot be told", self.name, exc_info=True)
            self._copies = _lags(sums, {})
        wanted = self._standbys.rack_aware_assignment_tags
        untagged = sorted(member for member, info in said.items() if any(key not in info.tags for key in wanted))
        if untagged:
            self._once.warn(
                "untagged",
                "%s: %d members do not have all of the tags %s, so their copies are not kept apart from others: %s",
                *(self.name, len(untagged), ", ".join(wanted), ", ".join(untagged[:_NAMED])),
                about=tuple(untagged),
            )
        return replace(group, members=tuple(replace(member, tags=said[member.id].tags) for member in group.members))

    def _said(self, joined: JoinMember) -> StreamsSubscriptionInfo:
        """Return what a member says of itself; nothing if that cannot be read."""
        try:
            return decode_streams(joined.subscription.user_data or b"")
        except WireError as error:
            self._once.warn(
                "said", "%s: tags of member %s cannot be read: %s", self.name, joined.id, error, about=joined.id
            )
            return StreamsSubscriptionInfo()

    def assignment_user_data(self, assignment: Mapping[str, Partitions]) -> dict[str, bytes]:
        """Return what goes with each member's assignment; nothing where standbys could not be planned."""
        found, self._found = self._found, None
        if found is None or assignment is not found.plan.assignment:
            return {}
        try:
            return {member: self._what_for(found, member, given) for member, given in assignment.items()}
        except Exception:  # noqa: BLE001 - the owner's function names changelogs, and nobody would get anything
            self._once.warn("told", "%s: members cannot be told what copies to keep", self.name, exc_info=True)
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
        """Take note of the copies this member is to keep; where nothing is said of them, they stay as they are."""
        if not user_data:
            return
        try:
            said = decode_streams_assignment(user_data)
            told = map(_place, said.standby)
            kept = frozenset(place for place in told if place.topic in self._topics and place.partition >= 0)
        except WireError as error:
            self._once.warn("standbys", "%s: what copies to keep cannot be read: %s", self.name, error)
            return
        before, self._kept = self._kept, kept
        if self._on_standbys is not None and kept != before:
            try:
                self._on_standbys(kept - before, before - kept)
            except Exception:  # noqa: BLE001 - the owner's function must not keep a member from its partitions
                self._once.warn("on_standbys", "%s: on_standbys raised", self.name, exc_info=True)
        awaited = kept.intersection(said.standby_hosts.get(_WARMING, ()))
        if awaited != self._awaited:
            self._in_vain_s = 0.0
        self._awaited = awaited
        if not awaited or said.next_rebalance_ms != _WHEN_WARM:
            return
        if not self._in_vain_s:
            self._await_warm(awaited)
        elif self._membership is not None:
            self._once.warn(
                "in vain",
                "%s: copies that are warm here are not for the leader, which knows of later ends or has another "
                "acceptable_recovery_lag; it is asked less and less often",
                self.name,
            )
            self._membership.call_later(self._in_vain_s, lambda: self._await_warm(awaited))

    def _await_warm(self, awaited: frozenset[TopicPartition]) -> None:
        """Ask for another round once these copies are warm, unless another one comes before.

        A leader that has other ends or another acceptable lag may not agree: each round that is asked for in vain
        doubles the time until the next one is.
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
    """Return how many records the copies of each member lack; of the furthest one none, where no end is known."""
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
