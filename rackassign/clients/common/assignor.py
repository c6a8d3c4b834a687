"""Shared base of the assignors of all clients, which composes a codec, a planner and a history.

Assignors run inside the client, where it handles its group. On the group leader they compute the assignment of all
members. So the first rule is: no exception leaves this module. If anything fails, the group gets a plain assignment,
which is valid and balanced, and the reason is logged once.

An assignor consists of parts that do not know each other:

* a codec (`codec.py`): what the member sends, and which claims a leader reads;
* a planner (`planner.py`): the assignment of a group, and a fallback;
* a history (`assignment_history.py`): what this member has assigned as a leader;
* a rack monitor (`rack_monitor.py`): whether racks have changed since.

The classes of each client add three entry points: for the member's metadata, for the assignment of the group and for
the member's own assignment.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import ClassVar, Final, NoReturn

from rackassign.clients.common.adapter import AnyCluster, ClientAdapter, GroupMembership
from rackassign.clients.common.assignment_history import (
    AssignmentHistory,
    LeaderAssignment,
    drop_stale_claims,
)
from rackassign.clients.common.assignment_log import format_assignment, format_group, warn_of_ineffective_racks
from rackassign.clients.common.codec import SubscriptionCodec
from rackassign.clients.common.fallback import exclude_claimed
from rackassign.clients.common.member_context import MemberContext
from rackassign.clients.common.planner import Planner
from rackassign.clients.common.rack_monitor import RackChangeDetector, RackChangePolicy, RackMonitor
from rackassign.clients.common.rack_option import FROM_ENVIRONMENT, EnvRackDefault
from rackassign.clients.common.subscriptions import JoinMember, build_group, to_member
from rackassign.errors import ConfigError
from rackassign.model import Group, Partitions
from rackassign.racks import BrokerRackCache
from rackassign.util.text import join_first, short_repr
from rackassign.wire import Subscription

_NAMED = 3

DEFAULT_RACK_MONITOR: Final = RackChangePolicy()

_MAX_ROUNDS = 5
"""Limit of consecutive rebalances that a leader requests for the same members. Two are enough unless the claims of one
are always false."""


class Assignor:
    """Shared base of all assignors: sends the rack, reads the live topology, and never raises.

    Args:
        member: The member it belongs to, from `member_context`.
        codec: Encodes and decodes subscriptions.
        planner: Computes assignments.
        rack_monitor: How this member, while it leads, monitors the racks of the replicas; None to disable it.
    """

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
        self._requested_rounds = 0
        self._rounds_of: frozenset[str] = frozenset()
        self._monitor = self._new_monitor(rack_monitor)
        self.rack_compared = False
        """Whether the rack was compared with that of the consumer, `client_rack`."""

    def load(self) -> None:
        """Import what a plan needs; for a thread beside that of the client."""
        self._planner.load()

    @classmethod
    def member_context(
        cls,
        rack: str | EnvRackDefault | None = FROM_ENVIRONMENT,
        locality: str = "any-replica",
        name: str | None = None,
    ) -> MemberContext:
        """Return the context of a new member, for the constructor.

        Args:
            rack: Rack of this member, as the brokers write theirs in `broker.rack`; None or "" for none. If it is
                omitted, as it is when the class itself is passed to a consumer, `RACKASSIGN_RACK` is read. "auto" tries
                more sources (`detect_rack`).
            locality: `any-replica` if members read from followers in their rack (the brokers have a rack-aware
                replica selector and the members a `client_rack`), `leader` if all read from leaders.
            name: Name in the protocol. All members of a group must share one; the default is the standard name, so
                that Java and librdkafka members can be in the same group.

        Raises:
            ConfigError: If an option is not valid.
        """
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
        """Bind this assignor to its consumer; `attach` does this, and `assign` if it can.

        Args:
            membership: Membership of the consumer.
            racks: Rack cache of the consumer, if it has one.

        Raises:
            ConfigError: It is bound to another consumer.
        """
        known = self._member.membership
        if known is not None and not known.same_consumer(membership):
            raise ConfigError(f"an instance of {type(self).__name__} belongs to one consumer: create one for each")
        self._member.membership = membership
        if racks is not None:
            self._member.racks = racks
        self._adapter.on_refresh(membership.cluster(), self._refreshed, self._member.once, key=self)

    def _joining(self, topics: Iterable[str]) -> Subscription:
        """Return the subscription of this member."""
        if self._member.membership is None:
            # Whether this member leads is known only once it plans, so what that takes is loaded by then. A bound
            # assignor plans on a thread, or behind one that loads: there a member that does not lead loads nothing.
            self._planner.load_on_thread()
        self._history.on_join()
        return self._codec.encode(tuple(sorted(topics)))

    def _decide(
        self, cluster: AnyCluster, members: Callable[[], list[JoinMember]], minimal: Callable[[], list[JoinMember]]
    ) -> LeaderAssignment:
        """Compute the assignment of the whole group; called on its leader.

        Args:
            cluster: The client's live view.
            members: Decodes the join; its exceptions are handled.
            minimal: Decodes only what a fallback assignment needs, and raises nothing.

        Returns:
            The assignment, which is recorded.
        """
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
        """Record an assignment, and return it."""
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
        if self._monitor is not None and self._member.membership is not None:
            self._monitor.look_later(self._member.membership, self._member.racks)

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
                *(self.name, join_first(_claimants_of_withheld(decided), _NAMED)),
            )
        else:
            self._member.request_rejoin()

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
