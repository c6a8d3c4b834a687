"""What becomes of a join that has ended when nobody looked."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import GroupAuthorizationFailedError, IllegalStateError

from rackassign.clients.kafka_python.patches.join import KEEP_COMPLETED_JOIN
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
