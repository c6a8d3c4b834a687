"""What becomes of a join that has ended when nobody looked.

What a join does with the partitions of a member that was removed from its group, in kafka-python's own code.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import ConsumerRebalanceListener, TopicPartition
from kafka.consumer.subscription_state import SubscriptionState
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.coordinator.base import Generation
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.errors import CommitFailedError, GroupAuthorizationFailedError, IllegalStateError, UnknownMemberIdError

from rackassign.clients.kafka_python.patches.group import KEEP_COMPLETED_JOIN, LOSE_PARTITIONS_WHEN_REMOVED_IN_JOIN
from rackassign.text import WarnOnce


class Task:
    """A join of the host's that has failed."""

    is_done = True

    def __init__(self, exception: Exception) -> None:
        self.exception = exception

    def failed(self) -> bool:
        return True

    def succeeded(self) -> bool:
        return False


class Coordinator:
    """As much of the host's coordinator as the patch touches."""

    def __init__(self, before: Task | None, within: Exception | None) -> None:
        self._join_task = before
        self._within = within
        self.asked = 0

    def need_rejoin(self) -> bool:
        return self.asked > 0

    def request_rejoin(self) -> None:
        self.asked += 1

    async def join_group_async(self, timeout_ms: float | None = None) -> bool:
        del timeout_ms
        if self._within is None:
            return True
        self._join_task = Task(self._within)
        raise self._within


def joined(coordinator: Any) -> bool:
    KEEP_COMPLETED_JOIN.install(SimpleNamespace(_coordinator=coordinator), WarnOnce(logging.getLogger(__name__)))
    return bool(asyncio.run(coordinator.join_group_async(timeout_ms=0)))


def test_a_join_that_an_unsubscribe_came_into_is_made_again() -> None:
    before = Coordinator(Task(IllegalStateError()), None)
    assert joined(before)
    assert (before.asked, before._join_task) == (1, None)
    within = Coordinator(None, IllegalStateError())
    assert not joined(within)
    assert (within.asked, within._join_task) == (1, None)


@pytest.mark.parametrize("within", [True, False])
def test_what_the_user_must_know_is_raised(*, within: bool) -> None:
    error = GroupAuthorizationFailedError()
    coordinator = Coordinator(None, error) if within else Coordinator(Task(error), None)
    with pytest.raises(GroupAuthorizationFailedError):
        joined(coordinator)
    assert coordinator._join_task is None


PLACE = TopicPartition("t", 0)


class Listener(ConsumerRebalanceListener):  # type: ignore[misc] # kafka-python is untyped
    """Notes its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        assert revoked == {PLACE}
        self.calls.append("revoked")

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        raise AssertionError(assigned)

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        assert lost == {PLACE}
        self.calls.append("lost")


class Joining(ConsumerCoordinator):  # type: ignore[misc] # the same
    """A member that has a partition, and is removed from its group at one step of its next join."""

    def __init__(self, protocol: RebalanceProtocol, removed_by: str) -> None:
        self.config = {"group_id": "g", "api_version": (4, 0), "enable_auto_commit": True, "retry_backoff_ms": 0}
        self._rebalance_protocol = protocol
        self._removed_by = removed_by
        self._lock = threading.RLock()
        self._generation = Generation(7, "m", "p")
        self._assignment_snapshot = self._metadata_snapshot = self._join_task = None
        self._joined_subscription = {"t"}
        self.rejoin_needed, self.rejoining = True, False
        net = SimpleNamespace(sleep=asyncio.sleep)
        self._manager = SimpleNamespace(call_soon=lambda join: join, wait_for=self.wait_for, _net=net)
        self.listener = Listener()
        self._subscription = SubscriptionState("earliest")
        self._subscription.subscribe(["t"], listener=self.listener)
        self._subscription.assign_from_subscribed([PLACE])
        self._subscription.seek(PLACE, 5)
        self.owned_in_joins: list[set[TopicPartition]] = []
        LOSE_PARTITIONS_WHEN_REMOVED_IN_JOIN.install(
            SimpleNamespace(_coordinator=self), WarnOnce(logging.getLogger(__name__))
        )

    async def ensure_coordinator_ready_async(self, timeout_ms: float | None = None) -> bool:
        del timeout_ms
        return True

    async def _commit_offsets_sync_async(self, offsets: Any, timeout_ms: float | None = None) -> None:
        del offsets, timeout_ms
        if self._removed_by == "commit":
            self.reset_generation()
            raise CommitFailedError

    async def wait_for(self, _join: Any, _timeout_ms: float | None) -> bytes:
        self.owned_in_joins.append(self._subscription.assigned_partitions())
        if self._removed_by == "join" and len(self.owned_in_joins) == 1:
            self.reset_generation()
            raise UnknownMemberIdError
        return b""

    def _disable_heartbeat(self) -> None:
        pass

    def _enable_heartbeat(self) -> None:
        pass

    async def _on_join_complete_async(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize("removed_by", ["commit", "join"])
@pytest.mark.parametrize("protocol", list(RebalanceProtocol))
def test_a_member_removed_in_its_join_has_none_of_its_partitions_any_more(
    protocol: RebalanceProtocol, removed_by: str
) -> None:
    member = Joining(protocol, removed_by)
    assert asyncio.run(member.join_group_async())
    assert member.owned_in_joins == ([{PLACE}] if removed_by == "join" else []) + [set()]
    # An eager member has revoked its partitions before it joins, whatever comes then.
    assert member.listener.calls == ["lost" if protocol == RebalanceProtocol.COOPERATIVE else "revoked"]


@pytest.mark.parametrize("protocol", list(RebalanceProtocol))
def test_a_member_that_is_not_removed_keeps_its_positions(protocol: RebalanceProtocol) -> None:
    member = Joining(protocol, "nothing")
    assert asyncio.run(member.join_group_async())
    assert member.owned_in_joins == [{PLACE}]
    assert member.listener.calls == ([] if protocol == RebalanceProtocol.COOPERATIVE else ["revoked"])
