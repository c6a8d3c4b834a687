"""The plan file: what is stored before a reassignment begins, so that it can be resumed or rolled back after a crash.

The progress of partitions is not stored, because the cluster reports it. What the cluster cannot report is stored: the
original lists, and the throttle configurations that were set before.

A plan can be exported to the JSON of `kafka-reassign-partitions`, and imported from it.
"""

from __future__ import annotations

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
from rackassign.placement.cluster_state import ClusterState
from rackassign.reassignment.partition_execution import ReplicaMove, Replicas
from rackassign.reassignment.plan import ReassignmentPlan, plan_from_lists
from rackassign.reassignment.request import JSON_KEY, ReassignmentRequest
from rackassign.reassignment.throttle import SavedConfigs
from rackassign.text import parse_digits, short_repr
from rackassign.util.files import array_field, locked, object_field, object_fields, text_field, write_file

FORMAT = "rackassign-repair/1"

_LARGEST = 2**31 - 1

Phase = Literal["planned", "begun", "applied", "rolled-back", "abandoned"]
"""Phase of a plan: `begun` until all of it is done, or rolled back as far as possible, or it is abandoned."""

PHASES: tuple[Phase, ...] = get_args(Phase)


@dataclass(frozen=True, slots=True)
class Journal:
    """A reassignment that is planned or in progress.

    Args:
        cluster: ID of the cluster of the plan.
        request: The request that was planned; None for lists that were given.
        moves: Replica lists of each partition that is to have other replicas.
        waiting: Replica lists with placeholders (negative numbers) for which no broker is available yet.
        phase: Phase of the plan.
        throttled: Configurations from before the current throttle; None if no throttle is set.
    """

    cluster: str
    request: ReassignmentRequest | None = None
    moves: Mapping[TopicPartition, ReplicaMove] = field(default_factory=dict)
    waiting: Mapping[TopicPartition, Replicas] = field(default_factory=dict)
    phase: Phase = "planned"
    throttled: SavedConfigs | None = None

    @property
    def open(self) -> bool:
        """Whether the plan was begun and is not over, or has left a throttle."""
        return self.phase == "begun" or self.throttled is not None

    def joined(self, later: Journal) -> Journal:
        """Return the journal of this reassignment extended by a later plan.

        Partitions in both keep the list from before the first plan.
        """
        moves = dict(self.moves)
        for tp, move in later.moves.items():
            old = moves.get(tp)
            if old is None:
                moves[tp] = move
            else:
                passed = tuple(dict.fromkeys((*old.intermediate, old.after, move.before, *move.intermediate)))
                moves[tp] = ReplicaMove(old.before, move.after, passed)
        return replace(self, moves=moves, waiting=later.waiting, phase="begun")


def read(file: Path) -> Journal:
    try:
        text = file.read_text("utf-8")
    except FileNotFoundError:
        raise ConfigError(f"plan file {file} does not exist; create it with `reassign plan`") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {file}: {error}") from None
    try:
        return _parsed(scenario.parse(text))
    except RackassignError as error:
        raise ConfigError(f"{file} is not a plan file of rackassign: {error}") from None


def write(file: Path, journal: Journal) -> None:
    """Replace a journal atomically."""
    value = {
        "format": FORMAT,
        "cluster": journal.cluster,
        "phase": journal.phase,
        JSON_KEY: None if journal.request is None else journal.request.to_json(),
        "moves": _by_topic((tp, _move(move)) for tp, move in journal.moves.items()),
        "waiting": _by_topic((tp, list(row)) for tp, row in journal.waiting.items()),
        "throttled": None
        if journal.throttled is None
        else {
            "brokers": dict(journal.throttled.brokers),
            "topics": {topic: dict(keys) for topic, keys in journal.throttled.topics.items()},
        },
    }
    write_file(file, json.dumps(value, indent=1))


def begin(file: Path, journal: Journal) -> Path | None:
    """Write a new journal; keep an applied one, as only it has the original lists, and return its new name."""
    old, backup = require_finished(file), None
    if old is not None and old.phase in {"applied", "abandoned"}:
        backup = _free(file)
        write(backup, old)
    write(file, journal)
    return backup


def archive(file: Path) -> Path | None:
    """Rename a plan that was never begun, as it is not the plan that was requested last; return its new name."""
    old = require_finished(file)
    if old is None or old.phase != "planned":
        return None
    backup = _free(file)
    file.replace(backup)
    return backup


def _free(file: Path) -> Path:
    names = (file.with_name(f"{file.stem}.{number}{file.suffix}") for number in count(1))
    return next(name for name in names if not name.exists())


def require_finished(file: Path) -> Journal | None:
    """Return the existing journal, if there is one and it is over."""
    try:
        old = read(file) if file.exists() else None
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    if old is not None and old.open:
        raise ConfigError(
            f"{file} is a plan in progress:"
            f" `reassign apply --plan-file {file}` resumes it, `reassign rollback --plan-file {file}` rolls it back,"
            f" `reassign abandon --plan-file {file}` leaves all partitions as they are"
            f" (`reassign status --plan-file {file}` shows its progress)"
        )
    return old


@contextmanager
def open_exclusive(file: Path) -> Iterator[Journal]:
    """Read a journal and lock it against other processes during the block."""
    # Without a file there is nothing to lock.
    read(file)
    with file_lock(file):
        yield read(file)


@contextmanager
def file_lock(file: Path) -> Iterator[None]:
    """Lock a journal's name against other processes during the block."""
    if not file.name:
        # An empty name, of a variable that is not set, is that of the current folder.
        raise ConfigError(f"plan file: expected the name of a file, got the folder {file}")
    with locked(file, wait=False):
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
    fields = object_fields(value, "", {"format", "cluster", "phase", JSON_KEY, "moves", "waiting", "throttled"})
    if fields["format"] != FORMAT:
        raise InputError("format", f"expected {short_repr(FORMAT)}, got {short_repr(fields['format'])}")
    phase = next((known for known in PHASES if known == fields["phase"]), None)
    if phase is None:
        raise InputError("phase", f"expected {', '.join(PHASES)}, got {short_repr(fields['phase'])}")
    return Journal(
        text_field(fields["cluster"], "cluster"),
        None if fields[JSON_KEY] is None else ReassignmentRequest.read(fields[JSON_KEY]),
        {tp: _read_move(row, path) for path, tp, row in _rows_by_partition(fields["moves"], "moves")},
        {tp: _ids(row, path, least=-_LARGEST) for path, tp, row in _rows_by_partition(fields["waiting"], "waiting")},
        phase,
        None if fields["throttled"] is None else _earlier(fields["throttled"]),
    )


def _read_move(value: Any, path: str) -> ReplicaMove:  # noqa: ANN401 - it comes from JSON
    row = object_fields(value, path, {"before", "after"}, {"passed"})
    passed = array_field(row.get("passed", []), f"{path}.passed")
    return ReplicaMove(
        _ids(row["before"], f"{path}.before"),
        _ids(row["after"], f"{path}.after"),
        tuple(_ids(each, f"{path}.passed[{i}]") for i, each in enumerate(passed)),
    )


def _earlier(value: Any) -> SavedConfigs:  # noqa: ANN401 - it comes from JSON
    found = object_fields(value, "throttled", {"brokers", "topics"})
    topics = object_field(found["topics"], "throttled.topics")
    return SavedConfigs(
        _texts(found["brokers"], "throttled.brokers"),
        {topic: _texts(keys, f"throttled.topics.{topic}") for topic, keys in topics.items()},
    )


def _rows_by_partition(value: Any, path: str) -> Iterable[tuple[str, TopicPartition, Any]]:  # noqa: ANN401 - it comes from JSON
    for topic, rows in object_field(value, path).items():
        numbers: set[int] = set()
        for partition, row in object_field(rows, f"{path}.{topic}").items():
            where = f"{path}.{topic}.{partition}"
            number = parse_digits(partition)
            if number is None or not TOPIC_NAME.fullmatch(topic):
                raise InputError(where, f"invalid partition {short_repr(topic)}-{short_repr(partition)}")
            if number in numbers:
                raise InputError(where, "the partition is listed twice")
            numbers.add(number)
            yield where, TopicPartition(topic, number), row


def _ids(value: Any, path: str, least: int = 0) -> Replicas:  # noqa: ANN401 - it comes from JSON
    ids = tuple(array_field(value, path))
    if (
        not ids
        or len(set(map(repr, ids))) < len(ids)
        or any(type(b) is not int or not least <= b <= _LARGEST for b in ids)
    ):
        raise InputError(path, f"{short_repr(value)} is not a list of replicas")
    return ids


def _texts(value: Any, path: str) -> dict[str, str]:  # noqa: ANN401 - it comes from JSON
    return {key: text_field(kept, f"{path}.{key}") for key, kept in object_field(value, path).items()}


_VERSION = 1


def write_reassignment(lists: Mapping[TopicPartition, Replicas]) -> str:
    """Return lists in the format of `kafka-reassign-partitions --execute`."""
    partitions = [
        {"topic": topic, "partition": number, "replicas": list(replicas)}
        for (topic, number), replicas in sorted(lists.items())
    ]
    return json.dumps({"version": _VERSION, "partitions": partitions})


def read_reassignment(value: Any) -> dict[TopicPartition, Replicas]:  # noqa: ANN401 - parsed JSON
    """Return the lists in parsed JSON of `kafka-reassign-partitions`; log directories are ignored."""
    if not isinstance(value, dict):
        raise InputError("", f"expected an object, got {short_repr(value)}")
    if value.get("version") != _VERSION:
        raise InputError("version", f"expected {_VERSION}, got {short_repr(value.get('version'))}")
    rows = value.get("partitions")
    if not isinstance(rows, list):
        raise InputError("partitions", f"expected an array, got {short_repr(rows)}")
    replicas_of: dict[TopicPartition, Replicas] = {}
    for i, row in enumerate(rows):
        tp, replicas = _row(f"partitions[{i}]", row)
        if tp in replicas_of:
            raise InputError(f"partitions[{i}]", f"{tp.topic}-{tp.partition} is listed twice")
        replicas_of[tp] = replicas
    return replicas_of


def plan_from_json(state: ClusterState, lists: Mapping[TopicPartition, Replicas]) -> ReassignmentPlan:
    brokers = {broker.id for broker in state.brokers}
    for (topic, number), replicas in sorted(lists.items()):
        known = state.topics.get(topic)
        if known is None or number >= len(known.partitions):
            raise InputError("partitions", f"partition {topic}-{number} does not exist")
        for broker in sorted(set(replicas) - brokers):
            raise InputError("partitions", f"{topic}-{number}: broker {broker} does not exist")
    return plan_from_lists(state, lists)


def _row(path: str, row: Any) -> tuple[TopicPartition, Replicas]:  # noqa: ANN401 - parsed JSON
    if not isinstance(row, dict):
        raise InputError(path, f"expected an object, got {short_repr(row)}")
    topic, number, replicas = row.get("topic"), row.get("partition"), row.get("replicas")
    if not isinstance(topic, str) or not topic:
        raise InputError(f"{path}.topic", f"expected the name of a topic, got {short_repr(topic)}")
    if type(number) is not int or number < 0:
        raise InputError(f"{path}.partition", f"expected 0 or more, got {short_repr(number)}")
    if not isinstance(replicas, list) or not replicas or any(type(broker) is not int for broker in replicas):
        raise InputError(f"{path}.replicas", f"expected broker IDs, got {short_repr(replicas)}")
    if len(set(replicas)) < len(replicas):
        raise InputError(f"{path}.replicas", "a broker is listed twice")
    return TopicPartition(topic, number), tuple(replicas)
