"""Assignors for kafka-python's `partition_assignment_strategy`.

They run inside `poll()`, on the host's IO thread, and on the group's leader they decide for everybody. So the
first rule here: nothing raised in this module leaves it. If anything goes wrong, whatever it is, the group gets a
plain range assignment, which is valid and balanced, and the log says why, once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from rackassign.clients.kafka_python import host
from rackassign.clients.kafka_python.group import HostMember, Joined, barely_joined, group_of, joined
from rackassign.clients.kafka_python.plain import plain_range
from rackassign.clients.once import Once
from rackassign.errors import ConfigError, WireError
from rackassign.locality import Locality, check_mode
from rackassign.model import Group, Partitions, Plan
from rackassign.racks import RACK_VARIABLE, rack_from_environment
from rackassign.strategies import Options, strategy
from rackassign.wire import Subscription, encode_subscription

log = logging.getLogger(__name__)


class FromEnvironment:
    """The default of `rack`: unlike None, which says that there is none."""

    def __repr__(self) -> str:
        return f"<{RACK_VARIABLE}>"


FROM_ENVIRONMENT: Final = FromEnvironment()

NEWEST = 3
"""Version of subscription and assignment that is sent: the one that carries the rack."""

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
    ) -> None:
        if isinstance(rack, FromEnvironment):
            rack = rack_from_environment()
        self.rack = check_rack(rack)
        self.locality = check_mode(locality)
        self._options = Options(locality=self.locality)
        self.name = self.strategy if name is None else name
        if not self.name:
            raise ConfigError("name must not be empty")
        self._strategy = strategy(self.strategy)
        self._once = Once(log)
        self._read: Mapping[str, Subscription] = {}

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolSubscription:
        """Return what this member sends when it joins: its topics and its rack (KIP-881, version 3)."""
        return ConsumerProtocolSubscription(NEWEST, sorted(topics), None, [], -1, self.rack)

    def assign(self, cluster: host.Cluster, members: list[HostMember]) -> dict[str, ConsumerProtocolAssignment]:
        """Decide for the whole group; called on its leader.

        Args:
            cluster: kafka-python's live `ClusterMetadata`.
            members: Members of the join, their subscriptions decoded.

        Returns:
            An assignment for every member.
        """
        read, self._read = self._read, {}
        try:
            group = self._group(cluster, joined(members, read))
            plan = self._strategy(group, self._options)
            self._report(group, plan)
            target = self._planned(plan)
        except Exception:  # noqa: BLE001 - anything raised here would leave the whole group without assignment
            self._once.warn(
                "failed",
                "%s: rack-aware assignment failed; the group gets a plain assignment instead",
                self.name,
                exc_info=True,
            )
            target = self._plain(cluster, barely_joined(members, read))
        return host.answers(target)

    def take_subscriptions(self, read: Mapping[str, Subscription]) -> None:
        """Take what the members of the next `assign` sent, by member id, so that it need not be read twice."""
        self._read = read

    def on_assignment(self, assignment: ConsumerProtocolAssignment, generation: int) -> None:
        """Take note of this member's own assignment; range has no use for it."""

    def _group(self, cluster: host.Cluster, members: list[Joined]) -> Group:
        """Make a group of what `assign` is given."""
        return group_of(cluster, members)

    def _planned(self, plan: Plan) -> Mapping[str, Partitions]:
        """Take note of a plan; return what of it is handed out."""
        return plan.assignment

    def _plain(self, cluster: host.Cluster, members: list[Joined]) -> Mapping[str, Partitions]:
        """Return an assignment that cannot fail."""
        return plain_range(cluster, members)

    def _report(self, group: Group, plan: Plan) -> None:
        """Log what was decided, and once each what keeps racks from being of use."""
        if log.isEnabledFor(logging.INFO):
            counts = Locality.of(group, plan)
            log.info(
                "%s: %d members; of their partitions %d are local, %d cross racks, %d unknown",
                *(self.name, len(group.members), counts.local, counts.cross, counts.unknown),
            )
            if plan.moved or plan.withheld:
                withheld = sum(map(len, plan.withheld.values()))
                log.info("%s: %d move, %d are withheld until they are free", self.name, plan.moved, withheld)
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
