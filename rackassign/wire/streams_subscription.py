"""What a member of Kafka Streams writes into its subscription's user data: its tasks, how far they are, and its tags.

=======  ==========================================================================================
version  fields, in this order
=======  ==========================================================================================
1        version (32 bits), process id, tasks that were active, tasks that were on standby
2        and the endpoint, as bytes: `host:port`, empty for none
3-6      the newest version it knows, behind the version
7        offset sums in place of the tasks, by subtopology, behind the endpoint
8        a number that makes the subscription differ from the one before
9        an error code
10       offset sums task by task, with the name of the topology
11       client tags (KIP-708), key and value as bytes
=======  ==========================================================================================

A newer version than these is read as far as the two version numbers, which is what version probing needs. Up to version
6 nothing is said of how far a task is: one on standby is read as `UNKNOWN_SUM`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from rackassign.errors import WireError
from rackassign.wire.primitives import Reader, Writer

NEWEST_STREAMS = 11

ACTIVE_SUM = -2
"""In place of the sum of offsets: the member runs the task."""

UNKNOWN_SUM = -3
"""In place of the sum of offsets: nobody has said."""

_NOBODY = UUID(int=0)
_SAYS_LATEST, _HAS_ENDPOINT, _HAS_SUMS, _HAS_UNIQUE, _HAS_ERROR, _IS_FLAT, _HAS_TAGS = 3, 2, 7, 8, 9, 10, 11


class TaskId(NamedTuple):
    """A task of Kafka Streams.

    Args:
        subtopology: Number of the subtopology.
        partition: Of its input.
        topology: Name of the topology; None for the only one.
    """

    subtopology: int
    partition: int
    topology: str | None = None


@dataclass(frozen=True, slots=True)
class StreamsSubscriptionInfo:
    """What a member says of itself.

    Args:
        process: Id of its process.
        task_offset_sums: For each task it has the sum of its changelog offsets, `ACTIVE_SUM` or `UNKNOWN_SUM`.
        tags: Client tags.
        endpoint: `host:port` of its interactive queries; empty for none.
        unique_field: From -128 to 127; differs from the last subscription's.
        error: Code; 4 asks all members to stop.
        version: What is written, from 1.
        latest: The newest version the member knows; -1 where that cannot be said, before version 3.
    """

    process: UUID = _NOBODY
    task_offset_sums: Mapping[TaskId, int] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    endpoint: str = ""
    unique_field: int = 0
    error: int = 0
    version: int = NEWEST_STREAMS
    latest: int = NEWEST_STREAMS


def encode_streams(info: StreamsSubscriptionInfo) -> bytes:
    """Write what a member says, tasks and tags in the order given; what a version has no room for is left out.

    Raises:
        WireError: There is no such version, or a value does not fit it.
    """
    version = info.version
    if not 1 <= version <= NEWEST_STREAMS:
        raise WireError(0, f"version {version}: expected 1 to {NEWEST_STREAMS}")
    out = Writer()
    out.int32(version)
    if version >= _SAYS_LATEST:
        out.int32(info.latest)
    out.write_bytes(info.process.bytes)
    if version < _HAS_SUMS:
        for active in (True, False):
            tasks = [task for task, total in info.task_offset_sums.items() if (total == ACTIVE_SUM) is active]
            out.int32(len(tasks))
            for task in tasks:
                _write_task(out, task, version)
    if version >= _HAS_ENDPOINT:
        _write_text(out, info.endpoint)
    if version >= _HAS_SUMS:
        _write_sums(out, info.task_offset_sums, version)
    if version >= _HAS_UNIQUE:
        out.int8(info.unique_field)
    if version >= _HAS_ERROR:
        out.int32(info.error)
    if version >= _HAS_TAGS:
        out.int32(len(info.tags))
        for key, value in info.tags.items():
            _write_text(out, key)
            _write_text(out, value)
    return out.done()


def decode_streams(data: bytes) -> StreamsSubscriptionInfo:
    """Read what a member says of itself.

    Raises:
        WireError: The bytes are no such thing.
    """
    told = Reader(data)
    version = told.int32("the version")
    if version < 1:
        raise WireError(0, f"version {version}: expected 1 or more")
    latest = told.int32("the newest version") if version >= _SAYS_LATEST else -1
    if version > NEWEST_STREAMS:
        return StreamsSubscriptionInfo(version=version, latest=latest)
    process = UUID(bytes=told.read_bytes(16, "the process id"))
    sums: dict[TaskId, int] = {}
    endpoint, unique, error = "", 0, 0
    tags: dict[str, str] = {}
    if version < _HAS_SUMS:
        for total in (ACTIVE_SUM, UNKNOWN_SUM):
            for _ in range(told.count("tasks", 8) or 0):
                sums[_read_task(told)] = total
    if version >= _HAS_ENDPOINT:
        endpoint = _read_text(told, "the endpoint")
    if version >= _HAS_SUMS:
        sums = _read_sums(told, version)
    if version >= _HAS_UNIQUE:
        unique = told.int8("the number that makes it differ")
    if version >= _HAS_ERROR:
        error = told.int32("the error code")
    if version >= _HAS_TAGS:
        for _ in range(told.count("tags", 8) or 0):
            key = _read_text(told, "a tag's key")
            tags[key] = _read_text(told, "a tag's value")
    return StreamsSubscriptionInfo(process, sums, tags, endpoint, unique, error, version, latest)


def _write_task(out: Writer, task: TaskId, version: int) -> None:
    if task.topology is not None and version < _IS_FLAT:
        raise WireError(0, f"version {version} has no room for the name of a topology")
    out.int32(task.subtopology)
    out.int32(task.partition)


def _read_task(told: Reader) -> TaskId:
    return TaskId(told.int32("a subtopology"), told.int32("a partition"))


def _write_sums(out: Writer, sums: Mapping[TaskId, int], version: int) -> None:
    if version >= _IS_FLAT:
        out.int32(len(sums))
        for task, total in sums.items():
            _write_task(out, task, version)
            out.int64(total)
            out.nullable_string(task.topology)
        return
    groups: dict[int, list[tuple[TaskId, int]]] = {}
    for task, total in sums.items():
        groups.setdefault(task.subtopology, []).append((task, total))
    out.int32(len(groups))
    for group, tasks in groups.items():
        out.int32(group)
        out.int32(len(tasks))
        for task, total in tasks:
            if task.topology is not None:
                raise WireError(0, f"version {version} has no room for the name of a topology")
            out.int32(task.partition)
            out.int64(total)


def _read_sums(told: Reader, version: int) -> dict[TaskId, int]:
    sums: dict[TaskId, int] = {}
    if version >= _IS_FLAT:
        for _ in range(told.count("offset sums", 18) or 0):
            task = _read_task(told)
            total = told.int64("an offset sum")
            sums[task._replace(topology=told.nullable_string("the name of a topology"))] = total
        return sums
    for _ in range(told.count("subtopologies", 8) or 0):
        group = told.int32("a subtopology")
        for _ in range(told.count("offset sums", 12) or 0):
            partition = told.int32("a partition")
            sums[TaskId(group, partition)] = told.int64("an offset sum")
    return sums


def _write_text(out: Writer, text: str) -> None:
    try:
        out.nullable_bytes(text.encode())
    except UnicodeEncodeError:
        raise WireError(0, f"{text!r} cannot be written as UTF-8") from None


def _read_text(told: Reader, what: str) -> str:
    start = told.offset
    try:
        return str(told.nullable_bytes(what) or b"", "utf-8")
    except UnicodeDecodeError:
        raise WireError(start, f"{what} is not UTF-8") from None
