"""Standbys as Kafka Streams places them, step for step: its result to the letter, with what is weak in it.

Clients and tasks are numbers here, in the order in which Kafka goes through them: clients by process id, tasks as the
caller says (Kafka's high-availability assignor sorts them). The result depends on the order of tasks.

Source: `ClientTagAwareStandbyTaskAssignor`, `DefaultStandbyTaskAssignor` and `HighAvailabilityTaskAssignor` of Apache
Kafka, KIP-708.

Theory of operation
-------------------
For each task one standby after the other is picked, least loaded client first. A client is out if it shares a tag that
counts with one that was picked before it, the active one included. A tag stops to count for the task for good as soon
as there are as many copies as it has values. Where nobody is left, what is missing is placed in the end, least loaded
first, whatever the tags. So it may run into a dead end that another first choice would have avoided, and has no second
round over the values of a tag. Load is copies over capacity; capacity is no limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Holders = list[list[int]]
"""For each task the clients that hold a standby of it, in the order in which they were chosen."""


@dataclass(frozen=True, slots=True)
class Clients:
    """Those that can hold copies, as numbers.

    Args:
        capacity: Threads of each, 1 or more.
        tags: Of each.
        active: Tasks that each runs; a task is run by one at most.
    """

    capacity: tuple[int, ...]
    tags: tuple[Mapping[str, str], ...]
    active: tuple[frozenset[int], ...]

    def __len__(self) -> int:
        return len(self.capacity)


@dataclass(slots=True)
class _StandbyState:
    """Who holds what while standbys are placed."""

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
    """Return who holds the standbys of each task.

    Args:
        clients: In order of their process ids.
        tasks: Stateful ones from 0, in the order in which they are placed.
        standbys: How many each is to have; with too few clients it has fewer.
        keys: Tags that count; without any all are alike.
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
    """Return standbys after they were moved to less loaded clients, as far as that keeps all tags of the holder."""
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
    """Tell whether a client has all tags of another, and may have more."""
    return all(target.get(key) == value for key, value in source.items())


def preserves_diversity(holders: Sequence[Mapping[str, str]], source: int, target: Mapping[str, str]) -> bool:
    """Tell whether copies of a task carry no fewer different tags once one of them has moved.

    Args:
        holders: The tags of all that hold a copy, the active one included.
        source: Number of the one that gives up its copy.
        target: The tags of the one that takes it.
    """
    after = [target if number == source else tags for number, tags in enumerate(holders)]
    return len(_pairs(after)) >= len(_pairs(holders))


@dataclass(frozen=True, slots=True)
class _Dimensions:
    """Tags that count: how many values each has, and who carries which."""

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
    """Place what can be placed without a tag that the task's copies have already."""
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
    """Place what is missing, whatever the tags."""
    while len(board.standbys[task]) < standbys:
        picked = board.least_loaded(client for client in range(len(board.clients)) if not board.holds(client, task))
        if picked is None:
            return
        board.give(picked, task)


def _evens(board: _StandbyState, source: int, target: int) -> bool:
    """Tell whether a copy that moves evens loads, and does not just turn them round."""
    skew = board.load(source) - board.load(target)
    capacity: Callable[[int], int] = board.clients.capacity.__getitem__
    after = (board.count[source] - 1) / capacity(source) - (board.count[target] + 1) / capacity(target)
    return 0 <= after < skew


def _pairs(holders: Iterable[Mapping[str, str]]) -> set[tuple[str, str]]:
    return {pair for tags in holders for pair in tags.items()}
