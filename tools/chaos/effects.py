"""What each event may bring about, and the generations and losses that nothing explains.

An event explains so many rebalances within a time, and whom it puts out of the group. A generation needs a cause of its
own: an event in whose window it falls and which has not brought about its number of generations already. One that
changes nothing needs one that allows for that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rackassign.model import TopicPartition
from tests.helpers.kafka.consumers import EXPIRING
from tests.helpers.machine_speed import scaled_s

from .history import LOST, Dropped, Given, History, Moved, Played
from .schedule import Kind

SESSION_S: float = EXPIRING["session_timeout_ms"] / 1000
"""A member that says nothing is put out after so long."""

METADATA_S: float = EXPIRING["metadata_max_age_ms"] / 1000
"""So old a leader's view of topics may be."""

FENCED_S = scaled_s(6.0)
"""`broker.session.timeout.ms`: so long a broker that is gone is still believed to be there, as coordinator too."""

ROUND_S = scaled_s(3.0)
"""One rebalance among members that are all well: they hear of it with a heartbeat (0.3 s) and join with their next poll
(0.5 s); the rest is for a busy machine. With one that is not well it lasts longer, and that one's event explains it."""

ROUNDS = 2
"""One that changes anything takes two, never more: in the second what moves is handed over. That is what the README
promises. A round that another event interrupts is made anew together with that one's own, so it costs none more."""

_ROUNDS_S = ROUNDS * ROUND_S

STARTED_S = scaled_s(6.0)
"""A process is started after so long. A member that takes longer explains rebalances until it is in the group."""

WATCH_S = scaled_s(10.0)
"""A leader that watches the racks of replicas waits for them to rest, and asks for no more than one rebalance in so
many seconds."""

RELOADED_S = FENCED_S + SESSION_S
"""After a broker has gone another one takes its groups over once it is fenced, and puts members out that have not
found it after a session."""

LOOK_S = scaled_s(1.0)
"""What is noted by looking may have happened so much earlier."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What may bring about rebalances."""

    begin: float
    end: float
    most: int
    # How many of them may change nothing.
    idle: int = 0
    # Who may be put out of the group for it, or `EVERYBODY`.
    silences: str = ""

    def puts_out(self, process: str, at: float) -> bool:
        return self.begin <= at <= self.end and self.silences in {EVERYBODY, process.partition(".")[0]}


EVERYBODY = "*"

_EFFECT_S = {
    Kind.MEMBER_START: STARTED_S,
    Kind.MEMBER_JOIN: STARTED_S,
    Kind.MEMBER_BACK: STARTED_S,
    Kind.MEMBER_LEAVE: 0.0,
    Kind.MEMBER_KILL: SESSION_S,
    Kind.MEMBER_STOP: SESSION_S,
    Kind.MEMBER_WAKE: 0.0,
    # The leader sees the change with its next look at the metadata.
    Kind.PARTITION_ADD: METADATA_S,
    Kind.REPLICA_MOVE: METADATA_S + WATCH_S,
    # A rebalance that is under way fails with its coordinator and is made anew, though some may have had all of it:
    # to them the new one changes nothing. Members that are put out since their
    # coordinator hangs or moves are causes of their own.
    Kind.BROKER_KILL: RELOADED_S,
    Kind.BROKER_PAUSE: RELOADED_S,
    Kind.BROKER_CUT: RELOADED_S,
    Kind.RACK_DOWN: RELOADED_S,
    # It starts for some seconds before it can take anything back; its rack may be news to a leader that is new.
    Kind.BROKER_START: STARTED_S + RELOADED_S,
    Kind.BROKER_MEND: RELOADED_S,
    Kind.BROKER_RESUME: RELOADED_S,
    Kind.RACK_UP: STARTED_S + RELOADED_S,
}
"""How long after an event the last of its rebalances begins."""

_STARTS = frozenset({Kind.MEMBER_START, Kind.MEMBER_JOIN, Kind.MEMBER_BACK})


def causes(history: History) -> Iterator[Cause]:
    """Return what may have brought about rebalances."""
    events = list(event_causes(history))
    yield from events
    for name, at in put_out(history):
        # It hears of it when it reaches the coordinator again, some time after the rebalance without it.
        if not any(each.puts_out(name, at) for each in events if each.silences != EVERYBODY):
            yield Cause(at - RELOADED_S, at + _ROUNDS_S, ROUNDS)
    for moved in history.of(Moved):
        # Until then a leader sees old and new replicas together, which may be worth a rebalance of its own.
        yield Cause(moved.at - LOOK_S, moved.at + METADATA_S + WATCH_S + _ROUNDS_S, ROUNDS)


def event_causes(history: History) -> Iterator[Cause]:
    """Return what of the schedule may have brought about rebalances, and silenced members."""
    played = history.of(Played)
    for each in played:
        event = each.event
        if event.kind is Kind.MEMBER_BLINK or (event.kind is Kind.MEMBER_WAKE and not _overslept(each, played)):
            # Nobody needs to have noticed.
            continue
        last = max(each.done + _EFFECT_S[event.kind], _joined(history, each)) + _ROUNDS_S
        rounds = ROUNDS * (1 + len(event.members))
        if event.kind.value.startswith(("broker", "rack")):
            yield Cause(each.began, last, rounds, idle=1, silences=EVERYBODY)
        else:
            # One that was stopped finds out when it goes on.
            yield Cause(each.began, last, rounds, silences=event.target if event.kind is Kind.MEMBER_WAKE else "")


def _joined(history: History, start: Played) -> float:
    """Return when a member that was started was first in the group; the time of its start if it never was.

    It is measured because a start takes as long as the machine is busy: 13 s beside eight busy processes on two cores.
    """
    event = start.event
    given = [
        each.at
        for name, each in history.of_members(Given)
        if event.kind in _STARTS and name.partition(".")[0] == event.target and each.at >= start.began
    ]
    return min(given, default=start.done)


def _overslept(wake: Played, played: list[Played]) -> bool:
    """Return whether a member was stopped for so long that it may have been put out."""
    stopped = [
        each
        for each in played
        if each.event.kind in {Kind.MEMBER_BLINK, Kind.MEMBER_STOP}
        and each.event.target == wake.event.target
        and each.began <= wake.began
    ]
    # Its last heartbeat was up to an interval before.
    interval = EXPIRING["heartbeat_interval_ms"] / 1000
    return not stopped or wake.done - stopped[-1].began > SESSION_S - 2 * interval


def put_out(history: History) -> Iterator[tuple[str, float]]:
    """Return which members were put out of the group, and when they knew."""
    for name, notes in history.members.items():
        member_id = ""
        for entry in notes:
            if isinstance(entry, Dropped) and entry.why == LOST:
                yield name, entry.at
                member_id = ""
            elif isinstance(entry, Given):
                # One that had nothing is told of no loss, and comes back under another id.
                if member_id not in {"", entry.member_id}:
                    yield name, entry.at
                member_id = entry.member_id


def unexplained_losses(history: History) -> list[tuple[str, float]]:
    """Return the members that were put out for no reason: neither their own silence nor that of a broker."""
    events = list(event_causes(history))
    return [(name, at) for name, at in put_out(history) if not any(each.puts_out(name, at) for each in events)]


Assignments = dict[str, frozenset[TopicPartition]]
"""What was given to each member id, as far as they lived to say so."""


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A generation of the group."""

    generation: int
    at: float
    idle: bool = False


def rebalances(history: History) -> list[Rebalance]:
    """Return all generations of the group, by number."""
    first: dict[int, float] = {}
    handed: dict[int, Assignments] = defaultdict(dict)
    for _, given in history.of_members(Given):
        first[given.generation] = min(given.at, first.get(given.generation, given.at))
        handed[given.generation][given.member_id] = frozenset(given.owned)
    found: list[Rebalance] = []
    before: Assignments = {}
    revoked = False
    for generation in sorted(first):
        begin = found[-1].generation + 1 if found else 1
        found += [Rebalance(number, first[generation]) for number in range(begin, generation)]
        now = handed[generation]
        found.append(Rebalance(generation, first[generation], begin == generation and now == before and not revoked))
        revoked = any(before.get(member, frozenset()) - owned for member, owned in now.items())
        before = now
    return found


def unexplained(history: History) -> list[Rebalance]:
    """Return the generations for which there is no cause left."""
    open_causes = list(causes(history))
    all_of_them = rebalances(history)
    without = _without(all_of_them, [(cause, cause.most) for cause in open_causes])
    idle = [rebalance for rebalance in all_of_them if rebalance.idle and rebalance not in without]
    return without + _without(idle, [(cause, cause.idle) for cause in open_causes])


def _without(those: Sequence[Rebalance], limits: Sequence[tuple[Cause, int]]) -> list[Rebalance]:
    """Give each the cause that ends first: if there is any way to explain all, that is one."""
    ordered = sorted(limits, key=lambda limit: limit[0].end)
    left = [most for _, most in ordered]
    without: list[Rebalance] = []
    for rebalance in sorted(those, key=lambda each: each.at):
        for number, (cause, _) in enumerate(ordered):
            if left[number] and cause.begin <= rebalance.at <= cause.end:
                left[number] -= 1
                break
        else:
            without.append(rebalance)
    return without
