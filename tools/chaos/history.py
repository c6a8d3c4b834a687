"""What was recorded of a run, as it is written and as it is read again: lines of JSON, one for each thing.

All times are of the machine's monotonic clock, which its processes share.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import IO, Any, TypeVar

from rackassign.model import TopicPartition
from rackassign.testing.harness import Traffic

from .schedule import Event, Kind

REVOKED, LOST = "revoked", "lost"


@dataclass(frozen=True, slots=True)
class Given:
    """A member was given this, in this generation."""

    at: float
    generation: int
    member_id: str
    owned: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Dropped:
    """Partitions were taken from a member, in good order (`revoked`) or since it had been put out (`lost`)."""

    at: float
    why: str
    places: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """A member has processed records of a partition, from one offset to another, with these numbers in them."""

    at: float
    place: TopicPartition
    first: int
    last: int
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NotCommitted:
    """A commit failed as one may: somebody will process these records again."""

    at: float
    why: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Something was raised that no user of a consumer should see."""

    at: float
    error: str


@dataclass(frozen=True, slots=True)
class Closed:
    """The consumer was closed in good order."""

    at: float


Entry = Given | Dropped | Batch | NotCommitted | Failed | Closed


@dataclass(frozen=True, slots=True)
class Acked:
    """The brokers acknowledged a record."""

    at: float
    place: TopicPartition
    offset: int
    number: int


@dataclass(frozen=True, slots=True)
class Played:
    """An event of the schedule, with the time it really took place."""

    event: Event
    began: float
    done: float


@dataclass(frozen=True, slots=True)
class Moved:
    """A move of replicas was seen to be complete."""

    at: float


@dataclass(frozen=True, slots=True)
class Calm:
    """All faults are undone: brokers ready, no replica on the move, members told to start started."""

    at: float


@dataclass(frozen=True, slots=True)
class Seen:
    """What the coordinator said of the group: who was given what by the leader; None while it is not stable."""

    at: float
    given: dict[str, tuple[TopicPartition, ...]] | None


@dataclass(frozen=True, slots=True)
class Stays:
    """These processes are the group at the end."""

    at: float
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Died:
    """A member's process ended otherwise than it was told to; None if it did not end when it was."""

    at: float
    name: str
    code: int | None


@dataclass(frozen=True, slots=True)
class MemberLog:
    """What one process wrote.

    Args:
        name: The member's name and which of its processes this is.
        entries: In the order of time.
    """

    name: str
    entries: tuple[Entry, ...]


Note = Acked | Played | Moved | Calm | Seen | Stays | Died
NoteT = TypeVar("NoteT", Acked, Played, Moved, Calm, Seen, Stays, Died)


@dataclass(frozen=True, slots=True)
class History:
    """All of a run.

    Args:
        members: One log for each process.
        notes: What those who ran it noted, in the order of time.
    """

    members: tuple[MemberLog, ...]
    notes: tuple[Note, ...]

    def of(self, kind: type[NoteT]) -> list[NoteT]:
        """Return the notes of a kind."""
        return [note for note in self.notes if isinstance(note, kind)]


class Journal:
    """A file that things are noted in by whatever thread; what is noted is out of the process at once."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._file: IO[str] = path.open("a", encoding="utf-8", buffering=1)

    def note(self, thing: Entry | Note) -> None:
        line = json.dumps({"is": type(thing).__name__, **asdict(thing)}, default=str) + "\n"
        with self._lock:
            if not self._file.closed:
                self._file.write(line)

    def close(self) -> None:
        with self._lock:
            self._file.close()


MEMBER_FILE = "member-{}.jsonl"
NOTES_FILE = "notes.jsonl"


def read_history(directory: Path) -> History:
    """Return all that was written in a directory."""
    before, _, after = MEMBER_FILE.partition("{}")
    logs = [
        MemberLog(path.name.removeprefix(before).removesuffix(after), tuple(read(path)))
        for path in sorted(directory.glob(MEMBER_FILE.format("*")))
    ]
    return History(tuple(logs), tuple(read(directory / NOTES_FILE)))


def now() -> float:
    return round(time.monotonic(), 4)


_KINDS: dict[str, Callable[..., Any]] = {
    kind.__name__: kind
    for kind in (Given, Dropped, Batch, NotCommitted, Failed, Closed, Acked, Played, Moved, Calm, Seen, Stays, Died)
}


def read(path: Path) -> list[Any]:
    """Return what is noted in a journal; a last line cut short by the end of its writer is left out."""
    return [_thing(json.loads(line)) for line in path.read_text("utf-8").splitlines(keepends=True) if line[-1] == "\n"]


def _thing(said: dict[str, Any]) -> Any:
    kind = _KINDS[said.pop("is")]
    return kind(**{name: _SHAPES[name](value) if name in _SHAPES else value for name, value in said.items()})


def _tp(said: Iterable[Any]) -> TopicPartition:
    return TopicPartition(*said)


def _tps(said: Iterable[Any]) -> tuple[TopicPartition, ...]:
    return tuple(map(_tp, said))


def _given(said: dict[str, Any] | None) -> dict[str, tuple[TopicPartition, ...]] | None:
    return None if said is None else {member: _tps(places) for member, places in said.items()}


def event_of(said: dict[str, Any]) -> Event:
    """Return an event from what `asdict` made of it."""
    assert set(said) == {field.name for field in fields(Event)}
    lists = {name: tuple(said[name]) for name in ("members", "replicas")}
    return Event(**{**said, **lists, "kind": Kind(said["kind"])})


_SHAPES: dict[str, Callable[[Any], Any]] = {
    "place": _tp,
    "places": _tps,
    "owned": _tps,
    "numbers": tuple,
    "names": tuple,
    "given": _given,
    "event": event_of,
}


_RATE = 150.0


def journaled_traffic(bootstrap: str, topics: Sequence[str], journal: Journal) -> Traffic:
    """Return traffic that goes on when a producer fails: a record that is not acknowledged may be there or not."""

    def note(tp: TopicPartition, number: int, offset: int) -> None:
        journal.note(Acked(now(), tp, offset, number))

    return Traffic({"bootstrap_servers": bootstrap}, topics, rate=_RATE, tolerant=True, on_acknowledged=note)
