"""Assignors for kafka-python's `partition_assignment_strategy`.

They run inside `poll()`, on the host's IO thread, and on the group's leader they decide for everybody. So the
first rule here: nothing raised in this module leaves it. If anything goes wrong, whatever it is, the group gets a
plain range assignment, which is valid and balanced, and the log says why, once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import ClassVar, Final

from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from rackassign.clients.decisions import Decision, Decisions
from rackassign.clients.kafka_python import host
from rackassign.clients.kafka_python.group import HostMember, Joined, barely_joined, group_of, joined
from rackassign.clients.kafka_python.plain import plain_range
from rackassign.clients.kafka_python.watcher import Watcher
from rackassign.clients.once import Once
from rackassign.clients.summary import summary
from rackassign.clients.watch import Watch, Watching
from rackassign.errors import ConfigError, WireError
from rackassign.locality import Locality, check_mode
from rackassign.model import Group, Partitions, Plan
from rackassign.racks import RACK_VARIABLE, RackMemory, rack_from_environment
from rackassign.strategies import Options, strategy
from rackassign.wire import NEWEST, Subscription, encode_subscription

log = logging.getLogger(__name__)


class FromEnvironment:
    """The default of `rack`: unlike None, which says that there is none."""

    def __repr__(self) -> str:
        return f"<{RACK_VARIABLE}>"


FROM_ENVIRONMENT: Final = FromEnvironment()

WATCHING: Final = Watching()

_NAMED_IN_LOG = 5


class RackAwareAssignor(AbstractPartitionAssignor):  # type: ignore[misc] # kafka-python is untyped
    """What all our assignors share: the rack is sent, the live topology read, and nothing is ever raised.

    Args:
        rack: Rack of this member, as the brokers write theirs in `broker.rack`; None or "" for none. When it is
            left out, and so when the class itself is given to `KafkaConsumer`, `RACKASSIGN_RACK` is read.
        locality: `any-replica` if members read from followers in their rack (the brokers have a rack-aware
            replica selector and the members a `client_rack`), `leader` if all read from leaders.
        name: Name on the wire. All members of a group must share one; the default is the standard name, so that
            Java and librdkafka members can be in the same group.
        watch: How the racks of the replicas are watched while this member leads; None not to.

    Raises:
        ConfigError: If an option cannot work.
    """

    strategy: ClassVar[str]

    def __init__(
        self,
        rack: str | FromEnvironment | None = FROM_ENVIRONMENT,
        *,
        locality: str = "any-replica",
        name: str | None = None,
        watch: Watching | None = WATCHING,
    ) -> None:
        if isinstance(rack, FromEnvironment):
            rack = rack_from_environment()
        self.rack = check_rack(rack)
        self.locality = check_mode(locality)
        self.name = self.strategy if name is None else name
        if not self.name:
            raise ConfigError("name must not be empty")
        self._strategy = strategy(self.strategy)
        self._once = Once(log)
        self._decisions = Decisions()
        self._racks = RackMemory()
        self._membership: host.Membership | None = None
        self._given: Partitions | None = None
        self._read: Mapping[str, Subscription] = {}
        self._plan_with(Options(locality=self.locality), watch)

    def _plan_with(self, options: Options, watch: Watching | None) -> None:
        self._options = options
        # A leader without rack gains nothing from racks (so does Java), and leaves the watch to the next one.
        watched = None if watch is None or self.rack is None else Watch(self._strategy, options, watch)
        self._watcher = None if watched is None else Watcher(watched, self._decisions, self._once)

    def tie(self, membership: host.Membership, racks: RackMemory | None = None) -> None:
        """Tie this assignor to its consumer: what `attach` does, and `assign` where it can.

        Args:
            membership: Of the consumer.
            racks: Its memory of racks, if it has one.

        Raises:
            ConfigError: It is tied to another one.
        """
        if self._membership is not None and not self._membership.is_of(membership):
            raise ConfigError(f"an instance of {type(self).__name__} belongs to one consumer: make one for each")
        self._membership = membership
        if racks is not None:
            self._racks = racks
        host.on_refresh(membership.cluster(), self._refreshed, self._once, key=self)

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolSubscription:
        """Return what this member sends when it joins: its topics and its rack (KIP-881, version 3)."""
        self._decisions.joining()
        return self._subscription(sorted(topics))

    def assign(self, cluster: host.Cluster, members: list[HostMember]) -> dict[str, ConsumerProtocolAssignment]:
        """Decide for the whole group; called on its leader.

        Args:
            cluster: kafka-python's live `ClusterMetadata`.
            members: Members of the join, their subscriptions decoded.

        Returns:
            An assignment for every member.
        """
        read, self._read = self._read, {}
        self._find(cluster)
        try:
            group = self._group(cluster, joined(members, read))
            plan = self._strategy(group, self._options)
            self._report(group, plan)
            decision = Decision(plan.assignment, not plan.withheld, group, plan)
        except Exception:  # noqa: BLE001 - anything raised here would leave the whole group without assignment
            self._once.warn(
                "failed",
                "%s: rack-aware assignment failed; the group gets a plain assignment instead",
                self.name,
                exc_info=True,
            )
            decision = self._plain(cluster, barely_joined(members, read))
        self._decisions.make(decision)
        return host.answers(decision.assignment)

    def take_subscriptions(self, read: Mapping[str, Subscription]) -> None:
        """Take what the members of the next `assign` sent, by member id, so that it need not be read twice."""
        self._read = read

    def on_assignment(self, assignment: ConsumerProtocolAssignment, generation: int) -> None:
        """Take note of this member's own assignment; as the leader, of the group's."""
        before, self._given = self._given, partitions_of(assignment)
        self._decisions.complete(generation)
        self._complete(self._given, generation)
        self._say(self._given, before)
        if self._watcher is not None and self._membership is not None:
            self._watcher.look_later(self._membership, self._racks)

    def _subscription(self, topics: list[str]) -> ConsumerProtocolSubscription:
        return ConsumerProtocolSubscription(NEWEST, topics, None, [], -1, self.rack)

    def _complete(self, given: Partitions, generation: int) -> None:
        """Do what there is to do when an assignment is complete; range has no use for it."""

    def _find(self, cluster: host.Cluster) -> None:
        """Find the consumer this assignor belongs to, by the view of the cluster it was given."""
        if self._membership is None:
            found = host.membership_behind(cluster)
            if found is not None:
                self.tie(found)
            else:
                self._once.warn(
                    "membership", "%s: the consumer of this assignor cannot be found; racks are not watched", self.name
                )
        elif self._membership.cluster() is not cluster:
            self._watcher = None
            self._once.warn("shared", "%s: one assignor serves two consumers; make one for each", self.name)

    def _refreshed(self) -> None:
        """Take note of the racks there are now; as the leader, look what has become of those decided by."""
        if self._membership is not None:
            self._racks.see(host.brokers(self._membership.cluster()))
            if self._watcher is not None:
                self._watcher.look(self._membership, self._racks)

    def _group(self, cluster: host.Cluster, members: list[Joined]) -> Group:
        """Make a group of what `assign` is given."""
        return self._seen(group_of(cluster, members))

    def _seen(self, group: Group) -> Group:
        """Take note of the brokers of a group, and complete it with those that are away."""
        self._racks.see(group.topology.brokers)
        return replace(group, topology=self._racks.complete(group.topology))

    def _plain(self, cluster: host.Cluster, members: list[Joined]) -> Decision:
        """Make an assignment that cannot fail."""
        return Decision(plain_range(cluster, members))

    def _say(self, given: Partitions, before: Partitions | None) -> None:
        """Log in one line what this member was given; as the leader, what the group was."""
        if self._membership is None or not log.isEnabledFor(logging.INFO):
            return
        try:
            topology = self._racks.complete(host.topology(self._membership.cluster(), sorted(given)))
            line = summary(self.rack, given, before, topology, self.locality)
            decided = self._decisions.last
            if decided is not None and decided.group is not None and decided.plan is not None:
                line = f"{line}; {_of_group(decided.group, decided.plan)}"
            log.info("%s: %s", self.name, line)
        except Exception:  # noqa: BLE001 - a line for people must not keep a member from its partitions
            self._once.warn("line", "%s: an assignment cannot be described", self.name, exc_info=True)

    def _report(self, group: Group, plan: Plan) -> None:
        """Warn, once each, of what keeps racks from being of use."""
        if plan.doubt:
            self._once.warn(
                f"doubt {plan.doubt}",
                "%s: the assignment is balanced but not proven the nearest and stickiest: %s",
                *(self.name, plan.doubt),
            )
        if not any(partitions for owned in plan.target.values() for partitions in owned.values()):
            return
        racks = sorted(set(group.topology.racks_of_brokers().values()))
        without = [member.id for member in group.members if member.rack is None]
        if not racks:
            self._once.warn("no broker", "%s: no broker has a rack (broker.rack), so nothing is near", self.name)
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
                    f"rack {member.rack}",
                    "%s: rack %r of member %s matches no broker, so it reads nothing at home; racks there are: %s",
                    *(self.name, member.rack, member.id, ", ".join(racks)),
                )


class RackAwareRangeAssignor(RackAwareAssignor):
    """Range assignment that keeps partitions near their readers (KIP-881).

    The same result as Java's `RangeAssignor`, partition by partition. Takes the arguments of
    `RackAwareAssignor`.
    """

    strategy = name = "range"


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


def partitions_of(assignment: ConsumerProtocolAssignment) -> Partitions:
    """Return the partitions of kafka-python's assignment, by topic."""
    owned: dict[str, list[int]] = {}
    for topic, partition in assignment.partitions():
        owned.setdefault(topic, []).append(partition)
    return {topic: tuple(sorted(partitions)) for topic, partitions in owned.items()}
