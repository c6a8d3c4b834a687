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

from rackassign.errors import ConfigError, RackassignError, shown
from rackassign.model import TOPIC_NAME, TopicPartition
from rackassign.placement.registry import write_whole
from rackassign.placement.repair.steps import Move, Replicas
from rackassign.placement.repair.throttle import Earlier
from rackassign.placement.repair.wish import Wish

FORMAT = "rackassign-repair/1"

_LARGEST = 2**31 - 1

Phase = Literal["planned", "begun", "applied", "rolled-back"]
"""How far it is: `begun` until all that was planned is done, or undone."""

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
    wish: Wish | None = None
    moves: Mapping[TopicPartition, Move] = field(default_factory=dict)
    waiting: Mapping[TopicPartition, Replicas] = field(default_factory=dict)
    phase: Phase = "planned"
    throttled: Earlier | None = None

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
                passed = tuple(dict.fromkeys((*old.passed, old.after, move.before, *move.passed)))
                moves[place] = Move(old.before, move.after, passed)
        return replace(self, moves=moves, waiting=later.waiting, phase="begun")


def read(file: Path) -> Journal:
    """Read a journal.

    Raises:
        ConfigError: It is not there, or cannot be read.
    """
    try:
        text = file.read_text("utf-8")
    except FileNotFoundError:
        raise ConfigError(f"there is no plan {file}: `repair plan` makes one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {file}: {error}") from None
    try:
        return _parsed(json.loads(text))
    except (RackassignError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{file} is not a plan of rackassign: {type(error).__name__}: {error}") from None


def write(file: Path, journal: Journal) -> None:
    """Write a journal in place of what is there, all of it or nothing.

    Raises:
        ConfigError: It cannot be written.
    """
    value = {
        "format": FORMAT,
        "cluster": journal.cluster,
        "phase": journal.phase,
        "wish": None if journal.wish is None else journal.wish.written(),
        "moves": _by_topic((place, _move(move)) for place, move in journal.moves.items()),
        "waiting": _by_topic((place, list(row)) for place, row in journal.waiting.items()),
        "throttled": None
        if journal.throttled is None
        else {
            "brokers": dict(journal.throttled.brokers),
            "topics": {topic: dict(keys) for topic, keys in journal.throttled.topics.items()},
        },
    }
    write_whole(file, json.dumps(value, indent=1))


def begin(file: Path, journal: Journal) -> Path | None:
    """Write a new journal; one that was carried out is put by, as it alone knows the lists as they were.

    Returns:
        Where it is now, if there was one.

    Raises:
        ConfigError: The one that is there is not over, or is something else, or a file cannot be written.
    """
    old, put_by = check_over(file), None
    if old is not None and old.phase == "applied":
        put_by = _free(file)
        write(put_by, old)
    write(file, journal)
    return put_by


def withdraw(file: Path) -> Path | None:
    """Put by a plan that was never begun, as it is not what was asked for last; return where it is now."""
    old = check_over(file)
    if old is None or old.phase != "planned":
        return None
    put_by = _free(file)
    file.replace(put_by)
    return put_by


def _free(file: Path) -> Path:
    names = (file.with_name(f"{file.stem}.{number}{file.suffix}") for number in count(1))
    return next(name for name in names if not name.exists())


def check_over(file: Path) -> Journal | None:
    """Return the journal that is there, if there is one and it is over.

    Raises:
        ConfigError: It is not, or it is something else.
    """
    old = read(file) if file.exists() else None
    if old is not None and old.open:
        raise ConfigError(
            f"{file} is a repair that is not over:"
            f" `repair apply --plan {file}` goes on, `repair rollback --plan {file}` goes back"
        )
    return old


@contextmanager
def claimed(file: Path) -> Iterator[Journal]:
    """Lend a journal, and let nobody else carry it out during the block.

    Raises:
        ConfigError: As for `read`, and for `locked`.
    """
    # Without one there is nothing to lock.
    read(file)
    with locked(file):
        yield read(file)


@contextmanager
def locked(file: Path) -> Iterator[None]:
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


def _move(move: Move) -> dict[str, Any]:
    passed = {"passed": [list(row) for row in move.passed]} if move.passed else {}
    return {"before": list(move.before), "after": list(move.after), **passed}


def _by_topic(rows: Iterable[tuple[TopicPartition, Any]]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for (topic, partition), value in sorted(rows, key=lambda row: row[0]):
        found.setdefault(topic, {})[str(partition)] = value
    return found


def _parsed(value: Any) -> Journal:  # noqa: ANN401 - it comes from JSON
    if value["format"] != FORMAT:
        raise ValueError(f"format is {value['format']!r}")
    if value["phase"] not in PHASES:
        raise ValueError(f"phase is {value['phase']!r}")
    wish, throttled = value["wish"], value["throttled"]
    return Journal(
        _text(value["cluster"]),
        None if wish is None else Wish.read(wish),
        {
            place: Move(_ids(row["before"]), _ids(row["after"]), tuple(map(_ids, row.get("passed", ()))))
            for place, row in _places(value["moves"])
        },
        {place: _ids(row, least=-_LARGEST) for place, row in _places(value["waiting"])},
        value["phase"],
        None
        if throttled is None
        else Earlier(_texts(throttled["brokers"]), {t: _texts(keys) for t, keys in throttled["topics"].items()}),
    )


def _places(value: Mapping[str, Mapping[str, Any]]) -> Iterable[tuple[TopicPartition, Any]]:
    for topic, rows in value.items():
        for partition, row in rows.items():
            if not (TOPIC_NAME.fullmatch(topic) and partition.isascii() and partition.isdecimal()):
                raise ValueError(f"there can be no partition {shown(topic)}-{shown(partition)}")
            yield TopicPartition(topic, int(partition)), row


def _ids(row: Iterable[Any], least: int = 0) -> Replicas:
    ids = tuple(row)
    if not ids or len(set(ids)) < len(ids) or any(type(b) is not int or not least <= b <= _LARGEST for b in ids):
        raise ValueError(f"{shown(list(ids))} is no list of replicas")
    return ids


def _texts(value: Mapping[str, Any]) -> dict[str, str]:
    return {key: _text(kept) for key, kept in value.items()}


def _text(value: Any) -> str:  # noqa: ANN401 - it comes from JSON
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {shown(value)}")
    return value
