"""Shared base of the assignors of all clients, which composes a codec, a planner and a history.

Assignors run inside the client, where it handles its group. On the group leader they compute the assignment of all
members. So the first rule is: no exception leaves this module. If anything fails, the group gets a plain assignment,
which is valid and balanced, and the reason is logged once.

An assignor consists of parts that do not know each other:

* a codec (`subscriptions.py`): what the member sends, and which claims a leader reads;
* a planner (`planner.py`): the assignment of a group, and a fallback;
* a history (`history.py`): what this member has assigned as a leader;
* a rack monitor (`rack_monitor.py`): whether racks have changed since;
* for a static member, what its group has when it returns (`static_return.py`).

The classes of each client add three entry points: for the member's metadata, for the assignment of the group and for
the member's own assignment. Below the class: what an assignor logs, and the checks of a consumer that is configured
with assignors.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any, ClassVar, Final, NoReturn

from rackassign.assignor.adapter import AnyCluster, ClientAdapter, DescribedMember, GroupMembership
from rackassign.assignor.assignment_log import NAMED, format_assignment, format_group
from rackassign.assignor.history import (
    AssignmentHistory,
    LeaderAssignment,
    drop_stale_claims,
)
from rackassign.assignor.member import FROM_ENVIRONMENT, EnvRackDefault, MemberContext
from rackassign.assignor.planner import Planner, exclude_claimed
from rackassign.assignor.rack_monitor import RackChangeDetector, RackChangePolicy, RackMonitor
from rackassign.assignor.static_return import DescribedGroup
from rackassign.assignor.subscriptions import JoinMember, SubscriptionCodec, build_group, to_member
from rackassign.errors import ConfigError
from rackassign.locality import unknown_cost_racks
from rackassign.model import Group, Partitions
from rackassign.racks import BrokerRackCache
from rackassign.strategies import load
from rackassign.text import WarnOnce, join_first, short_repr
from rackassign.wire import Subscription

_CLAIMANTS = 3

DEFAULT_RACK_MONITOR: Final = RackChangePolicy()

_MAX_ROUNDS = 5
"""Limit of consecutive rebalances that a leader requests for the same members. Two are enough unless the claims of one
are always false."""


class Assignor:
    """Shared base of all assignors: sends the rack, reads the live topology, and never raises."""

    name: str
    _adapter: ClassVar[ClientAdapter]
    """The private side of the client."""
    _package: ClassVar[str]
    """Package of the client's assignors, for the names of their loggers."""

    def __init__(
        self, member: MemberContext, codec: SubscriptionCodec, planner: Planner, rack_monitor: RackChangePolicy | None
    ) -> None:
        self._member = member
        self.rack = member.rack
        self.locality = member.locality
        self.name = member.name
        self._codec = codec
        self._planner = planner
        self._history = AssignmentHistory()
        self._given: Partitions | None = None
        self._returned = False
        """Whether the present assignment is perhaps that of a static member before its restart."""
        self._requested_rounds = 0
        self._rounds_of: frozenset[str] = frozenset()
        self._monitor = self._new_monitor(rack_monitor)
        self.rack_compared = False
        """Whether the rack was compared with that of the consumer, `client_rack`."""

    def load(self) -> None:
        """Import what a plan needs; for a thread beside that of the client."""
        load(self._planner.planned)

    @classmethod
    def member_context(
        cls,
        rack: str | EnvRackDefault | None = FROM_ENVIRONMENT,
        locality: str = "any-replica",
        name: str | None = None,
    ) -> MemberContext:
        """Return the context of a new member, by the arguments of `RangeAssignor`."""
        # A subclass may have its own name: if the client gets the class, it reads the name from the class.
        chosen = cls.name if name is None else name
        return MemberContext(cls._adapter, cls._package, rack=rack, locality=locality, name=chosen)

    def _new_monitor(self, policy: RackChangePolicy | None) -> RackMonitor | None:
        if policy is not None and not isinstance(policy, RackChangePolicy):
            raise ConfigError(
                f"rack_monitor must be a RackChangePolicy, or None to disable it, got {short_repr(policy)}"
            )
        # A leader without rack gains nothing from racks (as in Java), and leaves monitoring to the next leader.
        if policy is None or self.rack is None:
            return None
        detector = RackChangeDetector(self._planner.strategy, self._planner.options, policy)
        log = logging.getLogger(f"{self._package}.watcher")
        return RackMonitor(detector, self._history, self._member.topology, log, self._member.once)

    def __reduce_ex__(self, protocol: object, /) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} belongs to one consumer and can be neither copied nor pickled: pass the class to "
            "each consumer, or an instance of its own"
        )

    def bind(self, membership: GroupMembership, racks: BrokerRackCache | None = None) -> None:
        """Bind this assignor to its consumer; `attach` does this, and `assign` if it can."""
        known = self._member.membership
        if known is not None and not known.same_consumer(membership):
            raise ConfigError(f"an instance of {type(self).__name__} belongs to one consumer: create one for each")
        self._member.membership = membership
        if racks is not None:
            self._member.racks = racks
        self._adapter.on_refresh(membership.cluster(), self._refreshed, self._member.once, key=self)

    def _joining(self, topics: Iterable[str]) -> Subscription:
        self._history.on_join()
        return self._codec.encode(tuple(sorted(topics)))

    def _decide(
        self, cluster: AnyCluster, members: Callable[[], list[JoinMember]], minimal: Callable[[], list[JoinMember]]
    ) -> LeaderAssignment:
        # `members` may raise. `minimal` decodes only what a fallback assignment needs, and raises nothing.
        planned = self._planning(cluster, members)()
        return self._settle(planned or self._fallback(cluster, minimal()))

    def _planning(
        self, cluster: AnyCluster, members: Callable[[], list[JoinMember]]
    ) -> Callable[[], LeaderAssignment | None]:
        """Decode the join, and return a function that plans for it and uses nothing of the client.

        Planning has a deadline: meanwhile most clients send no heartbeats, and a leader that is removed from its
        group never distributes the assignment. The function returns None if planning failed, and raises nothing.
        """
        begun = time.monotonic()
        self._find(cluster)
        try:
            joined = members()
            planning = self._planner.prepare(self._group(cluster, joined), joined)
        except Exception:  # noqa: BLE001 - anything raised here would leave the whole group without assignment
            self._warn_of_failure()
            return lambda: None
        limit_s = self._member.time_limit_s()

        def plan() -> LeaderAssignment | None:
            try:
                decision = planning(max(0.0, limit_s - (time.monotonic() - begun)))
                warn_of_ineffective_racks(decision, self._member, limit_s)
            except Exception:  # noqa: BLE001 - as above
                self._warn_of_failure()
                return None
            return decision

        return plan

    def _settle(self, decision: LeaderAssignment) -> LeaderAssignment:
        self._history.propose(decision)
        return decision

    def _warn_of_failure(self) -> None:
        self._member.once.warn(
            "failed",
            "%s: rack-aware assignment failed; the group gets a plain assignment instead",
            self.name,
            exc_info=True,
        )

    def _assigned(self, given: Partitions, generation: int) -> None:
        """Record this member's own assignment; as the leader, that of the group."""
        before, self._given = self._given, given
        self._history.commit(generation)
        self._planner.on_assigned(leads=self._history.last is not None)
        self._codec.on_assigned(given, generation)
        if self._codec.cooperative:
            self._request_next_round()
        self._log_assignment(given, before)
        membership = self._member.membership
        if membership is not None:
            unplanned = self._history.last is None and membership.static()
            self._returned = unplanned and (before is None or membership.leads())
            self._request_description(membership)
        if self._monitor is not None and self._member.membership is not None:
            self._monitor.check_after_assignment(self._member.membership, self._member.racks)

    def _request_next_round(self) -> None:
        """As a leader that has withheld partitions, request the rebalance that assigns them."""
        decided = self._history.last
        if decided is None or decided.complete:
            self._requested_rounds = 0
            return
        members = frozenset(decided.assignment)
        if members != self._rounds_of:
            # Each member that comes or goes may need another round.
            self._rounds_of, self._requested_rounds = members, 0
        self._requested_rounds += 1
        if self._requested_rounds > _MAX_ROUNDS:
            self._member.once.warn(
                "rounds",
                "%s: members keep claiming partitions that were not assigned to them: %s",
                *(self.name, join_first(_claimants_of_withheld(decided), _CLAIMANTS)),
            )
        else:
            self._member.request_rejoin()

    def _request_description(self, membership: GroupMembership) -> None:
        """As a static member that has perhaps returned, request what its coordinator knows of the group."""
        if not self._returned:
            return
        try:
            membership.describe_group(partial(self._described, membership.generation()))
        except Exception:  # noqa: BLE001 - raised from here, poll() would fail
            self._warn_of_return()

    def _warn_of_return(self) -> None:
        self._member.once.warn("returned", "%s: what its group has cannot be read", self.name, exc_info=True)

    def _described(self, generation: int | None, members: Sequence[DescribedMember]) -> None:
        """Request a rebalance that the group needs since this member has returned; as its leader, know its assignment.

        Requested where metadata arrive, it may be lost to a join that is under way, which is a plan as well.
        """
        membership = self._member.membership
        if not self._returned or membership is None or membership.generation() != generation:
            return
        try:
            own, racks = membership.member_id(), self._member.racks
            found = DescribedGroup.of(
                members,
                lambda topics: racks.fill_missing(self._member.topology(membership.cluster(), topics)),
                self._codec.claims,
            )
            if not found.knows_topics_of(own):
                # Requested again once they are known, or once it is a member again.
                return
            self._returned = False
            found = replace(found, group=self._planner.configured(found.group))
            if unowned := found.unowned():
                self._member.log.info(
                    "%s: %d partitions have no owner after this static member has returned; a rebalance is requested",
                    *(self.name, unowned),
                )
                membership.request_rejoin()
            elif membership.leads():
                self._history.recall(membership.generation() or 0, found.as_planned())
                if self._monitor is not None:
                    self._monitor.check_after_assignment(membership, racks)
            elif self._monitor is not None:
                self._monitor.check_returned(membership, found.group, found.in_known_topics())
        except Exception:  # noqa: BLE001 - what cannot be looked at must still be consumed
            self._warn_of_return()

    def _find(self, cluster: AnyCluster) -> None:
        """Find the consumer of this assignor, by its view of the cluster."""
        known = self._member.membership
        if known is None:
            found = self._adapter.find_membership(cluster)
            if found is not None:
                self.bind(found)
            else:
                self._member.once.warn(
                    "membership", "%s: the consumer of this assignor cannot be found; racks are not watched", self.name
                )
        elif known.cluster() is not cluster:
            self._monitor = None
            self._warn_of_sharing()

    def _release(self) -> None:
        """Forget a consumer that was closed: the next one owns nothing of its partitions."""
        self._member.membership = None
        self._given = None
        if self._codec.cooperative:
            self._codec.on_assigned({}, -1)

    def _warn_of_sharing(self) -> None:
        self._member.once.warn("shared", "%s: two consumers use one assignor; create one for each", self.name)

    def _refreshed(self) -> None:
        """Record the current racks; as the leader, compare them with those of the last assignment."""
        membership = self._member.membership
        if membership is not None:
            self._member.racks.update(self._adapter.brokers(membership.cluster()))
            self._request_description(membership)
            if self._monitor is not None:
                self._monitor.refreshed(membership, self._member.racks)

    def _group(self, cluster: AnyCluster, members: list[JoinMember]) -> Group:
        """Return the members with their claims, and the live topology with brokers that are offline."""
        group = build_group(lambda topics: self._member.topology(cluster, topics), members, self._codec.claims)
        self._member.racks.update(group.topology.brokers)
        group = replace(group, topology=self._member.racks.fill_missing(group.topology))
        generation = self._member.generation()
        if not self._codec.cooperative or generation is None:
            return group
        checked = drop_stale_claims(group.members, generation, self._history)
        for joined, member in zip(group.members, checked, strict=True):
            if member.owned != joined.owned:
                self._member.once.warn(
                    "claims",
                    "%s: member %s claims partitions that were not assigned to it; these claims are ignored",
                    *(self.name, member.id),
                    about=member.id,
                )
        return replace(group, members=tuple(checked))

    def _fallback(self, cluster: AnyCluster, members: list[JoinMember]) -> LeaderAssignment:
        """Return an assignment that cannot fail."""
        target = self._planner.fallback(cluster, members)
        if not self._codec.cooperative:
            return LeaderAssignment(target)
        free = exclude_claimed(target, self._without_stale_claims(members))
        return LeaderAssignment(free, complete=free == target)

    def _without_stale_claims(self, members: list[JoinMember]) -> list[JoinMember]:
        """Return the members without claims that are known to be false; with all claims if that is not known."""
        try:
            generation = self._member.generation()
            if generation is None:
                return members
            checked = drop_stale_claims([*map(to_member, members)], generation, self._history)
            return [
                joined._replace(subscription=replace(joined.subscription, owned=member.owned))
                for joined, member in zip(members, checked, strict=True)
            ]
        except Exception:  # noqa: BLE001 - this is the way that must not fail
            return members

    def _log_assignment(self, given: Partitions, before: Partitions | None) -> None:
        """Log this member's assignment in one line; as the leader, also that of the group."""
        membership, log = self._member.membership, self._member.log
        if membership is None or not log.isEnabledFor(logging.INFO):
            return
        try:
            topology = self._member.topology(membership.cluster(), sorted(given))
            line = format_assignment(self.rack, given, before, self._member.racks.fill_missing(topology), self.locality)
            decided = self._history.last
            if decided is not None and decided.group is not None and decided.plan is not None:
                line = f"{line}; {format_group(decided.group, decided.plan)}"
            log.info("%s: %s", self.name, line)
        except Exception:  # noqa: BLE001 - a log line must not keep a member from its partitions
            self._member.once.warn("line", "%s: an assignment cannot be described", self.name, exc_info=True)


def _claimants_of_withheld(decided: LeaderAssignment) -> list[str]:
    """Return the members that claim partitions which others cannot get for that reason; none after a fallback."""
    if decided.group is None or decided.plan is None:
        return []
    withheld = {topic: frozenset(ids) for topic, ids in decided.plan.withheld.items()}
    return [
        member.id
        for member in decided.group.members
        if any(not withheld.get(topic, frozenset()).isdisjoint(ids) for topic, ids in member.owned.items())
    ]


def warn_of_ineffective_racks(decision: LeaderAssignment, member: MemberContext, limit_s: float) -> None:
    """Warn, once each, of conditions that make racks ineffective in an assignment."""
    group, plan, name, once = decision.group, decision.plan, member.name, member.once
    if group is None or plan is None:
        return
    if plan.optimality_note:
        once.warn(
            "not proven",
            "%s: the assignment is balanced; %s"
            " (a plan is limited in steps, and to %.1f s, a third of the session timeout)",
            *(name, plan.unproven(), limit_s),
            about=plan.optimality_note,
        )
    if not any(partitions for owned in plan.target.values() for partitions in owned.values()):
        return
    racks = sorted(set(group.topology.broker_racks().values()))
    without = [each.id for each in group.members if each.rack is None]
    if not racks:
        once.warn("no broker", "%s: no broker has a rack (broker.rack), so nothing is local", name)
    elif len(without) == len(group.members):
        once.warn("no member", "%s: no member of the group sends a rack", name)
    elif without:
        once.warn(
            "some members",
            "%s: %d of %d members send no rack: %s",
            *(name, len(without), len(group.members), join_first(sorted(without), NAMED)),
        )
    if racks and (unknown := unknown_cost_racks(group)):
        once.warn(
            "costs",
            "%s: costs name racks that no broker and no member has, so these have no effect: %s; racks of brokers: %s",
            *(name, join_first(sorted(unknown), NAMED), ", ".join(racks)),
        )
    for each in group.members if racks else ():
        if each.rack is not None and each.rack not in racks:
            once.warn(
                "rack",
                "%s: rack %r of member %s matches no broker, so it reads nothing locally; racks of brokers: %s",
                *(name, each.rack, each.id, ", ".join(racks)),
                about=each.rack,
            )


def check_assignors(assignors: object, own: type[Assignor], option: str = "partition_assignment_strategy") -> list[Any]:
    """Return the assignors that a consumer is configured with; `own` is the base of those of its client."""
    if not isinstance(assignors, Iterable) or isinstance(assignors, str | bytes):
        raise ConfigError(f"{option}: expected a list of assignors, got {short_repr(assignors)}: write [..] around it")
    found = list(assignors)
    for each in found:
        # aiokafka would fail with its first join, on a task of its own.
        if not callable(each) and not callable(getattr(each, "assign", None)):
            raise ConfigError(f"{option}: expected assignors, as classes or instances, got {short_repr(each)} in it")
        kind = each if isinstance(each, type) else type(each)
        if not issubclass(kind, Assignor):
            continue
        if not issubclass(kind, own):
            package = own.__module__.rpartition(".")[0]
            raise ConfigError(f"{option}: {kind.__name__} is one for another client, import it from {package}")
        # kafka-python uses the last of them. aiokafka sends both, and a broker (4.4) that is sent a name twice lets no
        # member into the group again.
        if sum(getattr(other, "name", None) == each.name for other in found) > 1:
            raise ConfigError(f"{option}: of each name there must be one assignor, got several of {each.name!r}")
    return found


def with_rack(assignor: Any, rack: str | EnvRackDefault | None) -> Any:  # noqa: ANN401 - a client accepts anything
    """Instantiate a class of this package; return everything else unchanged.

    A subclass of the user whose constructor takes no rack, as for frameworks that take only classes, reads that of the
    environment.
    """
    if not (isinstance(assignor, type) and issubclass(assignor, Assignor)):
        return assignor
    made: Callable[..., Assignor] = assignor
    try:
        signature(made).bind(rack=rack)
    except TypeError:
        return made()
    return made(rack=rack)


def warn_on_rack_mismatch(assignors: Iterable[object], client_rack: str | None, once: WarnOnce) -> bool:
    """Warn if the assignor's rack is not the rack that the consumer sends with its fetches.

    Assignors that find their consumer themselves are compared then, and not again when the consumer is attached.
    Returns whether the consumer is configured for follower fetching.
    """
    ours = [a for a in assignors if isinstance(a, Assignor)]
    own = [a for a in ours if a.locality == "any-replica"]
    for rack in sorted({assignor.rack or "" for assignor in own if not assignor.rack_compared}):
        _compare(rack, client_rack or "", once)
    for assignor in own:
        assignor.rack_compared = True
    # Without an assignor of this package a consumer follows its client_rack as well.
    return bool(client_rack) and (bool(own) or not ours)


def _compare(rack: str, client_rack: str, once: WarnOnce) -> None:
    """Warn if an assignor and its consumer have different racks, "" for none."""
    if rack and not client_rack:
        once.warn(
            "client_rack",
            "the assignor's rack is %r but client_rack is not set, so everything is read from the leaders: set"
            " client_rack=%r, or locality='leader'",
            *(rack, rack),
        )
    elif client_rack and not rack:
        once.warn(
            "client_rack",
            "client_rack is %r but the assignor has no rack, so partitions are assigned without regard to it: pass"
            " rack=%r to the assignor as well",
            *(client_rack, client_rack),
        )
    elif rack != client_rack:
        once.warn(
            "client_rack",
            "the assignor's rack is %r but client_rack is %r: partitions are assigned by the first and read by the"
            " second",
            *(rack, client_rack),
        )
