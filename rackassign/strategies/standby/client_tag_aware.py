"""Standby placement of Kafka Streams, step by step: identical results, including their weaknesses.

Clients and tasks are numbers here, in the order in which Kafka iterates over them: clients by process ID, tasks in the
caller's order (Kafka's high-availability assignor sorts them). The result depends on the order of tasks.

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

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Holders = list[list[int]]
"""For each task the clients that hold a standby of it, in the order in which they were chosen."""


@dataclass(frozen=True, slots=True)
class Clients:
    """Clients that can hold copies, as numbers.

    Args:
        capacity: Threads of each, 1 or more.
        tags: Tags of each.
        active: Active tasks of each; a task has at most one active client.
    """

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

    def __post_init__(self) -> None:
        self.owner = {task: client for client, tasks in enumerate(self.clients.active) for task in tasks}
        self.count = [len(tasks) for tasks in self.clients.active]
        for holders in self.standbys.values():
            for client in holders:
                self.count[client] += 1

    def load(self, client: int) -> float:
        return self.count[client] / self.clients.capacity[client]

    def holds(self, client: int, task: int) -> bool:
        return self.owner.get(task) == client or client in self.standbys[task]

    def least_loaded(self, able: Iterable[int]) -> int | None:
        return min(able, key=lambda client: (self.load(client), client), default=None)

    def give(self, client: int, task: int) -> None:
        self.standbys[task].append(client)
        self.count[client] += 1

    def take(self, client: int, task: int) -> None:
        self.standbys[task].remove(client)
        self.count[client] -= 1


def place(clients: Clients, tasks: Sequence[int], standbys: int, keys: Sequence[str]) -> Holders:
    """Return the clients with the standbys of each task.

    Args:
        clients: Clients in order of their process IDs.
        tasks: Stateful tasks from 0, in the order in which they are placed.
        standbys: Number of standbys of each task; with too few clients it has fewer.
        keys: Relevant tags; without any all clients are equivalent.
    """
    board = _StandbyState(clients, {task: [] for task in range(len(tasks))})
    if standbys:
        dimensions = _Dimensions.of(clients, keys)
        for task in tasks:
            if task in board.owner:
                _spread(board, task, standbys, dimensions)
        for task in tasks:
            _fill(board, task, standbys)
    return [board.standbys[task] for task in range(len(tasks))]


def balance(clients: Clients, holders: Holders) -> Holders:
    """Return standbys moved to less loaded clients, as far as these have all tags of the former holder."""
    board = _StandbyState(clients, {task: list(own) for task, own in enumerate(holders)})
    moved = True
    while moved:
        moved = False
        for source in range(len(clients)):
            for target in range(len(clients)):
                if not _evens(board, source, target) or not preserves_tags(clients.tags[source], clients.tags[target]):
                    continue
                for task in [task for task, own in board.standbys.items() if source in own]:
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


def preserves_diversity(holders: Sequence[Mapping[str, str]], source: int, target: Mapping[str, str]) -> bool:
    """Return whether the copies of a task have no fewer different tags after one of them is moved.

    Args:
        holders: The tags of all clients with a copy, including the active one.
        source: Index of the client that gives up its copy.
        target: The tags of the client that takes it.
    """
    after = [target if number == source else tags for number, tags in enumerate(holders)]
    return len(_pairs(after)) >= len(_pairs(holders))


@dataclass(frozen=True, slots=True)
class _Dimensions:
    """The relevant tags: the number of values of each, and the clients with each value."""

    values: Mapping[str, int]
    carriers: Mapping[tuple[str, str], frozenset[int]]

    @classmethod
    def of(cls, clients: Clients, keys: Sequence[str]) -> _Dimensions:
        found: dict[tuple[str, str], set[int]] = {}
        for client, tags in enumerate(clients.tags):
            for key in keys:
                if key in tags:
                    found.setdefault((key, tags[key]), set()).add(client)
        values = {key: sum(1 for each, _ in found if each == key) for key in keys}
        return cls(values, {pair: frozenset(who) for pair, who in found.items()})


def _spread(board: _StandbyState, task: int, standbys: int, dimensions: _Dimensions) -> None:
    """Place copies on clients without a tag that the task's copies have already."""
    clients = board.clients
    last = board.owner[task]
    blocked: dict[str, set[int]] = {}
    for used in range(1, standbys + 1):
        for key, values in dimensions.values.items():
            value = clients.tags[last].get(key)
            if value is None:
                continue
            if values <= used:
                blocked.pop(key, None)
            else:
                blocked.setdefault(key, set()).update(dimensions.carriers[key, value])
        out = set().union(*blocked.values())
        able = (client for client in range(len(clients)) if client not in out and not board.holds(client, task))
        picked = board.least_loaded(able)
        if picked is None:
            return
        board.give(picked, task)
        last = picked


def _fill(board: _StandbyState, task: int, standbys: int) -> None:
    """Place the missing copies, regardless of tags."""
    while len(board.standbys[task]) < standbys:
        picked = board.least_loaded(client for client in range(len(board.clients)) if not board.holds(client, task))
        if picked is None:
            return
        board.give(picked, task)


def _evens(board: _StandbyState, source: int, target: int) -> bool:
    """Return whether moving a copy balances loads, and does not just reverse their difference."""
    skew = board.load(source) - board.load(target)
    capacity: Callable[[int], int] = board.clients.capacity.__getitem__
    after = (board.count[source] - 1) / capacity(source) - (board.count[target] + 1) / capacity(target)
    return 0 <= after < skew


def _pairs(holders: Iterable[Mapping[str, str]]) -> set[tuple[str, str]]:
    return {pair for tags in holders for pair in tags.items()}
