"""Carrying a repair out, or back, wave by wave.

What holds at every moment, whatever fails: the journal knows the lists as they were and what was throttled before, so
whoever runs it again goes on from what the cluster tells. What is done twice is done once. A wave that cannot go on
(a broker died that was to get a copy) is taken back, partition by partition, to the list it began with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, Protocol

from kafka.errors import KafkaError

from rackassign.clients.kafka_python.permissions import NotAllowedError
from rackassign.errors import NoAnswerError, RackassignError
from rackassign.model import TopicPartition
from rackassign.placement.repair.journal import Journal, Phase
from rackassign.placement.repair.steps import Move, Replicas, Seen, Step, next_step
from rackassign.placement.repair.throttle import Earlier, Settings, earlier, lift, throttle

Direction = Literal["apply", "rollback"]

_LOOK_EVERY_S = 0.25
_COUNTED_EVERY_S = 1.0
_ELECTED_S = 5.0


class Copied(NamedTuple):
    """How much of what is copied has arrived, in bytes."""

    done: int
    total: int


class Hands(Settings, Protocol):
    """What a repair does to a cluster, and sees of it."""

    def look(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, Seen]:
        """Return partitions as they are; those that the cluster does not know are left out."""

    def down(self) -> frozenset[int]:
        """Return the brokers that are known and do not serve."""

    def reassign(self, lists: Mapping[TopicPartition, Sequence[int] | None]) -> Mapping[TopicPartition, str]:
        """Begin reassignments, or cancel them (None); return what is refused."""

    def elect(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, str]:
        """Have preferred replicas lead; return what is refused."""

    def copied(self, adding: Mapping[TopicPartition, Iterable[int]]) -> Copied:
        """Return how far the copies on these brokers are, as far as brokers tell."""

    def now(self) -> float:
        """Return the seconds of a clock that is never set."""

    def rest(self, seconds: float) -> None:
        """Let so much time pass."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How much at a time, and how long to wait.

    Args:
        wave: Partitions that are reassigned at the same time, 1 or more.
        rate: Bytes a second that each broker sends, and receives, for it; None for no limit.
        patience_s: Seconds after which a partition that is stuck is given up.
        timeout_s: Seconds after which everything that is not done is; None for no end.
    """

    wave: int = 50
    rate: int | None = None
    patience_s: float = 30.0
    timeout_s: float | None = None


class Progress(NamedTuple):
    """How far a repair is.

    Args:
        settled: Partitions that are done or given up.
        partitions: How many there are.
        copied: Of the wave that is on its way.
    """

    settled: int
    partitions: int
    copied: Copied


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a repair.

    Args:
        done: Partitions that have their list.
        failed: Why the others do not; they have the list they had when this run began, unless it says otherwise.
        sent: Partitions whose replicas this run has changed.
        not_led: Partitions whose preferred replica does not lead, with the reason.
    """

    done: tuple[TopicPartition, ...]
    failed: Mapping[TopicPartition, str]
    sent: int
    not_led: Mapping[TopicPartition, str] = field(default_factory=dict)


class ThrottleLeftError(NoAnswerError):
    """The throttle could not be taken away; the next run does it."""


Keep = Callable[[Journal], None]
Told = Callable[[Progress], None]


def carry_out(
    hands: Hands,
    journal: Journal,
    direction: Direction,
    *,
    keep: Keep,
    pace: Pace,
    told: Told = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[Journal, Outcome]:
    """Bring all partitions of a journal to where it says, or back.

    Args:
        hands: Change the cluster.
        journal: What is to be done; may have been begun before, or be done already.
        direction: Which of the lists of each move is wanted.
        keep: Writes the journal down; raises if it cannot.
        pace: How much at a time.
        told: Told how far it is, many times.
        stop: Asked many times whether to end: what is on its way is taken back then.

    Returns:
        The journal as it was written last, and what became of it.

    Raises:
        ThrottleLeftError: The cluster is gone at the end.
        KafkaError: As the client does; the journal can be carried out again.
    """
    goals = {
        place: move.after if direction == "apply" else move.before for place, move in sorted(journal.moves.items())
    }
    begun = replace(journal, phase="begun")
    keep(begun)
    run = _Run(hands, journal.moves, goals, pace, told, stop)
    try:
        with _throttled(hands, begun, keep, pace.rate):
            outcome = run.all()
    except NotAllowedError:
        if not run.sent:
            keep(replace(journal, throttled=None))
        raise
    over: Phase = "applied" if direction == "apply" else "rolled-back"
    ended = replace(begun, phase="begun" if outcome.failed else over, throttled=None)
    keep(ended)
    return ended, outcome


@contextmanager
def _throttled(hands: Hands, journal: Journal, keep: Keep, rate: int | None) -> Iterator[None]:
    """Limit what is copied in the block; a throttle that an earlier run has left is taken away in any case."""
    copying = {
        place: move for place, move in journal.moves.items() if len({frozenset(row) for row in move.known()}) > 1
    }
    before = journal.throttled
    if before is None and rate is not None and copying:
        before = earlier(hands, copying)
        keep(replace(journal, throttled=before))
    if before is None:
        yield
        return
    if rate is None:
        lift(hands, before)
    else:
        _slow(hands, {p: move for p, move in copying.items() if p.topic in before.topics}, before, rate)
    try:
        yield
    finally:
        _lift(hands, before)


def _slow(hands: Hands, copying: Mapping[TopicPartition, Move], before: Earlier, rate: int) -> None:
    try:
        throttle(hands, copying, before, rate)
    except (KafkaError, RackassignError):
        # What may not be set was not set; what was is taken back, now or by the next run.
        with suppress(KafkaError, RackassignError):
            lift(hands, before)
        raise


def _lift(hands: Hands, before: Earlier) -> None:
    try:
        lift(hands, before)
    except (KafkaError, RackassignError) as error:
        raise ThrottleLeftError(
            f"the throttle is left: run `repair apply` or `repair rollback` again ({type(error).__name__}: {error})"
        ) from error


class _Run:
    """One run over all partitions.

    Args:
        hands: Change the cluster.
        moves: All lists that are known.
        goals: The list each partition is to have.
        pace: How much at a time.
        told: Told how far it is.
        stop: Tells whether to end.

    Attributes:
        sent: Partitions whose replicas have been changed.
    """

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        hands: Hands,
        moves: Mapping[TopicPartition, Move],
        goals: Mapping[TopicPartition, Replicas],
        pace: Pace,
        told: Told,
        stop: Callable[[], bool],
    ) -> None:
        self._hands, self._moves, self._pace, self._told, self._stop = hands, moves, pace, told, stop
        self._wanted = goals
        self._goals = dict(goals)
        self._until = None if pace.timeout_s is None else self._hands.now() + pace.timeout_s
        self._start: dict[TopicPartition, Seen] = {}
        self._stuck_since: dict[TopicPartition, float] = {}
        self._done: dict[TopicPartition, None] = {}
        self._failed: dict[TopicPartition, str] = {}
        self._lost: set[TopicPartition] = set()
        self._taken: dict[TopicPartition, Replicas] = {}
        self.sent: set[TopicPartition] = set()
        self._not_led: dict[TopicPartition, str] = {}
        self._copied, self._counted_at = Copied(0, 0), 0.0

    def all(self) -> Outcome:
        """Do all of it, wave by wave."""
        places = list(self._goals)
        # Who may not see all of it does none of it.
        self._hands.look(places)
        for begin in range(0, len(places), self._pace.wave):
            wave = places[begin : begin + self._pace.wave]
            self._settle(wave)
            self._lead(wave)
        failed = {place: self._failed[place] for place in sorted(self._failed)}
        done = self._done.keys() - failed
        return Outcome(tuple(sorted(done)), failed, len(self.sent & done), self._not_led)

    def _settle(self, wave: Sequence[TopicPartition]) -> None:
        """Look and act until each partition has its list, or has been given up and is where it was."""
        left = [place for place in wave if place not in self._done]
        while left:
            seen, down = self._hands.look(left), self._hands.down()
            for place in left:
                if place in seen:
                    self._start.setdefault(place, self._at_rest(place, seen[place]))
            steps = {place: self._step(place, seen.get(place), down) for place in left}
            if self._ending():
                self._give_up((place for place, step in steps.items() if step.do != "done"), self._ending())
                steps = {place: self._step(place, seen.get(place), down) for place in left}
            self._act(steps, seen)
            self._done |= dict.fromkeys(place for place, step in steps.items() if step.do == "done")
            left = [place for place, step in steps.items() if not self._over(place, step)]
            self._tell(wave)
            if left:
                self._hands.rest(_LOOK_EVERY_S)

    def _ending(self) -> str:
        """Return why nothing more is to be begun."""
        if self._stop():
            return "stopped"
        return "time is up" if self._until is not None and self._hands.now() > self._until else ""

    def _at_rest(self, place: TopicPartition, seen: Seen) -> Seen:
        """Return a partition as it was before what runs, if an earlier run has begun that."""
        move = self._moves[place]
        if seen.target is None or seen.target not in move.known():
            return seen
        return replace(seen, replicas=move.after if seen.target == move.before else move.before, target=None)

    def _step(self, place: TopicPartition, seen: Seen | None, down: frozenset[int]) -> Step:
        goal, start = self._goals[place], self._start.get(place)
        known = self._moves[place].known() | ({start.replicas} if start else set())
        step = next_step(goal, known, seen, start or Seen(goal, frozenset(), None), down)
        # A broker that is behind may show a list that the partition has no more. Sending one that it has does nothing.
        return Step("send") if step.do == "done" and self._taken.get(place) != goal else step

    def _act(self, steps: Mapping[TopicPartition, Step], seen: Mapping[TopicPartition, Seen]) -> None:
        lists = {
            place: self._goals[place] if step.do == "send" else None
            for place, step in steps.items()
            if step.do in {"send", "cancel"}
        }
        refused = self._hands.reassign(lists) if lists else {}
        for place, row in lists.items():
            if row is None:
                # What is to be cancelled may have come to its end in that moment.
                continue
            there = seen[place].replicas == row
            if place not in refused or there:
                self._taken[place] = row
                self.sent |= set() if there else {place}
                continue
            if place in self._failed:
                self._lost.add(place)
            self._give_up([place], refused[place])

    def _over(self, place: TopicPartition, step: Step) -> bool:
        """Tell whether nothing more can be done for a partition, and give one up that has been stuck too long."""
        if step.do == "foreign":
            self._failed.setdefault(place, step.why)
        if step.do in {"foreign", "done"} or place in self._lost:
            return True
        if step.do != "stuck":
            self._stuck_since.pop(place, None)
            return False
        since = self._stuck_since.setdefault(place, self._hands.now())
        if self._hands.now() - since < self._pace.patience_s:
            return False
        if place in self._failed or place not in self._start:
            self._failed.setdefault(place, step.why)
            return True
        self._give_up([place], step.why)
        del self._stuck_since[place]
        return False

    def _give_up(self, places: Iterable[TopicPartition], why: str) -> None:
        """Have partitions go back to the list they had when this run began."""
        for place in places:
            if place not in self._done and place not in self._failed:
                self._failed[place] = why
                if place in self._start:
                    self._goals[place] = self._start[place].replicas

    def _lead(self, wave: Sequence[TopicPartition]) -> None:
        """Have the first of each list lead, and wait until it does."""
        first = {place: self._goals[place][0] for place in wave if place in self._done}
        until, asked = self._hands.now() + _ELECTED_S, False
        while first:
            seen, down = self._hands.look(first), self._hands.down()
            first = {p: broker for p, broker in first.items() if p in seen and seen[p].leader != broker}
            able = {p for p, broker in first.items() if broker in seen[p].in_sync and broker not in down}
            self._not_led |= {p: f"broker {first[p]} is down or not in sync" for p in first if p not in able}
            first = {place: broker for place, broker in first.items() if place in able}
            if first and not asked:
                refused = self._hands.elect(first)
                self._not_led |= refused
                first = {place: broker for place, broker in first.items() if place not in refused}
                asked = True
            elif self._hands.now() > until:
                self._not_led |= dict.fromkeys(first, "the election takes long")
                return
            if first:
                self._hands.rest(_LOOK_EVERY_S)

    def _tell(self, wave: Sequence[TopicPartition]) -> None:
        if self._hands.now() - self._counted_at > _COUNTED_EVERY_S:
            adding = {
                place: set(self._wanted[place]) - set(self._start[place].replicas)
                for place in wave
                if place in self._start and place not in self._failed
            }
            self._copied = self._hands.copied({place: new for place, new in adding.items() if new})
            self._counted_at = self._hands.now()
        settled = len(self._done.keys() | self._failed.keys())
        self._told(Progress(settled, len(self._wanted), self._copied))
