"""What an assignor needs of its client library, as protocols. The `internals` of each client package implement them.

An assignor is called with the client's own view of the cluster. Through this view the assignor finds its consumer, and
with it the consumer's owned partitions and generation, and a way to request a rebalance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from rackassign.model import Broker, Partitions, Topology
from rackassign.util.log_once import WarnOnce

T = TypeVar("T")

AnyCluster = Any
"""The client's own view of the cluster."""


class PartitionList(Protocol):
    """The part of a cluster view that a fallback assignment needs."""

    def partitions_for_topic(self, topic: str) -> Iterable[int] | None:
        """Return the partition IDs of a topic; None if it is not known (yet)."""


class GroupMembership(Protocol):
    """A consumer's membership in its group."""

    def same_consumer(self, other: Any) -> bool:  # noqa: ANN401 - a membership of the same client
        """Return whether both memberships belong to one consumer."""

    def owned(self) -> Partitions:
        """Return the partitions that the consumer owns now; nothing once its membership was lost."""

    def generation(self) -> int | None:
        """Return the group's generation as of the last join response; None if there is none."""

    def session_timeout_s(self) -> float | None:
        """Return the session timeout, after which the coordinator removes the member; None if it is not known."""

    def cooperative(self) -> bool:
        """Return whether the consumer keeps its partitions while it joins."""

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
