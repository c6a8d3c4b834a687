"""What was recorded of a run, as it is written and as it is read again: lines of JSON, one for each note.

Each member has a file of its own, and those who run it have one. All times are of the machine's monotonic clock, which
its processes share.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from rackassign.model import TopicPartition
from rackassign.testing.harness import Traffic

from .schedule import Event, Kind

REVOKED, LOST = "revoked", "lost"


@dataclass(frozen=True, slots=True)
class Note:
    """A line of a file."""


@dataclass(frozen=True, slots=True)
class Given(Note):
    """A member was given this, in this generation."""

    at: float
    generation: int
    member_id: str
    owned: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Dropped(Note):
    """Partitions were taken from a member, in good order (`revoked`) or since it had been put out (`lost`)."""

    at: float
    why: str
    places: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Batch(Note):
    """A member has processed records of a partition, from one offset to another, with these numbers in them."""

    at: float
    place: TopicPartition
    first: int
    last: int
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Failed(Note):
    """Something was raised that no user of a consumer should see."""

    at: float
    error: str


@dataclass(frozen=True, slots=True)
class Held(Note):
    """What a process holds: memory in MB, threads, open files."""

    at: float
    memory: float
    threads: int
    files: int


@dataclass(frozen=True, slots=True)
class Acked(Note):
    """The brokers acknowledged a record."""

    at: float
    place: TopicPartition
    offset: int
    number: int


@dataclass(frozen=True, slots=True)
class Played(Note):
    """An event of the schedule, with the time it really took place."""

    event: Event
    began: float
    done: float


@dataclass(frozen=True, slots=True)
class Moved(Note):
    """A move of replicas was seen to be complete."""

    at: float


@dataclass(frozen=True, slots=True)
class Calm(Note):
    """All faults are undone: brokers ready, no replica on the move, members told to start started."""

    at: float
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seen(Note):
    """What the coordinator said of the group: who was given what by the leader; None while it is not stable."""

    at: float
    given: dict[str, tuple[TopicPartition, ...]] | None


@dataclass(frozen=True, slots=True)
class Died(Note):
    """A member's process ended otherwise than it was told to; None if it did not end when it was."""

    at: float
    name: str
    code: int | None


@dataclass(frozen=True, slots=True)
class Struck(Note):
    """A fault that was drawn, or what shows that one has struck, and how often; empty if it is about all members."""

    at: float
    what: str
    target: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Result(Note):
    """A result that a transactional example has written."""

    value: str
    # That its state gave the record; None without state.
    number: int | None
    committed: bool


NoteT = TypeVar("NoteT", bound=Note)


@dataclass(frozen=True, slots=True)
class History:
    """All of a run, in the order of time."""

    members: Mapping[str, tuple[Note, ...]]
    notes: tuple[Note, ...]

    def of(self, kind: type[NoteT]) -> list[NoteT]:
        """Return the notes of a kind of those who ran it."""
        return [note for note in self.notes if isinstance(note, kind)]

    def of_members(self, kind: type[NoteT]) -> Iterator[tuple[str, NoteT]]:
        """Yield the notes of a kind of all processes, with the names of these."""
        for name, notes in self.members.items():
            yield from ((name, note) for note in notes if isinstance(note, kind))


class Journal:
    """A file that things are noted in by whatever thread; what is noted is out of the process at once."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._file: IO[str] = path.open("a", encoding="utf-8", buffering=1)

    def note(self, thing: Note) -> None:
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
    members = {
        path.name.removeprefix(before).removesuffix(after): tuple(read(path))
        for path in sorted(directory.glob(MEMBER_FILE.format("*")))
    }
    return History(members, tuple(read(directory / NOTES_FILE)))


def now() -> float:
    return round(time.monotonic(), 4)


def read(path: Path) -> list[Note]:
    """Return what is noted in a journal; a last line cut short by the end of its writer is left out."""
    return [_note(json.loads(line)) for line in path.read_text("utf-8").splitlines(keepends=True) if line[-1] == "\n"]


_KINDS: Mapping[str, type[Note]] = {
    kind.__name__: kind
    for kind in (Given, Dropped, Batch, Failed, Held, Acked, Played, Moved, Calm, Seen, Died, Struck, Result)
}


def _note(said: dict[str, Any]) -> Note:
    kind = _KINDS[said.pop("is")]
    return kind(**{name: _SHAPES[name](value) if name in _SHAPES else value for name, value in said.items()})


def _tps(said: Iterable[Any]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(*place) for place in said)


def _event(said: dict[str, Any]) -> Event:
    lists = {name: tuple(said[name]) for name in ("members", "replicas")}
    return Event(**{**said, **lists, "kind": Kind(said["kind"])})


_SHAPES: Mapping[str, Callable[[Any], Any]] = {
    "place": lambda said: TopicPartition(*said),
    "places": _tps,
    "owned": _tps,
    "numbers": tuple,
    "names": tuple,
    "given": lambda said: None if said is None else {member: _tps(places) for member, places in said.items()},
    "event": _event,
}


def journaled_traffic(bootstrap: str, topics: Sequence[str], journal: Journal) -> Traffic:
    """Return traffic that goes on when a producer fails: a record that is not acknowledged may be there or not."""

    def note(tp: TopicPartition, number: int, offset: int) -> None:
        journal.note(Acked(now(), tp, offset, number))

    return Traffic({"bootstrap_servers": bootstrap}, topics, rate=150.0, tolerant=True, on_acknowledged=note)
