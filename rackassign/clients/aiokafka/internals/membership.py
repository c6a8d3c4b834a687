"""A consumer's membership in its group, and how it is found: aiokafka passes neither to an assignor."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from rackassign.clients.aiokafka.internals.metadata import Consumer
from rackassign.model import Partitions

Coordinator = Any
"""aiokafka's `GroupCoordinator`, untyped."""

AssignorT = TypeVar("AssignorT")
T = TypeVar("T")


class Membership:
    """A view of a coordinator; it may be used on the consumer's loop.

    Args:
        coordinator: aiokafka's `GroupCoordinator`.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator

    def same_consumer(self, other: Membership) -> bool:
        """Return whether both memberships belong to one consumer."""
        return self.coordinator is other.coordinator

    def over(self) -> bool:
        """Return whether its consumer was stopped or has failed; reads `_closing` and `_coordination_task`."""
        ends = (getattr(self.coordinator, name, None) for name in ("_closing", "_coordination_task"))
        return any(end is not None and end.done() for end in ends)

    def owned(self) -> Partitions:
        """Return nothing: an eager member has revoked everything before this is called."""
        return {}

    def cooperative(self) -> bool:
        """Return False: aiokafka revokes everything before it joins (`_on_join_prepare`)."""
        return False

    def session_timeout_s(self) -> float | None:
        """Return the session timeout; reads `_session_timeout_ms`. None if the attribute is missing."""
        timeout_ms = getattr(self.coordinator, "_session_timeout_ms", None)
        return timeout_ms / 1000 if isinstance(timeout_ms, int | float) else None

    def generation(self) -> int | None:
        """Return the group's generation as of the last join response; None if there is none.

        Reads `generation`, which is set before a leader computes an assignment.
        """
        generation = getattr(self.coordinator, "generation", None)
        return generation if isinstance(generation, int) and generation >= 0 else None

    def member_id(self) -> str:
        """Return the member ID, which is empty before the first join; reads `member_id`."""
        return str(getattr(self.coordinator, "member_id", ""))

    def cluster(self) -> Any:
        """Return the consumer's live view of the cluster; reads `_cluster`."""
        return self.coordinator._cluster

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call this on the loop after some seconds, unless the consumer was stopped; it must not raise."""
        asyncio.get_running_loop().call_later(delay_s, lambda: None if self.over() else callback())

    def compute(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Work on a thread: the user's own tasks are on the loop."""
        compute_on_thread(work, lambda result: None if self.over() else done(result))

    def refresh_metadata(self) -> None:
        """Make the client request new metadata from the brokers; calls `_client.force_metadata_update()`."""
        self.coordinator._client.force_metadata_update()

    def request_rejoin(self) -> None:
        """Make it rejoin. The request is lost between JoinGroup and SyncGroup, so call this after a join."""
        self.coordinator.request_rejoin()


def compute_on_thread(work: Callable[[], T], done: Callable[[T], None]) -> None:
    """Call `work` on a thread, and `done` with its result on the running loop, unless that is closed by then.

    The thread is none of the loop's own, which may all be occupied by the user's work for any time.
    """
    loop = asyncio.get_running_loop()

    def run() -> None:
        result = work()
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(done, result)

    try:
        threading.Thread(target=run, name="rackassign-plan", daemon=True).start()
    except RuntimeError:
        # No thread can be started now.
        done(work())


def membership_of(consumer: Consumer) -> Membership | None:
    """Return the membership of a started consumer; reads `_coordinator`. None before, or without a group."""
    return _checked(getattr(consumer, "_coordinator", None))


def find_membership(cluster: Any) -> Membership | None:
    """Return the membership of the consumer with this view of the cluster, None if it cannot be determined.

    The coordinator is a listener of the view: it is found in `_listeners`, behind its bound method.
    """
    listeners: Iterable[Any] = getattr(cluster, "_listeners", ())
    found = (_checked(getattr(listener, "__self__", None)) for listener in tuple(listeners))
    return next((membership for membership in found if membership is not None), None)


_FAR_ENOUGH = 12
"""Number of callers to search. The coordinator is the second or third; some are of this package."""


def membership_from_stack() -> Membership | None:
    """Return the membership of the consumer that is calling `metadata` now, None if it cannot be determined.

    An assignor gets only topics then, and it is the last opportunity to arrange that racks of members can be read. The
    caller is the coordinator: `perform_group_join`, called by its `_do_rejoin_group`, whose `self` it is.
    """
    return next((found for caller in _callers() if (found := _checked(caller)) is not None), None)


def fetch_rack(membership: Membership) -> str | None:
    """Return the rack that the consumer of this membership sends with its fetches, "" if none.

    The coordinator does not know the fetcher, but both have the same subscription, and a fetcher that runs is the
    `self` of one of the loop's tasks. Reads `_subscription` of the one, and `_subscriptions` and `_client_rack` of the
    other. None if no such task is found.
    """
    subscription = getattr(membership.coordinator, "_subscription", None)
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:
        # No loop is running.
        return None
    for task in tasks:
        frame = getattr(task.get_coro(), "cr_frame", None)
        owner = None if frame is None else frame.f_locals.get("self")
        if subscription is not None and _attributes(owner).get("_subscriptions") is subscription:
            rack = _attributes(owner).get("_client_rack", "")
            return rack if isinstance(rack, str) else ""
    return None


def _attributes(owner: object) -> Mapping[str, Any]:
    """Return the attributes of an object of the application, which may raise any error when it is asked for one."""
    try:
        found: object = vars(owner)
    except Exception:  # noqa: BLE001 - it is not the fetcher
        return {}
    return found if isinstance(found, dict) else {}


def _callers() -> Iterator[Any]:
    frame = inspect.currentframe()
    for _ in range(_FAR_ENOUGH):
        frame = None if frame is None else frame.f_back
        if frame is None:
            return
        yield frame.f_locals.get("self")


def _checked(coordinator: Coordinator | None) -> Membership | None:
    fits = (
        callable(getattr(coordinator, "request_rejoin", None))
        and hasattr(coordinator, "generation")
        and hasattr(coordinator, "_cluster")
        and hasattr(coordinator, "_assignors")
    )
    return Membership(coordinator) if fits else None


def per_consumer_instance(
    kind: type[AssignorT], make: Callable[[], AssignorT], make_alone: Callable[[], AssignorT]
) -> AssignorT:
    """Return the calling consumer's instance of an assignor, if the class was passed to the consumer.

    aiokafka uses a class as it is, for all consumers. So at the first call the class is replaced by an instance in
    `_assignors` of the coordinator. If the caller cannot be determined, each call gets an instance of its own, which
    sends its rack and keeps no state.

    Args:
        kind: The class.
        make: Creates the instance of a consumer.
        make_alone: Creates an instance for one call.
    """
    found = membership_from_stack()
    if found is None:
        return make_alone()
    assignors: Sequence[Any] = found.coordinator._assignors
    for each in assignors:
        if type(each) is kind:
            return each
    made = make()
    found.coordinator._assignors = tuple(made if each is kind else each for each in assignors)
    return made
