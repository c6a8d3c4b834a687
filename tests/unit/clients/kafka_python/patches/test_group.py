"""What becomes of a join that has ended when nobody looked.

What a join does with the partitions of a member that was removed from its group, in kafka-python's own code.

Answers to requests for committed offsets, which are kept from one poll to the next.

Patches that wrap the same method: their order is declared, and another one is refused.

The classes of responses exist before two threads can create the same one, and what is registered is kept.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import threading
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import ConsumerRebalanceListener, TopicPartition
from kafka.consumer.subscription_state import SubscriptionState
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.coordinator.base import Generation
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.errors import CommitFailedError, GroupAuthorizationFailedError, IllegalStateError, UnknownMemberIdError
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

from rackassign.clients.kafka_python.patches import PATCHES
from rackassign.clients.kafka_python.patches import fetch as offsets
from rackassign.clients.kafka_python.patches.fetch import DISCARD_FORMER_COMMITTED_OFFSETS
from rackassign.clients.kafka_python.patches.group import KEEP_COMPLETED_JOIN, LOSE_PARTITIONS_WHEN_REMOVED_IN_JOIN
from rackassign.clients.kafka_python.patches.patch import Patch, create_response_classes, install
from rackassign.text import WarnOnce
from tests.helpers.documents import ROOT
from tests.helpers.kafka.response_class_race import registered_class, response_class_race


def failed(error: Exception) -> Any:
    """Return a join of kafka-python's that has failed."""
    return SimpleNamespace(is_done=True, exception=error, failed=lambda: True, succeeded=lambda: False)


class Coordinator:
    """As much of the host's coordinator as the patch touches."""

    def __init__(self, before: Any, within: Exception | None) -> None:
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
        self._join_task = failed(self._within)
        raise self._within


def joined(coordinator: Any) -> bool:
    KEEP_COMPLETED_JOIN.install(SimpleNamespace(_coordinator=coordinator), WarnOnce(logging.getLogger(__name__)))
    return bool(asyncio.run(coordinator.join_group_async(timeout_ms=0)))


def test_a_join_that_an_unsubscribe_came_into_is_made_again() -> None:
    before = Coordinator(failed(IllegalStateError()), None)
    assert joined(before)
    assert (before.asked, before._join_task) == (1, None)
    within = Coordinator(None, IllegalStateError())
    assert not joined(within)
    assert (within.asked, within._join_task) == (1, None)


@pytest.mark.parametrize("within", [True, False])
def test_what_the_user_must_know_is_raised(*, within: bool) -> None:
    error = GroupAuthorizationFailedError()
    coordinator = Coordinator(None, error) if within else Coordinator(failed(error), None)
    with pytest.raises(GroupAuthorizationFailedError):
        joined(coordinator)
    assert coordinator._join_task is None


PLACE = TopicPartition("t", 0)


class Joining(ConsumerCoordinator, ConsumerRebalanceListener):  # type: ignore[misc] # kafka-python is untyped
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
        self.calls: list[str] = []
        self._subscription = SubscriptionState("earliest")
        self._subscription.subscribe(["t"], listener=self)
        self._subscription.assign_from_subscribed([PLACE])
        self._subscription.seek(PLACE, 5)
        self.owned_in_joins: list[set[TopicPartition]] = []
        LOSE_PARTITIONS_WHEN_REMOVED_IN_JOIN.install(
            SimpleNamespace(_coordinator=self), WarnOnce(logging.getLogger(__name__))
        )

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        assert revoked == {PLACE}
        self.calls.append("revoked")

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        raise AssertionError(assigned)

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        assert lost == {PLACE}
        self.calls.append("lost")

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


@pytest.mark.parametrize("removed_by", ["nothing", "commit", "join"])
@pytest.mark.parametrize("protocol", list(RebalanceProtocol))
def test_a_member_removed_in_its_join_has_none_of_its_partitions_any_more(
    protocol: RebalanceProtocol, removed_by: str
) -> None:
    member = Joining(protocol, removed_by)
    assert asyncio.run(member.join_group_async())
    joins = {"nothing": [{PLACE}], "commit": [set()], "join": [{PLACE}, set()]}
    assert member.owned_in_joins == joins[removed_by]
    # An eager member has revoked its partitions before it joins, whatever comes then.
    cooperative = protocol == RebalanceProtocol.COOPERATIVE
    assert member.calls == (["revoked"] if not cooperative else [] if removed_by == "nothing" else ["lost"])


OLD, NEW = TopicPartition("t", 0), TopicPartition("t", 1)


class OffsetCoordinator:
    """A coordinator whose requests are answered behind the poll that has made them, as with a timeout of 0."""

    def __init__(self) -> None:
        self._subscription = SimpleNamespace(assignment={OLD: object(), NEW: object()})
        self._offset_fetch_futures: dict[frozenset[TopicPartition], int] = {}
        self.requests = 0

    async def fetch_committed_offsets_async(self, partitions: Any, timeout_ms: float | None = None) -> int | None:
        del timeout_ms
        key = frozenset(partitions)
        if key in self._offset_fetch_futures:
            return self._offset_fetch_futures.pop(key)
        self.requests += 1
        self._offset_fetch_futures[key] = self.requests
        return None

    def _handle_offset_commit_response(self, offsets: Any, send_time: float, response: Any) -> None:
        del offsets, send_time, response


def patched() -> OffsetCoordinator:
    coordinator = OffsetCoordinator()
    DISCARD_FORMER_COMMITTED_OFFSETS.install(
        SimpleNamespace(_coordinator=coordinator), WarnOnce(logging.getLogger("rackassign.test"))
    )
    return coordinator


def fetched(coordinator: OffsetCoordinator, *partitions: TopicPartition) -> int | None:
    return asyncio.run(coordinator.fetch_committed_offsets_async(partitions, timeout_ms=0))


def test_what_was_asked_before_a_commit_or_an_assignment_is_asked_again() -> None:
    coordinator = patched()
    assert fetched(coordinator, OLD, NEW) is None
    coordinator._handle_offset_commit_response({OLD: 5}, 0.0, None)
    assert fetched(coordinator, OLD, NEW) is None
    coordinator._subscription.assignment[NEW] = object()
    assert fetched(coordinator, OLD, NEW) is None
    assert fetched(coordinator, OLD, NEW) == 3


def test_what_others_own_is_asked_again_once_its_caller_has_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(offsets, "time", SimpleNamespace(monotonic=lambda: now[0]))
    coordinator, theirs = patched(), TopicPartition("t", 9)
    assert fetched(coordinator, theirs) is None
    # A caller that tries again takes the answer to its first request, however long that takes.
    now[0] += 1.0
    assert fetched(coordinator, theirs) == 1
    assert fetched(coordinator, theirs) is None
    now[0] += 3600.0
    assert fetched(coordinator, theirs) is None
    assert coordinator.requests == 3
    assert fetched(coordinator, theirs) == 3


def wrapping(name: str, *, after: tuple[str, ...] = ()) -> Patch:
    """Return a patch of `read` that adds its name to what is returned."""

    def add(consumer: Any, _once: WarnOnce) -> None:
        read = consumer.read
        consumer.read = lambda: [name, *read()]

    return Patch(name, "none", "none", {"read": ()}, (), add, after=after)


def nothing() -> list[str]:
    return []


FIRST, SECOND = wrapping("first"), wrapping("second", after=("first",))


def test_of_two_patches_of_one_method_the_later_one_is_declared_to_be_after_the_other() -> None:
    shared = [(a, b) for a, b in combinations(PATCHES, 2) if a.wraps.keys() & b.wraps.keys()]
    assert len(shared) == 10
    assert all(a.name in b.after for a, b in shared)


def test_every_declared_order_is_about_a_shared_method() -> None:
    by_name = {patch.name: patch for patch in PATCHES}
    for patch in PATCHES:
        for name in patch.after:
            assert by_name[name].wraps.keys() & patch.wraps.keys()


def test_the_page_has_each_patch_with_the_versions_that_have_the_defect() -> None:
    page = (ROOT / "docs/reference/patches.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\S+) to (\S+) \| ", page, re.MULTILINE)
    assert sorted(rows) == sorted((patch.name, *patch.versions) for patch in PATCHES)


def test_the_outer_patch_calls_the_inner_one(caplog: pytest.LogCaptureFixture) -> None:
    consumer: Any = SimpleNamespace(read=nothing)
    install(consumer, [FIRST, SECOND], WarnOnce(logging.getLogger("rackassign.test")))
    assert consumer.read() == ["second", "first"]
    assert not caplog.records


def test_a_patch_that_would_wrap_its_outer_one_stays_off(caplog: pytest.LogCaptureFixture) -> None:
    consumer: Any = SimpleNamespace(read=nothing)
    once = WarnOnce(logging.getLogger("rackassign.test"))
    # As `attach` does that is called twice, and disables a patch the first time.
    install(consumer, [SECOND], once)
    for _ in range(2):
        install(consumer, [FIRST, SECOND], once)
    assert consumer.read() == ["second"]
    (record,) = caplog.records
    assert "patch first is off: second wraps read already, and is to be installed after it" in record.getMessage()


def test_a_class_that_lost_the_race_is_registered_and_collected() -> None:
    with response_class_race(FindCoordinatorResponse):
        for version in (3, 4):
            with pytest.raises(ReferenceError):
                registered_class(FindCoordinatorRequest, version)


def test_a_process_in_which_it_has_happened_recovers() -> None:
    with response_class_race(FindCoordinatorResponse):
        assert create_response_classes() is None
        assert registered_class(FindCoordinatorRequest, 4) is FindCoordinatorResponse[4]


def test_no_class_is_created_later() -> None:
    assert create_response_classes() is None
    known = dict(FindCoordinatorResponse._VERSIONS)
    assert sorted(known) == list(range(FindCoordinatorResponse.max_version + 1))
    assert all(registered_class(FindCoordinatorRequest, version) is known[version] for version in known)
    assert create_response_classes() is None
    assert known == FindCoordinatorResponse._VERSIONS


def test_in_a_changed_kafka_python_it_returns_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kafka.protocol.api_header", None)
    misfit = create_response_classes()
    assert misfit is not None
    assert "kafka.protocol.api_header" in misfit
