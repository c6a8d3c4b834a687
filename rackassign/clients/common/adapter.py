"""What an assignor needs of the client it works in; each client's `host` room has it.

An assignor is handed the client's own view of the cluster. Behind that view stands a consumer, and with it comes what
makes an assignor true to its group: what the consumer holds, in which generation, and a way to ask for another round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from rackassign.model import Broker, Partitions, Topology
from rackassign.util.log_once import WarnOnce

AnyCluster = Any
"""The client's own view of the cluster."""


class PartitionList(Protocol):
    """As much of a view of the cluster as an assignment needs that must not fail."""

    def partitions_for_topic(self, topic: str) -> Iterable[int] | None:
        """Return the partition ids of a topic; None if it is not known (yet)."""


class GroupMembership(Protocol):
    """A consumer's place in its group."""

    def same_consumer(self, other: Any) -> bool:  # noqa: ANN401 - a membership of the same client
        """Tell whether both are of one consumer."""

    def owned(self) -> Partitions:
        """Return what the consumer holds now; nothing once its membership was lost."""

    def generation(self) -> int | None:
        """Return the group's generation as of the last join that was answered; None if there is none."""

    def session_timeout_s(self) -> float | None:
        """Return after how many seconds without a heartbeat it is put out of the group; None if that is not known."""

    def cooperative(self) -> bool:
        """Tell whether it keeps what it holds while it joins."""

    def cluster(self) -> AnyCluster:
        """Return the consumer's live view of the cluster."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call this after some seconds, where the client calls its assignors; it must not raise."""

    def spare_s(self) -> float:
        """Return how many seconds the client can do without this thread for what nobody waits for."""

    def refresh_metadata(self) -> None:
        """Have the client ask the brokers for new metadata; its listeners are called with them."""

    def request_rejoin(self) -> None:
        """Have the consumer join again. Lost if a join is under way, so ask when one is complete."""


class ClientAdapter(Protocol):
    """The private side of a client: its `host` module."""

    def topology(self, cluster: AnyCluster, topics: Iterable[str]) -> Topology:
        """Return the live brokers, and those of the topics that have metadata."""

    def brokers(self, cluster: AnyCluster) -> tuple[Broker, ...]:
        """Return the brokers that are listed now."""

    def on_refresh(self, cluster: AnyCluster, callback: Callable[[], None], once: WarnOnce, *, key: object) -> None:
        """Call this after each refresh of the metadata, unless that is done for this key already."""

    def find_membership(self, cluster: AnyCluster) -> GroupMembership | None:
        """Return the membership of the consumer whose view of the cluster this is, None if it cannot be told."""


def time_limit_s(membership: GroupMembership | None) -> float:
    """Return how many seconds a plan may take: a third of the session timeout.

    The other two thirds are for what comes before and behind it: reading the join, a plan without a solver, which
    takes some seconds for the largest groups, encoding, and a machine that is busy. Where the consumer is not known,
    the least session timeout that brokers take by default counts (`group.min.session.timeout.ms`).
    """
    session_s = None if membership is None else membership.session_timeout_s()
    return (_LEAST_SESSION_S if session_s is None else session_s) / 3


_LEAST_SESSION_S = 6.0
