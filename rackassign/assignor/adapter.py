"""What an assignor needs of its client library, as protocols. The `internals` of each client package implement them.

An assignor is called with the client's own view of the cluster. Through this view the assignor finds its consumer, and
with it the consumer's owned partitions and generation, and a way to request a rebalance.

Two helpers for these implementations follow: actions after each refresh of a client's metadata, and the partitions of
a topology, one object for all that have equal replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeVar

from rackassign.model import Broker, Partition, Partitions, Topology
from rackassign.racks import BrokerRackCache
from rackassign.text import WarnOnce

T = TypeVar("T")

AnyCluster = Any
"""The client's own view of the cluster."""


class PartitionList(Protocol):
    """The part of a cluster view that a fallback assignment needs."""

    def partitions_for_topic(self, topic: str) -> Iterable[int] | None:
        """Return the partition IDs of a topic; None if it is not known (yet)."""


class DescribedMember(NamedTuple):
    """A member as its coordinator describes it, with its subscription and its assignment as they were sent."""

    id: str
    instance_id: str | None
    metadata: bytes
    assignment: bytes


class GroupMembership(Protocol):
    """A consumer's membership in its group."""

    def same_consumer(self, other: Any) -> bool:  # noqa: ANN401 - a membership of the same client
        """Return whether both memberships belong to one consumer."""

    def owned(self) -> Partitions:
        """Return the partitions that the consumer owns now; nothing once its membership was lost."""

    def member_id(self) -> str:
        """Return the member ID; empty before the first join."""

    def generation(self) -> int | None:
        """Return the group's generation as of the last join response; None if there is none."""

    def session_timeout_s(self) -> float | None:
        """Return the session timeout, after which the coordinator removes the member; None if it is not known."""

    def cooperative(self) -> bool:
        """Return whether the consumer keeps its partitions while it joins."""

    def static(self) -> bool:
        """Return whether it is a static member: one with a `group.instance.id`."""

    def leads(self) -> bool:
        """Return whether it leads its group, also if it did so before a restart."""

    def describe_group(self, done: Callable[[Sequence[DescribedMember]], None]) -> None:
        """Request the members of its group from the coordinator.

        `done` is called where the client calls its assignors, and must not raise. It is not called if the request
        fails, or while the group rebalances.
        """

    def cluster(self) -> AnyCluster:
        """Return the consumer's live view of the cluster."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call this after some seconds, on the thread on which the client calls its assignors; it must not raise."""

    def compute(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Call `done` with the result of `work`, where the client calls its assignors; neither may raise.

        `work` uses nothing of the client. It runs where `assign` plans: on a thread, if the client has one for that.
        """

    def refresh_metadata(self) -> None:
        """Make the client request new metadata from the brokers; its listeners are called with them."""

    def request_rejoin(self) -> None:
        """Make the consumer rejoin. The request is lost during a join, so call this only after a join is complete."""


class ClientAdapter(Protocol):
    """The private side of a client library: an `internals` package."""

    def topology(self, cluster: AnyCluster, topics: Iterable[str]) -> Topology:
        """Return the live brokers, and the given topics that have metadata."""

    def brokers(self, cluster: AnyCluster) -> tuple[Broker, ...]:
        """Return the brokers in the current metadata."""

    def on_refresh(self, cluster: AnyCluster, callback: Callable[[], None], once: WarnOnce, *, key: object) -> None:
        """Call this after each refresh of the metadata, unless a callback with this key is already registered."""

    def find_membership(self, cluster: AnyCluster) -> GroupMembership | None:
        """Return the membership of the consumer with this view of the cluster, None if it cannot be determined."""


def time_limit_s(membership: GroupMembership | None) -> float:
    """Return the time limit of a plan in seconds: a third of the session timeout.

    The other two thirds are for the steps before and after it: decoding the join, a plan without a solver (which takes
    some seconds for the largest groups), encoding, and delays of a busy machine. If the consumer is not known, the
    smallest session timeout that brokers allow by default is used (`group.min.session.timeout.ms`).
    """
    session_s = None if membership is None else membership.session_timeout_s()
    return (_LEAST_SESSION_S if session_s is None else session_s) / 3


_LEAST_SESSION_S = 6.0


class MetadataListener:
    """Calls a callback and suppresses its exceptions, which would end the client's refreshes for good."""

    def __init__(self, callback: Callable[[], None], once: WarnOnce, key: object, client: str) -> None:
        self.key = key
        self._callback = callback
        self._once = once
        self._client = client

    def __call__(self, _cluster: object) -> None:
        try:
            self._callback()
        except Exception:  # noqa: BLE001 - see the class
            self._once.warn("refresh", "%s: handling a metadata refresh failed", self._client, exc_info=True)


def track_broker_racks(adapter: ClientAdapter, cluster: AnyCluster, racks: BrokerRackCache, once: WarnOnce) -> None:
    """Record the racks of the brokers, now and after each refresh."""

    def refreshed() -> None:
        racks.update(adapter.brokers(cluster))

    refreshed()
    adapter.on_refresh(cluster, refreshed, once, key=racks)


class SharedPartitions(dict[tuple[int, tuple[int, ...]], Partition]):
    """Partitions by their leader and their replicas, created when they are first asked for.

    A group has tens of thousands of partitions, and only as many different ones as there are lists of replicas. In the
    metadata -1 is a leader that is not known, and a replica that does not exist.
    """

    def __init__(self, leader: str, replicas: str) -> None:
        # Names of attributes of a client's metadata of a partition.
        super().__init__()
        self._leader: Callable[[Any], int] = attrgetter(leader)
        self._replicas: Callable[[Any], Iterable[int]] = attrgetter(replicas)

    def __missing__(self, key: tuple[int, tuple[int, ...]]) -> Partition:
        leader, replicas = key
        made = Partition(
            replicas=tuple(replica for replica in replicas if replica >= 0), leader=leader if leader >= 0 else None
        )
        self[key] = made
        return made

    def of_topic(self, metadata: Mapping[int, Any]) -> tuple[Partition, ...]:
        """Return the partitions of a topic, by a client's metadata of each, which are not empty."""
        count = max(metadata) + 1
        # Tens of thousands on a leader, so nothing is done for each of them in Python.
        wires = [*map(metadata.get, range(count))]
        if len(metadata) < count:
            # Brokers list all partitions. A missing one still has to be assigned, without leader and replicas.
            return tuple(self[(-1, ()) if wire is None else self._key(wire)] for wire in wires)
        keys = zip(map(self._leader, wires), map(tuple, map(self._replicas, wires)), strict=True)
        return tuple(map(self.__getitem__, keys))

    def _key(self, wire: Any) -> tuple[int, tuple[int, ...]]:  # noqa: ANN401 - the clients are untyped
        return self._leader(wire), tuple(self._replicas(wire))
