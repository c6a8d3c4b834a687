"""The member of a group inside kafka-python, without brokers."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import kafka.errors
import pytest
from kafka import TopicPartition as KafkaPythonPartition
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from rackassign.clients.kafka_python.internals.group_member import (
    CommittedOffset,
    GroupOnlyMember,
    MemberAssignment,
    RevocationRequired,
)
from rackassign.errors import ConfigError
from tests.helpers.fakes.confluent import ONE, TWO


class Coordinator:
    """As much of kafka-python's `ConsumerCoordinator` as a member needs."""

    def __init__(self, protocol: RebalanceProtocol) -> None:
        self._rebalance_protocol = protocol
        self.lost = False
        self._offset_fetch_futures: dict[Any, Any] = {"old": 1}
        self._generation = SimpleNamespace(is_lost=lambda: self.lost)
        self._subscription = SimpleNamespace(assigned_partitions=lambda: set(self.assigned), subscription={"t"})
        self.assigned: set[KafkaPythonPartition] = set()
        self.next: set[KafkaPythonPartition] | None = None
        self.joins = 0
        self.has_reason = True
        self.rejoin_needed = False
        self.answers: list[int] = []
        self.heard: list[int] = []

    def poll(self, timeout_ms: float | None = None) -> bool:
        if not (self.has_reason or self.rejoin_needed):
            return True
        asyncio.run(self._on_join_prepare_async(1, "m", timeout_ms=timeout_ms))
        self.joins += 1
        self.rejoin_needed = False
        told = ConsumerProtocolAssignment(0, [("t", [0])], b"")
        asyncio.run(self._on_join_complete_async(self.joins, "m", "range", told.encode()))
        return True

    async def _on_join_prepare_async(self, generation: int, member_id: str, timeout_ms: float | None = None) -> None:
        """Give up what the host would."""

    async def _on_join_complete_async(
        self,
        generation: int,  # noqa: ARG002 - a member looks at the names
        member_id: str,  # noqa: ARG002 - as above
        protocol: str,  # noqa: ARG002 - as above
        member_assignment_bytes: bytes,  # noqa: ARG002 - as above
    ) -> None:
        if self.next is not None:
            self.assigned = self.next

    def fetch_committed_offsets(self, partitions: Any, timeout_ms: float | None = None) -> Any:
        if timeout_ms == 0:
            raise kafka.errors.KafkaTimeoutError
        return {place: SimpleNamespace(offset=place.partition, leader_epoch=3) for place in partitions}

    def need_rejoin(self) -> bool:
        return False

    def request_rejoin(self) -> None:
        self.rejoin_needed = True

    def _invoke_completed_offset_commit_callbacks(self) -> None:
        while self.answers:
            time.sleep(0.001)
            self.heard.append(self.answers.pop())


def member_of(coordinator: Coordinator) -> GroupOnlyMember:
    return GroupOnlyMember(SimpleNamespace(_coordinator=coordinator))


def owner_of_one(protocol: RebalanceProtocol) -> tuple[Coordinator, GroupOnlyMember]:
    """Return a member that has joined and was assigned a partition, and its coordinator."""
    coordinator = Coordinator(protocol)
    member = member_of(coordinator)
    coordinator.next = {KafkaPythonPartition("t", 0)}
    member.poll(5)
    return coordinator, member


def test_an_eager_member_gives_up_everything_before_it_joins() -> None:
    coordinator, member = owner_of_one(RebalanceProtocol.EAGER)
    assert member.take_new_assignment() == MemberAssignment(1, "m", frozenset({ONE}))
    assert member.take_new_assignment() is None
    assert coordinator._offset_fetch_futures == {}
    for _ in range(2):
        with pytest.raises(RevocationRequired) as due:
            member.poll(5)
        assert (due.value.partitions, due.value.lost) == (frozenset({ONE}), False)
        assert coordinator.joins == 1
    member.acknowledge_revocation(due.value.partitions)
    # The host rejects what it is given, and goes on listing what it had.
    coordinator.next = {KafkaPythonPartition("t", 1)}
    member.poll(5)
    assert member.take_new_assignment() == MemberAssignment(2, "m", frozenset())


@pytest.mark.parametrize("protocol", list(RebalanceProtocol))
def test_a_member_that_has_given_up_joins_even_if_it_need_not_any_more(protocol: RebalanceProtocol) -> None:
    coordinator, member = owner_of_one(protocol)
    member.take_new_assignment()
    coordinator._subscription.subscription = {"u"}
    with pytest.raises(RevocationRequired) as due:
        member.poll(5)
    member.acknowledge_revocation(due.value.partitions)
    # What it subscribed to before is subscribed to again, or is back in the metadata, before the next poll.
    coordinator._subscription.subscription = {"t"}
    coordinator.has_reason = False
    member.poll(5)
    assert member.take_new_assignment() == MemberAssignment(2, "m", frozenset({ONE}))


def test_what_is_given_again_must_be_given_up_again() -> None:
    _, member = owner_of_one(RebalanceProtocol.EAGER)
    member.acknowledge_revocation({ONE})
    member.poll(5)
    with pytest.raises(RevocationRequired):
        member.poll(5)


def test_what_is_committed_is_known_or_not_yet() -> None:
    member = member_of(Coordinator(RebalanceProtocol.EAGER))
    assert member.committed([TWO], 0) is None
    assert member.committed([TWO], 5) == {TWO: CommittedOffset(1, 3)}


def test_answers_to_commits_are_heard_by_one_thread_at_a_time() -> None:
    coordinator = Coordinator(RebalanceProtocol.EAGER)
    member = member_of(coordinator)
    coordinator.answers = list(range(20))
    with ThreadPoolExecutor(4) as pool:
        # The host's own calls are among them.
        for done in [
            pool.submit(hear)
            for hear in (member.run_commit_callbacks, coordinator._invoke_completed_offset_commit_callbacks)
        ]:
            done.result()
    assert sorted(coordinator.heard) == list(range(20))


def test_another_host_is_no_seat() -> None:
    coordinator = Coordinator(RebalanceProtocol.EAGER)
    del coordinator._offset_fetch_futures
    with pytest.raises(ConfigError, match=r"there is no _coordinator\._offset_fetch_futures"):
        member_of(coordinator)
    coordinator = Coordinator(RebalanceProtocol.EAGER)
    coordinator.poll = lambda: True  # type: ignore[assignment,method-assign,misc]
    with pytest.raises(ConfigError, match=r"_coordinator\.poll takes nothing"):
        member_of(coordinator)


def test_an_assignment_that_was_not_taken_before_the_membership_was_lost_is_void() -> None:
    coordinator, member = owner_of_one(RebalanceProtocol.COOPERATIVE)
    # The handler of a signal has raised in place of the call that would have taken it.
    coordinator.lost = True
    with pytest.raises(RevocationRequired):
        member.poll(5)
    assert member.take_new_assignment() is None


def test_of_an_assignment_that_was_not_taken_only_what_is_still_subscribed_is_left() -> None:
    coordinator, member = owner_of_one(RebalanceProtocol.COOPERATIVE)
    coordinator.assigned = {KafkaPythonPartition("t", 0), KafkaPythonPartition("u", 0)}
    member._given = MemberAssignment(1, "m", frozenset({ONE, KafkaPythonPartition("u", 0)}))
    with pytest.raises(RevocationRequired):
        member.poll(5)
    assert member.take_new_assignment() == MemberAssignment(1, "m", frozenset({ONE}))


@pytest.mark.parametrize("protocol", list(RebalanceProtocol))
@pytest.mark.parametrize("lost", [True, False])
def test_a_member_gives_up_what_it_has_lost_or_does_not_subscribe_to(
    protocol: RebalanceProtocol, *, lost: bool
) -> None:
    coordinator, member = owner_of_one(protocol)
    coordinator.lost = lost
    coordinator._subscription.subscription = {"u"}
    assert member.lost() is lost
    with pytest.raises(RevocationRequired) as due:
        member.poll(5)
    assert (due.value.partitions, due.value.lost) == (frozenset({ONE}), lost)


def test_an_eager_assignment_that_was_not_taken_before_the_next_join_is_void() -> None:
    _, member = owner_of_one(RebalanceProtocol.EAGER)
    with pytest.raises(RevocationRequired):
        member.poll(5)
    assert member.take_new_assignment() is None
