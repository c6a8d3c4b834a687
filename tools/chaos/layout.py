"""The group under chaos, and what a schedule may do to it."""

from __future__ import annotations

from dataclasses import dataclass
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
    """Return the kinds that every schedule has at least once.

    Args:
        cuts: Whether brokers can be taken off the network.
    """
    return frozenset((*MEMBER_KINDS, *BROKER_KINDS, *ADMIN_KINDS, *([Kind.BROKER_CUT] if cuts else [])))


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that is done.

    Args:
        at: Seconds after the start of the schedule.
        kind: What.
        target: A member's name, a broker's id, a rack or a topic.
        members: Those that a rack takes with it, or brings back.
        partition: Of the topic; one that is added has the next number.
        replicas: Where it is to have them, the leader first.
    """

    at: float
    kind: Kind
    target: str
    members: tuple[str, ...] = ()
    partition: int = -1
    replicas: tuple[int, ...] = ()
