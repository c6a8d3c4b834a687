"""The group under chaos, and what happens to it and when: a pure function of a seed, with each fault undone.

Three lanes run beside each other: faults of brokers, one at a time, so that a majority of the controllers is always
up; faults of members, as many at once as leave two of them; and changes of topics.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum

RACKS = ("a", "b", "c")
"""One broker in each; all three are controllers too, so that two of them are a majority."""

BROKERS = {1: "a", 2: "b", 3: "c"}

MEMBERS = ("a1", "b1", "c1", "a2", "b2", "c2")
"""A member's name begins with its rack."""

TOPICS: dict[str, tuple[tuple[int, ...], ...]] = {
    # Two replicas in three racks: what is near whom matters, and changes when a replica moves.
    "two": ((1, 2), (2, 3), (3, 1), (1, 2), (2, 3), (3, 1)),
    "three": ((1, 2, 3), (2, 3, 1), (3, 1, 2)),
}
"""The replicas of each partition at the start."""

FEWEST_MEMBERS = 2

WORK_S = {"a": 0.4, "b": 0.2, "c": 0.0}
"""How long the members of a rack work between two polls: some are always polling, some are met between two polls by
most of what happens."""


class Kind(str, Enum):
    """What can happen."""

    MEMBER_START = "member-start"
    """At the beginning; never part of a schedule."""
    MEMBER_JOIN = "member-join"
    MEMBER_LEAVE = "member-leave"
    MEMBER_KILL = "member-kill"
    MEMBER_BACK = "member-back"
    """A new process in the place of one that was killed."""
    MEMBER_BLINK = "member-blink"
    """Stopped, for less than its session."""
    MEMBER_STOP = "member-stop"
    """Stopped, for longer than its session."""
    MEMBER_WAKE = "member-wake"
    BROKER_KILL = "broker-kill"
    BROKER_START = "broker-start"
    BROKER_PAUSE = "broker-pause"
    BROKER_RESUME = "broker-resume"
    BROKER_CUT = "broker-cut"
    """Off the network, with all its connections."""
    BROKER_MEND = "broker-mend"
    RACK_DOWN = "rack-down"
    """Its brokers and its members are killed together."""
    RACK_UP = "rack-up"
    REPLICA_MOVE = "replica-move"
    PARTITION_ADD = "partition-add"


UNDONE_BY = {
    Kind.MEMBER_KILL: Kind.MEMBER_BACK,
    Kind.MEMBER_BLINK: Kind.MEMBER_WAKE,
    Kind.MEMBER_STOP: Kind.MEMBER_WAKE,
    Kind.BROKER_KILL: Kind.BROKER_START,
    Kind.BROKER_PAUSE: Kind.BROKER_RESUME,
    Kind.BROKER_CUT: Kind.BROKER_MEND,
    Kind.RACK_DOWN: Kind.RACK_UP,
}

MEMBER_KINDS = (Kind.MEMBER_KILL, Kind.MEMBER_STOP, Kind.MEMBER_BLINK, Kind.MEMBER_JOIN, Kind.MEMBER_LEAVE)
BROKER_KINDS = (Kind.BROKER_KILL, Kind.BROKER_PAUSE, Kind.RACK_DOWN)
ADMIN_KINDS = (Kind.REPLICA_MOVE, Kind.PARTITION_ADD)


def promised(*, cuts: bool) -> frozenset[Kind]:
    """Return the kinds that every schedule has at least once."""
    return frozenset((*MEMBER_KINDS, *BROKER_KINDS, *ADMIN_KINDS, *([Kind.BROKER_CUT] if cuts else [])))


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that is done."""

    # Seconds after the start of the schedule.
    at: float
    kind: Kind
    target: str
    members: tuple[str, ...] = ()
    partition: int = -1
    replicas: tuple[int, ...] = ()


_BROKER_SLOT_S = 15.0
_MEMBER_SLOT_S = 5.0
_ADMIN_SLOT_S = 9.0

_SHORTEST_OUTAGE_S = 2.5
_LATE_BY_S = 1.0
RECOVERY_S = 6.0
"""A broker that is started again is in its place after some four seconds; the next one is spared so long."""

_AWAY_S = {
    # Sometimes back before the group has noticed, which takes it a session.
    Kind.MEMBER_KILL: (3.0, 9.0),
    Kind.MEMBER_STOP: (8.0, 10.0),
    Kind.MEMBER_BLINK: (1.0, 2.5),
}
_LONGEST_AWAY_S = 10.0
_DRAWS = 1000


def plan(seed: int, seconds: float, *, cuts: bool = False) -> tuple[Event, ...]:
    """Return a schedule in the order of time."""
    # `seconds`: how long it may last.
    chance = random.Random(seed)
    brokers = [*BROKER_KINDS, *([Kind.BROKER_CUT] if cuts else [])]
    events = _in_order([*_broker_faults(chance, seconds, brokers), *_topic_changes(chance, seconds)])
    span = seconds - _LONGEST_AWAY_S
    count = len(MEMBERS)
    for drawn, begin in _slots(chance, span, MEMBER_KINDS, _MEMBER_SLOT_S):
        # A long schedule must not wear the group down.
        kind = Kind.MEMBER_JOIN if drawn is Kind.MEMBER_LEAVE and count < len(MEMBERS) else drawn
        count += (kind is Kind.MEMBER_JOIN) - (kind is Kind.MEMBER_LEAVE)
        events = _with_member_fault(chance, kind, begin, span, events)
    return events


def _slots(chance: random.Random, seconds: float, kinds: Sequence[Kind], slot_s: float) -> Iterator[tuple[Kind, float]]:
    """Give each kind a slot, and what is left any kind; return them with the times their slots begin."""
    count = max(len(kinds), int(seconds // slot_s))
    chosen = [*kinds, *chance.choices(kinds, k=count - len(kinds))]
    chance.shuffle(chosen)
    for number, kind in enumerate(chosen):
        yield kind, seconds / count * number


def _broker_faults(chance: random.Random, seconds: float, kinds: Sequence[Kind]) -> Iterator[Event]:
    slot = seconds / max(len(kinds), int(seconds // _BROKER_SLOT_S))
    longest = slot - RECOVERY_S - _LATE_BY_S
    if longest < _SHORTEST_OUTAGE_S:
        raise ValueError(f"{seconds:g} s are too short for {len(kinds)} kinds of broker faults")
    for kind, slot_begin in _slots(chance, seconds, kinds, _BROKER_SLOT_S):
        begin = slot_begin + chance.uniform(0, _LATE_BY_S)
        end = begin + chance.uniform(_SHORTEST_OUTAGE_S, longest)
        target = chance.choice(RACKS) if kind is Kind.RACK_DOWN else str(chance.choice(list(BROKERS)))
        yield Event(round(begin, 2), kind, target)
        yield Event(round(end, 2), UNDONE_BY[kind], target)


def _topic_changes(chance: random.Random, seconds: float) -> Iterator[Event]:
    placed = {topic: list(replicas) for topic, replicas in TOPICS.items()}
    for kind, begin in _slots(chance, seconds, ADMIN_KINDS, _ADMIN_SLOT_S):
        at = round(begin + chance.uniform(0, _ADMIN_SLOT_S / 2), 2)
        if kind is Kind.PARTITION_ADD:
            topic = chance.choice(list(TOPICS))
            replicas = tuple(chance.sample(list(BROKERS), len(TOPICS[topic][0])))
            yield Event(at, kind, topic, partition=len(placed[topic]), replicas=replicas)
            placed[topic].append(replicas)
        else:
            partition = chance.randrange(len(placed["two"]))
            # With one broker in each rack, other brokers are other racks.
            moved = [pair for pair in ((1, 2), (2, 3), (3, 1)) if set(pair) != set(placed["two"][partition])]
            placed["two"][partition] = chance.choice(moved)
            yield Event(at, kind, "two", partition=partition, replicas=placed["two"][partition])


def _with_member_fault(
    chance: random.Random, kind: Kind, begin: float, span: float, others: Sequence[Event]
) -> tuple[Event, ...]:
    """Return events and a fault more, which begins in its slot if there is room for it, or else at another time."""
    joined = [event.target for event in others if event.kind is Kind.MEMBER_JOIN]
    names = [f"{rack}{3 + len(joined)}" for rack in RACKS] if kind is Kind.MEMBER_JOIN else [*MEMBERS, *joined]
    for draw in range(_DRAWS):
        name, latest = chance.choice(names), _MEMBER_SLOT_S / 2 + draw * span / _DRAWS
        at = round((begin + chance.uniform(0, latest)) % span, 2)
        fault = [Event(at, kind, name)]
        if kind in UNDONE_BY:
            fault.append(Event(round(at + chance.uniform(*_AWAY_S[kind]), 2), UNDONE_BY[kind], name))
        with suppress(_ImpossibleError):
            return _in_order([*others, *fault])
    raise ValueError(f"no room for {kind.value}")


class _ImpossibleError(Exception):
    """A schedule with something in it that cannot be done."""


def _in_order(events: Iterable[Event]) -> tuple[Event, ...]:
    """Return events in the order of time, each rack with the members it takes along."""
    alive, taken = set(MEMBERS), dict[str, tuple[str, ...]]()
    ordered: list[Event] = []
    for event in sorted(events, key=lambda event: event.at):
        names: tuple[str, ...] = ()
        if event.kind is Kind.RACK_DOWN:
            names = taken[event.target] = tuple(sorted(name for name in alive if name[0] == event.target))
            alive -= set(names)
        elif event.kind is Kind.RACK_UP:
            names = taken.pop(event.target)
            alive |= set(names)
        elif event.kind in {Kind.MEMBER_JOIN, Kind.MEMBER_BACK, Kind.MEMBER_WAKE}:
            alive.add(event.target)
        elif event.kind in MEMBER_KINDS:
            if event.target not in alive:
                raise _ImpossibleError
            alive.remove(event.target)
        if len(alive) < FEWEST_MEMBERS:
            raise _ImpossibleError
        ordered.append(replace(event, members=names))
    return tuple(ordered)
