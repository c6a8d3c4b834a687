"""Standby placement of Kafka Streams, step by step: identical results, including their weaknesses.

Clients and tasks are numbers here, in the order in which Kafka iterates over them: clients by process ID, tasks in the
caller's order (Kafka's high-availability assignor sorts them). The result depends on the order of tasks, and so does
that of the copies that are placed at the end, for which Kafka's order is that of a hash table.

Source: `ClientTagAwareStandbyTaskAssignor`, `DefaultStandbyTaskAssignor` and `HighAvailabilityTaskAssignor` of Apache
Kafka, KIP-708.

Theory of operation
-------------------
For each task one standby after the other is placed, on the least loaded client first. A client is excluded if it shares
a relevant tag with one that was chosen before it, including the active one. A tag is ignored for the task for good as
soon as there are as many copies as it has values. If no client remains, the missing copies are placed at the end, least
loaded clients first, regardless of tags. So it may run into a dead end that another first choice would have avoided,
and has no second round over the values of a tag. Load is copies divided by capacity; capacity is no limit.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Holders = list[list[int]]
"""For each task the clients that hold a standby of it, in the order in which they were chosen."""


@dataclass(frozen=True, slots=True)
class Clients:
    """Clients that can hold copies, as numbers."""

    # Of each: its threads, 1 or more; its tags; and active tasks, which have at most one client.
    capacity: tuple[int, ...]
    tags: tuple[Mapping[str, str], ...]
    active: tuple[frozenset[int], ...]

    def __len__(self) -> int:
        return len(self.capacity)


@dataclass(slots=True)
class _StandbyState:
    """The copies of each client during placement."""

    clients: Clients
    standbys: dict[int, list[int]]
    owner: dict[int, int] = field(init=False)
    count: list[int] = field(init=False)
    held: list[set[int]] = field(init=False)
    order: list[tuple[float, int]] = field(init=False)
    """Clients with their loads, the least loaded first: with thousands of clients each copy looks at few of them."""

    _having: dict[tuple[str, str], int] = field(init=False)
    """The clients with each value of a tag, as bits."""

    _lowest: float = field(init=False, default=-1.0)
    """The lowest load of a client after one more copy; negative if it has to be computed again."""

    def __post_init__(self) -> None:
        self.owner = {task: client for client, tasks in enumerate(self.clients.active) for task in tasks}
        self.held = [set() for _ in self.clients.active]
        for task, holders in self.standbys.items():
            for client in holders:
                self.held[client].add(task)
        self.count = [len(tasks) + len(held) for tasks, held in zip(self.clients.active, self.held, strict=True)]
        self.order = sorted((self.load(client), client) for client in range(len(self.clients)))
        self._having = defaultdict(int)
        for client, tags in enumerate(self.clients.tags):
            for tag in tags.items():
                self._having[tag] |= 1 << client

    def load(self, client: int) -> float:
        return self.count[client] / self.clients.capacity[client]

    def holds(self, client: int, task: int) -> bool:
        return self.owner.get(task) == client or client in self.standbys[task]

    def least_loaded(self, task: int, blocked: Mapping[str, set[str]] | None = None) -> int | None:
        """Return the least loaded client without a copy of the task, and without a blocked value of a tag."""
        # As bits: with few values of tags most of the least loaded clients have a blocked one.
        closed = sum(1 << client for client in self.standbys[task])
        for key, values in (blocked or {}).items():
            for value in values:
                closed |= self._having[key, value]
        owner = self.owner.get(task)
        closed |= 0 if owner is None else 1 << owner
        return next((client for _, client in self.order if not closed >> client & 1), None)

    def give(self, client: int, task: int) -> None:
        self.standbys[task].append(client)
        self.held[client].add(task)
        self._change(client, 1)

    def take(self, client: int, task: int) -> None:
        self.standbys[task].remove(client)
        self.held[client].remove(task)
        self._change(client, -1)

    def may_give(self, client: int) -> bool:
        """Return whether there is a client to which moving a copy would balance loads."""
        counts = zip(self.count, self.clients.capacity, strict=True)
        self._lowest = min((count + 1) / capacity for count, capacity in counts) if self._lowest < 0 else self._lowest
        return (self.count[client] - 1) / self.clients.capacity[client] >= self._lowest

    def _change(self, client: int, by: int) -> None:
        del self.order[bisect_left(self.order, (self.load(client), client))]
        self.count[client] += by
        self._lowest = -1.0
        insort(self.order, (self.load(client), client))


def place(
    clients: Clients, tasks: Sequence[int], standbys: int, keys: Sequence[str], leftovers: Sequence[int] | None = None
) -> Holders:
    """Return the clients with the standbys of each task.

    Args:
        clients: Clients in order of their process IDs.
        tasks: Stateful tasks from 0, in the order in which they are placed.
        standbys: Number of standbys of each task; with too few clients it has fewer.
        keys: Relevant tags; without any all clients are equivalent.
        leftovers: The tasks in the order in which their missing copies are placed at the end; as `tasks` if left out.
    """
    board = _StandbyState(clients, {task: [] for task in range(len(tasks))})
    if standbys:
        values = {key: len({tags[key] for tags in clients.tags if key in tags}) for key in keys}
        for task in tasks:
            if task in board.owner:
                _spread(board, task, standbys, values)
        for task in tasks if leftovers is None else leftovers:
            _fill(board, task, standbys)
    return [board.standbys[task] for task in range(len(tasks))]


def balance(clients: Clients, holders: Holders) -> Holders:
    """Return standbys moved to less loaded clients, as far as these have all tags of the former holder."""
    board = _StandbyState(clients, {task: list(own) for task, own in enumerate(holders)})
    moved = True
    while moved:
        moved = False
        for source in range(len(clients)):
            # Nearly all pairs have equal loads, and with thousands of clients there are millions of pairs.
            if not board.may_give(source):
                continue
            for target in range(len(clients)):
                if not _evens(board, source, target) or not preserves_tags(clients.tags[source], clients.tags[target]):
                    continue
                for task in sorted(board.held[source]):
                    if not _evens(board, source, target):
                        break
                    if not board.holds(target, task):
                        board.take(source, task)
                        board.give(target, task)
                        moved = True
    return [board.standbys[task] for task in range(len(holders))]


def preserves_tags(source: Mapping[str, str], target: Mapping[str, str]) -> bool:
    """Return whether a client has all tags of another; it may have more."""
    return all(target.get(key) == value for key, value in source.items())


def _spread(board: _StandbyState, task: int, standbys: int, values: Mapping[str, int]) -> None:
    """Place copies on clients without a tag that the task's copies have already."""
    clients = board.clients
    last = board.owner[task]
    blocked: dict[str, set[str]] = {}
    for used in range(1, standbys + 1):
        for key, several in values.items():
            value = clients.tags[last].get(key)
            if value is None:
                continue
            if several <= used:
                blocked.pop(key, None)
            else:
                blocked.setdefault(key, set()).add(value)
        picked = board.least_loaded(task, blocked)
        if picked is None:
            return
        board.give(picked, task)
        last = picked


def _fill(board: _StandbyState, task: int, standbys: int) -> None:
    """Place the missing copies, regardless of tags."""
    while len(board.standbys[task]) < standbys:
        picked = board.least_loaded(task)
        if picked is None:
            return
        board.give(picked, task)


def _evens(board: _StandbyState, source: int, target: int) -> bool:
    """Return whether moving a copy balances loads, and does not just reverse their difference."""
    skew = board.load(source) - board.load(target)
    capacity: Callable[[int], int] = board.clients.capacity.__getitem__
    after = (board.count[source] - 1) / capacity(source) - (board.count[target] + 1) / capacity(target)
    return 0 <= after < skew
