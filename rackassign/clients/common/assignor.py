"""Shared base of the assignors of all clients: subscription, planning, history and logging.

Assignors run inside the client, where it handles its group. On the group leader they compute the assignment of all
members. So the first rule is: no exception leaves this module. If anything fails, the group gets a plain range
assignment, which is valid and balanced, and the reason is logged once.

The classes of each client add three entry points: for the member's metadata, for the assignment of the group and for
the member's own assignment.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import ClassVar, Final, NoReturn

from rackassign.clients.common.adapter import AnyCluster, ClientAdapter, GroupMembership, time_limit_s
from rackassign.clients.common.assignment_history import AssignmentHistory, LeaderAssignment
from rackassign.clients.common.assignment_log import format_assignment
from rackassign.clients.common.fallback import fallback_range
from rackassign.clients.common.rack_monitor import RackChangeDetector, RackChangePolicy, RackMonitor
from rackassign.clients.common.subscriptions import JoinMember, build_group
from rackassign.errors import ConfigError, WireError
from rackassign.locality import Locality, validate_locality_mode
from rackassign.model import Group, Partitions, Plan, Topology
from rackassign.racks import RACK_VARIABLE, BrokerRackCache, rack_from_environment
from rackassign.strategies import Options, strategy
from rackassign.util.log_once import WarnOnce
from rackassign.util.text import short_repr
from rackassign.wire import Subscription, encode_subscription


class EnvRackDefault:
    """The default of `rack`. In contrast, None means no rack."""

    def __repr__(self) -> str:
        return f"<{RACK_VARIABLE}>"


FROM_ENVIRONMENT: Final = EnvRackDefault()

WATCHING: Final = RackChangePolicy()

_NAMED_IN_LOG = 5


class Assignor:
    """Shared base of all assignors: sends the rack, reads the live topology, and never raises.

    Args:
        rack: Rack of this member, as the brokers write theirs in `broker.rack`; None or "" for none. If it is
            omitted, as it is when the class itself is passed to a consumer, `RACKASSIGN_RACK` is read.
        locality: `any-replica` if members read from followers in their rack (the brokers have a rack-aware
            replica selector and the members a `client_rack`), `leader` if all read from leaders.
        name: Name in the protocol. All members of a group must share one; the default is the standard name, so that
            Java and librdkafka members can be in the same group.
        rack_monitor: How this member, while it leads, monitors the racks of the replicas; None to disable it.

    Raises:
        ConfigError: If an option is not valid.
    """

    strategy: ClassVar[str]
    name: str
    _adapter: ClassVar[ClientAdapter]
    """The private side of the client."""
    _package: ClassVar[str]
    """Package of the client's assignors, for the names of their loggers."""

    def __init__(
        self,
        rack: str | EnvRackDefault | None = FROM_ENVIRONMENT,
        *,
        locality: str = "any-replica",
        name: str | None = None,
        rack_monitor: RackChangePolicy | None = WATCHING,
    ) -> None:
        if isinstance(rack, EnvRackDefault):
            rack = rack_from_environment()
        self.rack = check_rack(rack)
        self.locality = validate_locality_mode(locality)
        # A subclass may have its own name: if the client gets the class, it reads the name from the class.
        wanted: object = type(self).name if name is None else name
        if not isinstance(wanted, str):
            raise ConfigError(f"name must be a string, got {short_repr(wanted)}")
        if not wanted:
            raise ConfigError("name must not be empty")
        self.name = wanted
        self._strategy = strategy(self.strategy)
        self._log = logging.getLogger(f"{self._package}.assignor")
        self._once = WarnOnce(self._log)
        self._decisions = AssignmentHistory()
        self._racks = BrokerRackCache()
        self._membership: GroupMembership | None = None
        self._given: Partitions | None = None
        self._plan_with(Options(locality=self.locality), rack_monitor)

    def _plan_with(self, options: Options, policy: RackChangePolicy | None) -> None:
        self._options = options
        # A leader without rack gains nothing from racks (as in Java), and leaves monitoring to the next leader.
        watched = None if policy is None or self.rack is None else RackChangeDetector(self._strategy, options, policy)
        log = logging.getLogger(f"{self._package}.watcher")
        self._watcher = (
            None if watched is None else RackMonitor(watched, self._decisions, self._adapter.topology, log, self._once)
        )

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
        if self._membership is not None and not self._membership.same_consumer(membership):
            raise ConfigError(f"an instance of {type(self).__name__} belongs to one consumer: create one for each")
        self._membership = membership
        if racks is not None:
            self._racks = racks
        self._adapter.on_refresh(membership.cluster(), self._refreshed, self._once, key=self)

    def _joining(self, topics: Iterable[str]) -> Subscription:
        """Return the subscription of this member: its topics and its rack (KIP-881, version 3)."""
        self._decisions.on_join()
        return self._subscription(tuple(sorted(topics)))

    def _decide(
        self, cluster: AnyCluster, members: Callable[[], list[JoinMember]], barely: Callable[[], list[JoinMember]]
    ) -> Mapping[str, Partitions]:
        """Compute the assignment of the whole group; called on its leader.

        Args:
            cluster: The client's live view.
            members: Decodes the join; its exceptions are handled.
            barely: Decodes only what a fallback assignment needs, and raises nothing.

        Returns:
            Partitions of each member.
        """
        planned = self._planning(cluster, members)()
        return self._settle(planned or self._plain(cluster, barely()))

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
            group = self._group(cluster, members())
        except Exception:  # noqa: BLE001 - anything raised here would leave the whole group without assignment
            self._warn_of_failure()
            return lambda: None
        limit_s = time_limit_s(self._membership)

        def plan() -> LeaderAssignment | None:
            try:
                left_s = max(0.0, limit_s - (time.monotonic() - begun))
                plan = self._strategy(group, replace(self._options, time_limit_s=left_s))
                self._report(group, plan, limit_s)
                return LeaderAssignment(plan.assignment, not plan.withheld, group, plan)
            except Exception:  # noqa: BLE001 - as above
                self._warn_of_failure()
                return None

        return plan

    def _settle(self, decision: LeaderAssignment) -> Mapping[str, Partitions]:
        """Record an assignment, and return the partitions of each member."""
        self._decisions.propose(decision)
        return decision.assignment

    def _warn_of_failure(self) -> None:
        self._once.warn(
            "failed",
            "%s: rack-aware assignment failed; the group gets a plain assignment instead",
            self.name,
            exc_info=True,
        )

    def assignment_user_data(self, assignment: Mapping[str, Partitions]) -> Mapping[str, bytes]:
        """Return user data of each member for the assignment just computed; usually empty."""
        del assignment
        return {}

    def _assigned(self, given: Partitions, generation: int) -> None:
        """Record this member's own assignment; as the leader, that of the group."""
        before, self._given = self._given, given
        self._decisions.commit(generation)
        self._complete(given, generation)
        self._log_assignment(given, before)
        if self._watcher is not None and self._membership is not None:
            self._watcher.look_later(self._membership, self._racks)

    def _subscription(self, topics: tuple[str, ...]) -> Subscription:
        return Subscription(topics, rack=self.rack)

    def _complete(self, given: Partitions, generation: int) -> None:
        """Handle a completed assignment; range has no use for it."""

    def _find(self, cluster: AnyCluster) -> None:
        """Find the consumer of this assignor, by its view of the cluster."""
        if self._membership is None:
            found = self._adapter.find_membership(cluster)
            if found is not None:
                self.bind(found)
            else:
                self._once.warn(
                    "membership", "%s: the consumer of this assignor cannot be found; racks are not watched", self.name
                )
        elif self._membership.cluster() is not cluster:
            self._watcher = None
            self._once.warn("shared", "%s: two consumers use one assignor; create one for each", self.name)

    def _refreshed(self) -> None:
        """Record the current racks; as the leader, compare them with those of the last assignment."""
        if self._membership is not None:
            self._racks.update(self._adapter.brokers(self._membership.cluster()))
            if self._watcher is not None:
                self._watcher.refreshed(self._membership, self._racks)

    def _group(self, cluster: AnyCluster, members: list[JoinMember]) -> Group:
        """Build the group from the arguments of `assign`."""
        return self._seen(build_group(self._reader(cluster), members))

    def _reader(self, cluster: AnyCluster) -> Callable[[Iterable[str]], Topology]:
        return lambda topics: self._adapter.topology(cluster, topics)

    def _seen(self, group: Group) -> Group:
        """Record the brokers of a group, and add those that are offline."""
        self._racks.update(group.topology.brokers)
        return replace(group, topology=self._racks.fill_missing(group.topology))

    def _plain(self, cluster: AnyCluster, members: list[JoinMember]) -> LeaderAssignment:
        """Return an assignment that cannot fail."""
        return LeaderAssignment(fallback_range(cluster, members))

    def _log_assignment(self, given: Partitions, before: Partitions | None) -> None:
        """Log this member's assignment in one line; as the leader, also that of the group."""
        if self._membership is None or not self._log.isEnabledFor(logging.INFO):
            return
        try:
            topology = self._racks.fill_missing(self._adapter.topology(self._membership.cluster(), sorted(given)))
            line = format_assignment(self.rack, given, before, topology, self.locality)
            decided = self._decisions.last
            if decided is not None and decided.group is not None and decided.plan is not None:
                line = f"{line}; {_of_group(decided.group, decided.plan)}"
            self._log.info("%s: %s", self.name, line)
        except Exception:  # noqa: BLE001 - a line for people must not keep a member from its partitions
            self._once.warn("line", "%s: an assignment cannot be described", self.name, exc_info=True)

    def _report(self, group: Group, plan: Plan, limit_s: float) -> None:
        """Warn, once each, of conditions that make racks ineffective."""
        if plan.optimality_note:
            self._once.warn(
                "not proven",
                "%s: the assignment is balanced but not proven the most local and sticky: %s"
                " (planning may take %.1f s, a third of the session timeout)",
                *(self.name, plan.optimality_note, limit_s),
                about=plan.optimality_note,
            )
        if not any(partitions for owned in plan.target.values() for partitions in owned.values()):
            return
        racks = sorted(set(group.topology.broker_racks().values()))
        without = [member.id for member in group.members if member.rack is None]
        if not racks:
            self._once.warn("no broker", "%s: no broker has a rack (broker.rack), so nothing is local", self.name)
        elif len(without) == len(group.members):
            self._once.warn("no member", "%s: no member of the group sends a rack", self.name)
        elif without:
            self._once.warn(
                "some members",
                "%s: %d of %d members send no rack: %s",
                *(self.name, len(without), len(group.members), _listed(without)),
            )
        for member in group.members if racks else ():
            if member.rack is not None and member.rack not in racks:
                self._once.warn(
                    "rack",
                    "%s: rack %r of member %s matches no broker, so it reads nothing locally; racks of brokers: %s",
                    *(self.name, member.rack, member.id, ", ".join(racks)),
                    about=member.rack,
                )


def check_rack(rack: object) -> str | None:
    """Return the rack, None for ""; `ConfigError` if it could not be sent."""
    if rack is None or rack == "":
        return None
    if not isinstance(rack, str):
        raise ConfigError(f"rack must be a string or None, got {rack!r}")
    try:
        encode_subscription(Subscription((), rack=rack))
    except WireError as error:
        raise ConfigError(f"rack cannot be sent: {error.problem}") from None
    return rack


def _listed(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:_NAMED_IN_LOG])
    return shown if len(names) <= _NAMED_IN_LOG else f"{shown}, ..."


def _of_group(group: Group, plan: Plan) -> str:
    counts = Locality.of(group, plan)
    total = counts.local + counts.cross + counts.unknown
    withheld = sum(map(len, plan.withheld.values()))
    tail = f", {withheld} of them after another round" if withheld else ""
    return f"the group of {len(group.members)}: {counts.local} of {total} local, {plan.moved} moved{tail}"
