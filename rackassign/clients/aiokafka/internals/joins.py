"""Metadata of joining members, read before aiokafka decodes it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from rackassign.assignor.subscriptions import JoinMember, decode_join
from rackassign.clients.aiokafka.internals.membership import Coordinator, Membership, compute_on_thread
from rackassign.text import WarnOnce, with_version


@dataclass(slots=True)
class SentMember:
    """Metadata of a member, in the form that `decode_join` reads and cleans."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Later:
    """Result of an assignor's `assign` instead of assignments, if `_perform_assignment` is shadowed.

    aiokafka calls `assign` on the consumer's loop, which would be blocked while a large group is planned.

    Args:
        plan: Computes a plan; may run on any thread.
        finish: Returns encoded assignments for it; runs on the consumer's loop.
    """

    plan: Callable[[], Any]
    finish: Callable[[Any], dict[str, bytes]]

    async def result(self) -> dict[str, bytes]:
        """Plan on a thread, and return the assignments."""
        planned: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        compute_on_thread(self.plan, lambda made: None if planned.done() else planned.set_result(made))
        return self.finish(await planned)


def read_joins(membership: Membership, once: WarnOnce) -> None:
    """Decode members' metadata before aiokafka does, and clean it; done once for a coordinator.

    aiokafka decodes only version 0, topics and user data, and fails on the first malformed member: then no member gets
    an assignment. Shadows `_perform_assignment`, and replaces `members` of the response it is called with: tuples of a
    member ID, from JoinGroup version 5 on an instance ID, and the bytes.
    """
    coordinator = membership.coordinator
    perform: Callable[[Any], Awaitable[Any]] | None = getattr(coordinator, "_perform_assignment", None)
    if isinstance(getattr(perform, "__self__", None), _Reading):
        return
    if perform is None or tuple(inspect.signature(perform).parameters) != ("response",):
        once.warn(
            "joins",
            "%s differs: racks of members are not read, and one malformed member breaks the group",
            with_version("aiokafka"),
        )
        return
    coordinator._perform_assignment = _Reading(coordinator, perform, once).perform


class _Reading:
    """Decodes each join that a coordinator leads, and continues it."""

    def __init__(self, coordinator: Coordinator, perform: Callable[[Any], Awaitable[Any]], once: WarnOnce) -> None:
        self._coordinator = coordinator
        self._perform = perform
        self._once = once

    async def perform(self, response: Any) -> Any:
        join = None
        try:
            join = _read(self._coordinator, response, self._once)
        except Exception:  # noqa: BLE001 - then aiokafka behaves as without this
            self._once.warn(
                "joins", "%s differs: members' metadata could not be read", with_version("aiokafka"), exc_info=True
            )
        token = _CURRENT.set(join)
        try:
            assigned = await self._perform(response)
        finally:
            _CURRENT.reset(token)
        return await self._planned(assigned) if isinstance(assigned, Later) else assigned

    async def _planned(self, later: Later) -> dict[str, bytes]:
        """Wait for a plan, and request the next rebalance if that was requested meanwhile.

        aiokafka relies on there being nothing to wait for between its view of the metadata in `_perform_assignment` and
        the reset of `_rejoin_needed_fut` that follows. A request in between, for new partitions, would be discarded.
        """
        coordinator = self._coordinator
        # The future itself cannot be asked: it is done already if this join was requested.
        snapshot = getattr(coordinator, "_metadata_snapshot", None)
        found = await later.result()
        try:
            if getattr(coordinator, "_metadata_snapshot", None) != snapshot:
                asyncio.get_running_loop().call_soon(coordinator.request_rejoin)
        except Exception:  # noqa: BLE001 - then aiokafka behaves as without this
            self._once.warn(
                "rejoin", "%s differs: new partitions may be assigned late", with_version("aiokafka"), exc_info=True
            )
        return found


@dataclass(frozen=True, slots=True)
class Join:
    """The join that a coordinator is calling its assignor for.

    Args:
        assignor: The assignor that is called; it may wrap another one.
        members: The members, decoded.
    """

    assignor: object
    members: tuple[JoinMember, ...]


def current_join() -> Join | None:
    """Return the join that aiokafka is calling an assignor for; None if it was not decoded."""
    return _CURRENT.get()


_CURRENT: ContextVar[Join | None] = ContextVar("rackassign_join", default=None)
"""aiokafka passes members to an assignor in a dict that it builds itself, so they cannot be passed as an argument."""


def _read(coordinator: Coordinator, response: Any, once: WarnOnce) -> Join:
    """Clean the members of a join in place, and return them decoded."""
    chosen = coordinator._lookup_assignor(response.group_protocol)
    members = [SentMember(each[0], each[1] if len(each) > _PAIR else None, each[-1]) for each in response.members]
    context = decode_join(members, chosen, once)
    response.members = [(*old[:-1], new.metadata) for old, new in zip(response.members, members, strict=True)]
    read = context.subscriptions
    return Join(chosen, tuple(JoinMember(m.member_id, m.group_instance_id, read[m.member_id]) for m in members))


_PAIR = 2
