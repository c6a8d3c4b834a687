"""What a repair writes down before it begins, so that whoever comes after it, even after a crash, can go on or back.

Where a partition stands is not written down: the cluster tells. What it cannot tell is: the lists as they were, and
what was throttled before.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal, get_args

from rackassign import scenario
from rackassign.errors import ConfigError, InputError, RackassignError
from rackassign.model import TOPIC_NAME, TopicPartition
from rackassign.placement import json_fields
from rackassign.placement.state_file import write_file
from rackassign.reassignment.partition_state import ReplicaMove, Replicas
from rackassign.reassignment.request import ReassignmentRequest
from rackassign.reassignment.throttle import SavedConfigs
from rackassign.util.text import short_repr

FORMAT = "rackassign-repair/1"

_LARGEST = 2**31 - 1

Phase = Literal["planned", "begun", "applied", "rolled-back", "abandoned"]
"""How far it is: `begun` until all that was planned is done, or undone as far as it can be, or it is abandoned."""

PHASES: tuple[Phase, ...] = get_args(Phase)


@dataclass(frozen=True, slots=True)
class Journal:
    """A repair, planned or on its way.

    Args:
        cluster: Id of the cluster it is for.
        wish: What was asked for; None for lists that were given.
        moves: The lists of each partition that is to have other replicas.
        waiting: The lists of partitions some of whose replicas no broker can take yet (negative numbers).
        phase: How far it is.
        throttled: What was set before the throttle that is set now; None if none is.
    """

    cluster: str
    wish: ReassignmentRequest | None = None
    moves: Mapping[TopicPartition, ReplicaMove] = field(default_factory=dict)
    waiting: Mapping[TopicPartition, Replicas] = field(default_factory=dict)
    phase: Phase = "planned"
    throttled: SavedConfigs | None = None

    @property
    def open(self) -> bool:
        """Whether it was begun and is not over, or has left a throttle."""
        return self.phase == "begun" or self.throttled is not None

    def joined(self, later: Journal) -> Journal:
        """Return the journal of this repair when it goes on with what a later plan adds to it.

        What both know keeps the list it had at the very first.
        """
        moves = dict(self.moves)
        for place, move in later.moves.items():
            old = moves.get(place)
            if old is None:
                moves[place] = move
            else:
                passed = tuple(dict.fromkeys((*old.intermediate, old.after, move.before, *move.intermediate)))
                moves[place] = ReplicaMove(old.before, move.after, passed)
        return replace(self, moves=moves, waiting=later.waiting, phase="begun")


def read(file: Path) -> Journal:
    """Read a journal.

    Raises:
        ConfigError: It is not there, or cannot be read.
    """
    try:
        text = file.read_text("utf-8")
    except FileNotFoundError:
        raise ConfigError(f"there is no plan {file}: `reassign plan` makes one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {file}: {error}") from None
    try:
        return _parsed(scenario.parse(text))
    except RackassignError as error:
        raise ConfigError(f"{file} is not a plan of rackassign: {error}") from None


def write(file: Path, journal: Journal) -> None:
    """Write a journal in place of what is there, all of it or nothing.

    Raises:
        ConfigError: It cannot be written.
    """
    value = {
        "format": FORMAT,
        "cluster": journal.cluster,
        "phase": journal.phase,
        "wish": None if journal.wish is None else journal.wish.to_json(),
        "moves": _by_topic((place, _move(move)) for place, move in journal.moves.items()),
        "waiting": _by_topic((place, list(row)) for place, row in journal.waiting.items()),
        "throttled": None
        if journal.throttled is None
        else {
            "brokers": dict(journal.throttled.brokers),
            "topics": {topic: dict(keys) for topic, keys in journal.throttled.topics.items()},
        },
    }
    write_file(file, json.dumps(value, indent=1))


def begin(file: Path, journal: Journal) -> Path | None:
    """Write a new journal; one that was carried out is put by, as it alone knows the lists as they were.

    Returns:
        Where it is now, if there was one.

    Raises:
        ConfigError: The one that is there is not over, or is something else, or a file cannot be written.
    """
    old, put_by = require_finished(file), None
    if old is not None and old.phase in {"applied", "abandoned"}:
        put_by = _free(file)
        write(put_by, old)
    write(file, journal)
    return put_by


def archive(file: Path) -> Path | None:
    """Put by a plan that was never begun, as it is not what was asked for last; return where it is now."""
    old = require_finished(file)
    if old is None or old.phase != "planned":
        return None
    put_by = _free(file)
    file.replace(put_by)
    return put_by


def _free(file: Path) -> Path:
    names = (file.with_name(f"{file.stem}.{number}{file.suffix}") for number in count(1))
    return next(name for name in names if not name.exists())


def require_finished(file: Path) -> Journal | None:
    """Return the journal that is there, if there is one and it is over.

    Raises:
        ConfigError: It is not, or it is something else.
    """
    old = read(file) if file.exists() else None
    if old is not None and old.open:
        raise ConfigError(
            f"{file} is a repair that is not over:"
            f" `reassign apply --plan-file {file}` goes on, `reassign rollback --plan-file {file}` goes back,"
            f" `reassign abandon --plan-file {file}` leaves all as it is (`reassign status --plan-file {file}` tells)"
        )
    return old


@contextmanager
def open_exclusive(file: Path) -> Iterator[Journal]:
    """Lend a journal, and let nobody else carry it out during the block.

    Raises:
        ConfigError: As for `read`, and for `file_lock`.
    """
    # Without one there is nothing to lock.
    read(file)
    with file_lock(file):
        yield read(file)


@contextmanager
def file_lock(file: Path) -> Iterator[None]:
    """Let nobody else use a journal of this name during the block.

    Raises:
        ConfigError: Somebody does already, or there can be no lock beside the file.
    """
    try:
        lock = file.with_name(f".{file.name}.lock").open("w")
    except OSError as error:
        raise ConfigError(f"cannot write beside {file}: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"another repair is at work with {file}") from None
        yield


def _move(move: ReplicaMove) -> dict[str, Any]:
    passed = {"passed": [list(row) for row in move.intermediate]} if move.intermediate else {}
    return {"before": list(move.before), "after": list(move.after), **passed}


def _by_topic(rows: Iterable[tuple[TopicPartition, Any]]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for (topic, partition), value in sorted(rows, key=lambda row: row[0]):
        found.setdefault(topic, {})[str(partition)] = value
    return found


def _parsed(value: Any) -> Journal:  # noqa: ANN401 - it comes from JSON
    found = json_fields.fields(value, "", {"format", "cluster", "phase", "wish", "moves", "waiting", "throttled"})
    if found["format"] != FORMAT:
        raise InputError("format", f"expected {short_repr(FORMAT)}, got {short_repr(found['format'])}")
    phase = next((known for known in PHASES if known == found["phase"]), None)
    if phase is None:
        raise InputError("phase", f"expected {', '.join(PHASES)}, got {short_repr(found['phase'])}")
    return Journal(
        json_fields.text(found["cluster"], "cluster"),
        None if found["wish"] is None else ReassignmentRequest.read(found["wish"]),
        {place: _read_move(row, path) for path, place, row in _places(found["moves"], "moves")},
        {place: _ids(row, path, least=-_LARGEST) for path, place, row in _places(found["waiting"], "waiting")},
        phase,
        None if found["throttled"] is None else _earlier(found["throttled"]),
    )


def _read_move(value: Any, path: str) -> ReplicaMove:  # noqa: ANN401 - it comes from JSON
    row = json_fields.fields(value, path, {"before", "after"}, {"passed"})
    passed = json_fields.array(row.get("passed", []), f"{path}.passed")
    return ReplicaMove(
        _ids(row["before"], f"{path}.before"),
        _ids(row["after"], f"{path}.after"),
        tuple(_ids(each, f"{path}.passed[{i}]") for i, each in enumerate(passed)),
    )


def _earlier(value: Any) -> SavedConfigs:  # noqa: ANN401 - it comes from JSON
    found = json_fields.fields(value, "throttled", {"brokers", "topics"})
    topics = json_fields.mapping(found["topics"], "throttled.topics")
    return SavedConfigs(
        _texts(found["brokers"], "throttled.brokers"),
        {topic: _texts(keys, f"throttled.topics.{topic}") for topic, keys in topics.items()},
    )


def _places(value: Any, path: str) -> Iterable[tuple[str, TopicPartition, Any]]:  # noqa: ANN401 - it comes from JSON
    for topic, rows in json_fields.mapping(value, path).items():
        seen: set[int] = set()
        for partition, row in json_fields.mapping(rows, f"{path}.{topic}").items():
            where = f"{path}.{topic}.{partition}"
            if not (TOPIC_NAME.fullmatch(topic) and partition.isascii() and partition.isdecimal()):
                raise InputError(where, f"there can be no partition {short_repr(topic)}-{short_repr(partition)}")
            if int(partition) in seen:
                raise InputError(where, "the partition is there twice")
            seen.add(int(partition))
            yield where, TopicPartition(topic, int(partition)), row


def _ids(value: Any, path: str, least: int = 0) -> Replicas:  # noqa: ANN401 - it comes from JSON
    ids = tuple(json_fields.array(value, path))
    if (
        not ids
        or len(set(map(repr, ids))) < len(ids)
        or any(type(b) is not int or not least <= b <= _LARGEST for b in ids)
    ):
        raise InputError(path, f"{short_repr(value)} is no list of replicas")
    return ids


def _texts(value: Any, path: str) -> dict[str, str]:  # noqa: ANN401 - it comes from JSON
    return {key: json_fields.text(kept, f"{path}.{key}") for key, kept in json_fields.mapping(value, path).items()}
