"""A consumer's membership in its group: its partitions, its rebalance protocol, and how to request a rebalance."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from kafka.errors import KafkaError, RebalanceInProgressError

from rackassign.clients.kafka_python.internals.attributes import Coordinator, is_cooperative
from rackassign.clients.kafka_python.internals.metadata import Cluster
from rackassign.model import Partitions

T = TypeVar("T")


class Membership:
    """A view of a coordinator; it may be used on kafka-python's IO thread.

    Args:
        coordinator: kafka-python's `ConsumerCoordinator`.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def same_consumer(self, other: Membership) -> bool:
        """Return whether both memberships belong to one consumer."""
        return self._coordinator is other._coordinator

    def owned(self) -> Partitions:
        """Return the partitions that the consumer owns now; nothing once its membership was lost.

        Reads `_subscription.assigned_partitions()`, which kafka-python empties when it loses its generation and reduces
        when a topic is unsubscribed, without notifying assignors.
        """
        owned: dict[str, list[int]] = {}
        for topic, partition in self._coordinator._subscription.assigned_partitions():
            owned.setdefault(topic, []).append(partition)
        return {topic: tuple(sorted(partitions)) for topic, partitions in owned.items()}

    def generation(self) -> int | None:
        """Return the group's generation as of the last join response; None if there is none.

        Reads `_generation.generation_id`, which is set before a leader computes an assignment.
        """
        generation = getattr(getattr(self._coordinator, "_generation", None), "generation_id", None)
        return generation if isinstance(generation, int) and generation >= 0 else None

    def session_timeout_s(self) -> float | None:
        """Return the session timeout; reads `config["session_timeout_ms"]`. None if the attribute is missing."""
        timeout_ms = getattr(self._coordinator, "config", {}).get("session_timeout_ms")
        return timeout_ms / 1000 if isinstance(timeout_ms, int | float) else None

    def cooperative(self) -> bool:
        """Return whether it keeps its partitions while it joins; reads `_rebalance_protocol`."""
        return is_cooperative(self._coordinator)

    def cluster(self) -> Cluster:
        """Return the consumer's live view of the cluster; reads `_cluster`."""
        cluster: Cluster = self._coordinator._cluster
        return cluster

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call this on kafka-python's IO thread after some seconds; it must not raise.

        Uses `_manager.call_soon` and the awaitable that `_manager._net.sleep` makes.
        """

        async def wait() -> None:
            await self._coordinator._manager._net.sleep(delay_s)
            callback()

        self._coordinator._manager.call_soon(wait)

    def compute(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Work at once, on the IO thread, where `assign` plans too."""
        done(work())

    def refresh_metadata(self) -> None:
        """Make the client request new metadata from the brokers; calls `_cluster.request_update()`."""
        self._coordinator._cluster.request_update()

    def confirm(self, timeout_ms: float) -> bool:
        """Return whether the coordinator confirms this membership; blocks, and not to be used on the IO thread.

        Sends a heartbeat with `_send_heartbeat_request`, in the way of `commit_offsets_sync`. If it is refused,
        kafka-python gives the membership up and joins with the next `poll()`. During a join, of which `stable()`
        informs, nothing is confirmed.
        """
        coordinator = self._coordinator

        async def ask() -> None:
            future = coordinator._manager.call_soon(coordinator._send_heartbeat_request)
            await coordinator._manager.wait_for(future, timeout_ms)

        if not coordinator.stable():
            return False
        try:
            coordinator._net.run(ask)
        except RebalanceInProgressError:
            # Brokers check the generation first.
            return True
        except KafkaError:
            return False
        return True

    def request_rejoin(self) -> None:
        """Make it rejoin with its next `poll()`. Lost during a join, so call this only after a join is complete."""
        self._coordinator.request_rejoin()


def membership_of(consumer: Any) -> Membership | None:
    """Return the membership of a consumer; reads `_coordinator`. None if the attribute is missing."""
    return _checked(getattr(consumer, "_coordinator", None))


def find_membership(cluster: Any) -> Membership | None:
    """Return the membership of the consumer with this view of the cluster, None if it cannot be determined.

    An assignor gets only the cluster. The coordinator is a listener of it, so it is found in `_listeners`: behind a
    `kafka.util.WeakMethod`, whose `target` is a weak reference.
    """
    listeners: Iterable[Any] = getattr(cluster, "_listeners", ())
    for listener in tuple(listeners):
        target = getattr(listener, "target", None)
        found = _checked(target() if callable(target) else getattr(listener, "__self__", None))
        if found is not None:
            return found
    return None


def _checked(coordinator: Coordinator | None) -> Membership | None:
    subscription = getattr(coordinator, "_subscription", None)
    fits = (
        callable(getattr(subscription, "assigned_partitions", None))
        and callable(getattr(coordinator, "request_rejoin", None))
        and hasattr(coordinator, "_rebalance_protocol")
        and hasattr(coordinator, "_cluster")
    )
    return Membership(coordinator) if fits else None
