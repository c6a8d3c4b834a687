"""The coordinator of one classic group, as in Kafka 4 (`GroupMetadataManager`, before it `GroupCoordinator`).

It has what members of both clients can reach: dynamic and static members, rebalance and session timeouts, commits with
fencing, and what is left of a group on another coordinator. An answer that is held back is a function to call later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from uuid import UUID

from tests.simulation.world import Broker, Event, World

ILLEGAL_GENERATION = 22
INCONSISTENT_PROTOCOL = 23
UNKNOWN_MEMBER_ID = 25
INVALID_SESSION_TIMEOUT = 26
REBALANCE_IN_PROGRESS = 27
NOT_COORDINATOR = 16
MEMBER_ID_REQUIRED = 79
FENCED_INSTANCE_ID = 82

EMPTY, PREPARING, COMPLETING, STABLE = "Empty", "PreparingRebalance", "CompletingRebalance", "Stable"

NEW_MEMBER_S = 300.0
"""Limit for the first join of a member, which has no session yet."""


class Joined(NamedTuple):
    """The answer to a join."""

    error: int
    member_id: str = ""
    generation: int = -1
    protocol: str | None = None
    leader: str = ""
    # Of the leader only: member ID, instance ID and metadata of each member.
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    protocol_type: str | None = None


class Synced(NamedTuple):
    """The answer to a sync."""

    error: int
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass
class GroupMember:
    """A member as its coordinator knows it."""

    id: str
    instance_id: str | None
    session_s: float
    rebalance_s: float
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    is_new: bool = True
    join: Callable[[Joined], None] | None = None
    sync: Callable[[Synced], None] | None = None
    expiry: Event | None = None

    def metadata(self, protocol: str | None) -> bytes:
        return next((data for name, data in self.protocols if name == protocol), b"")


class Committed(NamedTuple):
    """A committed offset."""

    offset: int
    leader_epoch: int
    metadata: str | None


@dataclass
class Group:
    """A classic group on its coordinator."""

    world: World
    name: str
    broker: Broker
    watcher: Any
    initial_delay_s: float = 0.0
    state: str = EMPTY
    generation: int = 0
    protocol: str | None = None
    protocol_type: str | None = None
    leader: str | None = None
    members: dict[str, GroupMember] = field(default_factory=dict)
    offsets: dict[tuple[str, int], Committed] = field(default_factory=dict)
    changed_at: float = 0.0
    # Static members whose present ID a coordinator that took over did not know.
    forgotten: set[str] = field(default_factory=set)
    _pending: dict[str, Event] = field(default_factory=dict)
    _unsynced: set[str] = field(default_factory=set)
    _instances: dict[str, str] = field(default_factory=dict)
    _timer: Event | None = None
    _ids: int = 0
    # Whether a group that was empty waits for further members (`group.initial.rebalance.delay.ms`).
    _holding: bool = False
    # What the coordinator has written: what another one finds.
    _written: tuple[Any, ...] = (0, None, None, None, ())

    # Joins.

    def join(self, request: Any, client: str, reply: Callable[[Joined], None]) -> None:
        member_id, instance = request.member_id, request.group_instance_id
        offered = tuple((each.name, bytes(each.metadata)) for each in request.protocols)
        session_s = request.session_timeout_ms / 1000
        if not 6 <= session_s <= 1800:
            reply(Joined(INVALID_SESSION_TIMEOUT, member_id))
        elif not self._fits(request.protocol_type, offered):
            reply(Joined(INCONSISTENT_PROTOCOL, member_id))
        elif not member_id:
            new = GroupMember(
                self._new_id(instance or client), instance, session_s, request.rebalance_timeout_ms / 1000, offered
            )
            self._join_new(request, new, reply)
        elif member_id in self._pending:
            self._pending.pop(member_id).cancel()
            self._add(
                GroupMember(member_id, instance, session_s, request.rebalance_timeout_ms / 1000, offered),
                reply,
                request.protocol_type,
            )
        elif error := self._stranger(member_id, instance):
            reply(Joined(error, member_id))
        else:
            member = self.members[member_id]
            member.session_s, member.rebalance_s = session_s, request.rebalance_timeout_ms / 1000
            self._rejoin(member, offered, reply)

    def _new_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}-{UUID(int=self._ids)}"

    def _fits(self, protocol_type: str, offered: tuple[tuple[str, bytes], ...]) -> bool:
        if not offered or not protocol_type:
            return False
        if not self.members:
            return True
        common = frozenset.intersection(*(frozenset(n for n, _ in m.protocols) for m in self.members.values()))
        return protocol_type == self.protocol_type and any(name in common for name, _ in offered)

    def _join_new(self, request: Any, new: GroupMember, reply: Callable[[Joined], None]) -> None:
        if new.instance_id is not None:
            known = self._instances.get(new.instance_id)
            if known is None:
                self._add(new, reply, request.protocol_type)
            else:
                self._replace(self.members[known], new, reply)
        elif request.API_VERSION >= 4:
            self._pending[new.id] = self._later(new.session_s, "pending member", lambda: self._forget_pending(new.id))
            reply(Joined(MEMBER_ID_REQUIRED, new.id))
        else:
            self._add(new, reply, request.protocol_type)

    def _forget_pending(self, member_id: str) -> None:
        self._pending.pop(member_id, None)
        self._complete_if_all_joined()

    def _add(self, member: GroupMember, reply: Callable[[Joined], None], protocol_type: str) -> None:
        self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.id
        self.members[member.id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.id
        member.join = reply
        self._expire_in(member, NEW_MEMBER_S)
        self._prepare()
        self._complete_if_all_joined()

    def _replace(self, old: GroupMember, new: GroupMember, reply: Callable[[Joined], None]) -> None:
        """Let a static member return under a new ID; its assignment stays, and no rebalance is needed for it."""
        leader = self.leader
        if old.join is not None:
            old.join(Joined(FENCED_INSTANCE_ID, old.id))
        if old.sync is not None:
            old.sync(Synced(FENCED_INSTANCE_ID))
        if old.expiry is not None:
            old.expiry.cancel()
        self.members = {
            new.id if key == old.id else key: new if key == old.id else each for key, each in self.members.items()
        }
        assert new.instance_id is not None
        self._instances[new.instance_id] = new.id
        if leader == old.id:
            self.leader = new.id
        new.assignment, new.is_new = old.assignment, False
        self._beat(new)
        if self.state == STABLE and self.protocol == self._chosen():
            self._write()
            reply(Joined(0, new.id, self.generation, self.protocol, leader or "", protocol_type=self.protocol_type))
            return
        new.join = reply
        if self.state in {STABLE, COMPLETING}:
            self._prepare()
        self._complete_if_all_joined()

    def _rejoin(
        self, member: GroupMember, offered: tuple[tuple[str, bytes], ...], reply: Callable[[Joined], None]
    ) -> None:
        same = member.protocols == offered
        if self.state == COMPLETING and same:
            reply(self._joined(member))
            return
        if self.state == STABLE and same and member.id != self.leader:
            self._beat(member)
            reply(self._joined(member))
            return
        if self.state == EMPTY:
            reply(Joined(UNKNOWN_MEMBER_ID, member.id))
            return
        member.protocols = offered
        member.join = reply
        self._prepare()
        self._complete_if_all_joined()

    def refuse_joins(self) -> None:
        """Answer joins that wait, as when the group becomes one of the new protocol (KIP-848)."""
        for member in self.members.values():
            reply, member.join = member.join, None
            if reply is not None:
                self._beat(member)
                reply(Joined(REBALANCE_IN_PROGRESS, member.id))

    def _joined(self, member: GroupMember) -> Joined:
        members = tuple((m.id, m.instance_id, m.metadata(self.protocol)) for m in self.members.values())
        shown = members if member.id == self.leader and self.state == COMPLETING else ()
        return Joined(0, member.id, self.generation, self.protocol, self.leader or "", shown, self.protocol_type)

    def _prepare(self) -> None:
        """Begin a rebalance, unless one has begun."""
        if self.state == PREPARING:
            return
        if self.state == COMPLETING:
            self._refuse_syncs(REBALANCE_IN_PROGRESS)
        self._holding = self.state == EMPTY and self.initial_delay_s > 0
        limit_s = self.initial_delay_s if self.state == EMPTY else max(m.rebalance_s for m in self.members.values())
        self._enter(PREPARING)
        self._unsynced.clear()
        self._restart(limit_s, "rebalance timeout", self._complete)

    def _complete_if_all_joined(self) -> None:
        waited_for = self._holding or self._pending or any(m.join is None for m in self.members.values())
        if self.state == PREPARING and not waited_for:
            self._complete()

    def _complete(self) -> None:
        """End the phase of joins; members that have not joined are removed, unless they are static."""
        self._holding = False
        for member in [each for each in self.members.values() if each.join is None and each.instance_id is None]:
            self._drop(member)
        if self.members and all(member.join is None for member in self.members.values()):
            self._restart(max(m.rebalance_s for m in self.members.values()), "rebalance timeout", self._complete)
            return
        if self.leader not in self.members or self.members[self.leader].join is None:
            self.leader = next((m.id for m in self.members.values() if m.join is not None), None)
        self.generation += 1
        if not self.members:
            self.protocol, self.leader = None, None
            self._enter(EMPTY)
            self._restart(None, "", self._complete)
            self._write()
            return
        self.protocol = self._chosen()
        self._enter(COMPLETING)
        self._unsynced = set(self.members)
        self._restart(max(m.rebalance_s for m in self.members.values()), "sync timeout", self._remove_unsynced)
        for member in list(self.members.values()):
            reply, member.join = member.join, None
            if reply is not None:
                self._beat(member)
                member.is_new = False
                reply(self._joined(member))

    def _chosen(self) -> str:
        common = frozenset.intersection(*(frozenset(n for n, _ in m.protocols) for m in self.members.values()))
        votes = Counter(next(n for n, _ in m.protocols if n in common) for m in self.members.values())
        return max(sorted(votes), key=lambda name: votes[name])

    # Syncs, heartbeats and leaving.

    def sync(self, request: Any, reply: Callable[[Synced], None]) -> None:
        if error := self._stranger(request.member_id, request.group_instance_id):
            reply(Synced(error))
            return
        member = self.members[request.member_id]
        if request.generation_id != self.generation:
            reply(Synced(ILLEGAL_GENERATION))
        elif request.protocol_name is not None and request.protocol_name != self.protocol:
            reply(Synced(INCONSISTENT_PROTOCOL))
        elif self.state == PREPARING:
            reply(Synced(REBALANCE_IN_PROGRESS))
        elif self.state == STABLE:
            self._beat(member)
            self._unsynced.discard(member.id)
            if not self._unsynced:
                self._restart(None, "", self._remove_unsynced)
            reply(Synced(0, member.assignment, self.protocol_type, self.protocol))
        elif self.state == COMPLETING:
            member.sync = reply
            self._unsynced.discard(member.id)
            if member.id == self.leader:
                self._assign({each.member_id: bytes(each.assignment) for each in request.assignments})
        else:
            reply(Synced(UNKNOWN_MEMBER_ID))

    def _assign(self, assignments: Mapping[str, bytes]) -> None:
        for each in self.members.values():
            each.assignment = assignments.get(each.id, b"")
        self.watcher.assigned(self)
        self._enter(STABLE)
        self._write()
        for each in list(self.members.values()):
            reply, each.sync = each.sync, None
            if reply is not None:
                self._beat(each)
                reply(Synced(0, each.assignment, self.protocol_type, self.protocol))
        if not self._unsynced:
            self._restart(None, "", self._remove_unsynced)

    def _remove_unsynced(self) -> None:
        if self.state in {COMPLETING, STABLE} and self._unsynced:
            for member_id in sorted(self._unsynced):
                if member_id in self.members:
                    self._drop(self.members[member_id])
            self._after_loss()

    def _refuse_syncs(self, error: int) -> None:
        for member in self.members.values():
            member.assignment = b""
            reply, member.sync = member.sync, None
            if reply is not None:
                self._beat(member)
                reply(Synced(error))

    def heartbeat(self, request: Any) -> int:
        if error := self._stranger(request.member_id, request.group_instance_id):
            return error
        if request.generation_id != self.generation:
            return ILLEGAL_GENERATION
        if self.state == EMPTY:
            return UNKNOWN_MEMBER_ID
        self._beat(self.members[request.member_id])
        return REBALANCE_IN_PROGRESS if self.state == PREPARING else 0

    def leave(self, member_id: str, instance_id: str | None) -> int:
        if member_id in self._pending:
            self._pending.pop(member_id).cancel()
            self._complete_if_all_joined()
            return 0
        if error := self._stranger(member_id, instance_id):
            return error
        member = self.members[member_id]
        if member.join is not None:
            member.join(Joined(UNKNOWN_MEMBER_ID, member.id))
        self._drop(member)
        self._after_loss()
        return 0

    def _stranger(self, member_id: str, instance_id: str | None) -> int:
        if instance_id is not None and self._instances.get(instance_id, member_id) != member_id:
            return FENCED_INSTANCE_ID
        return 0 if member_id in self.members else UNKNOWN_MEMBER_ID

    def _drop(self, member: GroupMember) -> None:
        del self.members[member.id]
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        if member.expiry is not None:
            member.expiry.cancel()
        if member.sync is not None:
            member.sync(Synced(UNKNOWN_MEMBER_ID))
        if self.leader == member.id:
            self.leader = next(iter(self.members), None)
        self._unsynced.discard(member.id)

    def _after_loss(self) -> None:
        if self.state in {STABLE, COMPLETING}:
            if self.members:
                self._prepare()
            else:
                self._enter(PREPARING)
                self._complete()
        self._complete_if_all_joined()

    def _beat(self, member: GroupMember) -> None:
        self._expire_in(member, member.session_s)

    def _expire_in(self, member: GroupMember, seconds: float) -> None:
        if member.expiry is not None:
            member.expiry.cancel()
        member.expiry = self._later(seconds, "session timeout", lambda: self._expired(member))

    def _expired(self, member: GroupMember) -> None:
        # A member that waits for an answer sends no heartbeats, and is alive.
        if self.members.get(member.id) is not member:
            return
        if (member.join is not None and not member.is_new) or member.sync is not None:
            self._beat(member)
            return
        self.world.note("expired", member.id)
        self.watcher.expired(self, member)
        self._drop(member)
        self._after_loss()

    # Offsets.

    def commit_error(self, member_id: str, instance_id: str | None, generation: int) -> int:
        """Return the error of a commit; a commit that is accepted counts as a heartbeat."""
        if generation < 0 and self.state == EMPTY:
            return 0
        if error := self._stranger(member_id, instance_id):
            return error
        if generation != self.generation:
            return ILLEGAL_GENERATION
        if self.state == COMPLETING:
            return REBALANCE_IN_PROGRESS
        self._beat(self.members[member_id])
        return 0

    def transaction_error(self, member_id: str, instance_id: str | None, generation: int) -> int:
        """Return the error of offsets in a transaction, which a group takes while it rebalances, too."""
        if generation < 0 and not member_id and instance_id is None:
            return 0
        if generation < 0 and self.state == EMPTY:
            return 0
        return self._stranger(member_id, instance_id) or (0 if generation == self.generation else ILLEGAL_GENERATION)

    def commit(self, partition: tuple[str, int], offset: Committed, member_id: str) -> None:
        self.watcher.committed(self, partition, self.offsets.get(partition), offset, member_id)
        self.offsets[partition] = offset

    # Another coordinator.

    def move(self, broker: Broker) -> None:
        """Load this group on another broker, from what was written."""
        for member in self.members.values():
            if member.expiry is not None:
                member.expiry.cancel()
            if member.join is not None:
                member.join(Joined(NOT_COORDINATOR, member.id))
            if member.sync is not None:
                member.sync(Synced(NOT_COORDINATOR))
        for event in self._pending.values():
            event.cancel()
        self._pending.clear()
        self.broker = broker
        self.generation, self.protocol, self.protocol_type, self.leader, members = self._written
        self.members = {each.id: replace(each, join=None, sync=None, expiry=None) for each in members}
        written = {m.instance_id: m.id for m in self.members.values() if m.instance_id is not None}
        self.forgotten |= {name for name, known in self._instances.items() if written.get(name, known) != known}
        self._instances = written
        self._unsynced.clear()
        self._restart(None, "", self._complete)
        self._enter(STABLE if self.members else EMPTY)
        for member in self.members.values():
            self._beat(member)

    def _write(self) -> None:
        self._written = (
            *(self.generation, self.protocol, self.protocol_type, self.leader),
            tuple(replace(each, join=None, sync=None, expiry=None, is_new=False) for each in self.members.values()),
        )

    def _enter(self, state: str) -> None:
        self.state = state
        self.changed_at = self.world.now
        self.world.note("group", f"{state} {self.generation} {len(self.members)}")

    def _restart(self, seconds: float | None, kind: str, action: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self._later(seconds, kind, action)

    def _later(self, seconds: float, kind: str, action: Callable[[], object]) -> Event:
        return self.world.later(seconds, kind, action, self.broker)
