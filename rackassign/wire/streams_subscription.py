"""User data that a member of Kafka Streams writes into its subscription: its tasks, their offsets, and its tags.

=======  ==========================================================================================
version  fields, in this order
=======  ==========================================================================================
1        version (32 bits), process ID, tasks that were active, tasks that were on standby
2        the endpoint, as bytes: `host:port`, empty for none
3-6      the newest version it supports, after the version
7        offset sums in place of the tasks, by subtopology, after the endpoint
8        a number that makes the subscription differ from the one before
9        an error code
10       offset sums task by task, with the name of the topology
11       client tags (KIP-708), key and value as bytes
=======  ==========================================================================================

Of a newer version only the two version numbers are decoded, which is sufficient for version probing. Up to version 6
there are no offsets of tasks: the sum of a task on standby is decoded as `UNKNOWN_SUM`.
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
"""Value of an offset sum: the task is active on the member."""

UNKNOWN_SUM = -3
"""Value of an offset sum: the offsets are not known."""

_NO_PROCESS = UUID(int=0)
_HAS_LATEST, _HAS_ENDPOINT, _HAS_SUMS, _HAS_UNIQUE, _HAS_ERROR, _IS_FLAT, _HAS_TAGS = 3, 2, 7, 8, 9, 10, 11


class TaskId(NamedTuple):
    """A task of Kafka Streams.

    Args:
        subtopology: Number of the subtopology.
        partition: Partition of its input.
        topology: Name of the topology; None for the only one.
    """

    subtopology: int
    partition: int
    topology: str | None = None


@dataclass(frozen=True, slots=True)
class StreamsSubscriptionInfo:
    """Information of a member about itself.

    Args:
        process: ID of its process.
        task_offset_sums: For each of its tasks the sum of its changelog offsets, `ACTIVE_SUM` or `UNKNOWN_SUM`.
        tags: Client tags.
        endpoint: `host:port` of its interactive queries; empty for none.
        unique_field: From -128 to 127; differs from the last subscription's.
        error: Error code; 4 requests all members to stop.
        version: Version to encode, from 1.
        latest: The newest version that the member supports; -1 if it is not encoded, before version 3.
    """

    process: UUID = _NO_PROCESS
    task_offset_sums: Mapping[TaskId, int] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    endpoint: str = ""
    unique_field: int = 0
    error: int = 0
    version: int = NEWEST_STREAMS
    latest: int = NEWEST_STREAMS


def encode_streams(info: StreamsSubscriptionInfo) -> bytes:
    """Encode information of a member, with tasks and tags in the given order; omit fields that the version lacks.

    Raises:
        WireError: The version does not exist, or a value does not fit it.
    """
    version = info.version
    if not 1 <= version <= NEWEST_STREAMS:
        raise WireError(0, f"version {version}: expected 1 to {NEWEST_STREAMS}")
    out = Writer()
    out.int32(version)
    if version >= _HAS_LATEST:
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
    """Decode information of a member.

    Raises:
        WireError: The bytes have another format.
    """
    reader = Reader(data)
    version = reader.int32("the version")
    if version < 1:
        raise WireError(0, f"version {version}: expected 1 or more")
    latest = reader.int32("the newest version") if version >= _HAS_LATEST else -1
    if version > NEWEST_STREAMS:
        return StreamsSubscriptionInfo(version=version, latest=latest)
    process = UUID(bytes=reader.read_bytes(16, "the process id"))
    sums: dict[TaskId, int] = {}
    endpoint, unique, error = "", 0, 0
    tags: dict[str, str] = {}
    if version < _HAS_SUMS:
        for total in (ACTIVE_SUM, UNKNOWN_SUM):
            for _ in range(reader.count("tasks", 8) or 0):
                sums[_read_task(reader)] = total
    if version >= _HAS_ENDPOINT:
        endpoint = _read_text(reader, "the endpoint")
    if version >= _HAS_SUMS:
        sums = _read_sums(reader, version)
    if version >= _HAS_UNIQUE:
        unique = reader.int8("the number that makes it differ")
    if version >= _HAS_ERROR:
        error = reader.int32("the error code")
    if version >= _HAS_TAGS:
        for _ in range(reader.count("tags", 8) or 0):
            key = _read_text(reader, "a tag's key")
            tags[key] = _read_text(reader, "a tag's value")
    return StreamsSubscriptionInfo(process, sums, tags, endpoint, unique, error, version, latest)


def _write_task(out: Writer, task: TaskId, version: int) -> None:
    if task.topology is not None and version < _IS_FLAT:
        raise WireError(0, f"version {version} has no room for the name of a topology")
    out.int32(task.subtopology)
    out.int32(task.partition)


def _read_task(reader: Reader) -> TaskId:
    return TaskId(reader.int32("a subtopology"), reader.int32("a partition"))


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


def _read_sums(reader: Reader, version: int) -> dict[TaskId, int]:
    sums: dict[TaskId, int] = {}
    if version >= _IS_FLAT:
        for _ in range(reader.count("offset sums", 18) or 0):
            task = _read_task(reader)
            total = reader.int64("an offset sum")
            sums[task._replace(topology=reader.nullable_string("the name of a topology"))] = total
        return sums
    for _ in range(reader.count("subtopologies", 8) or 0):
        group = reader.int32("a subtopology")
        for _ in range(reader.count("offset sums", 12) or 0):
            partition = reader.int32("a partition")
            sums[TaskId(group, partition)] = reader.int64("an offset sum")
    return sums


def _write_text(out: Writer, text: str) -> None:
    try:
        out.nullable_bytes(text.encode())
    except UnicodeEncodeError:
        raise WireError(0, f"{text!r} cannot be written as UTF-8") from None


def _read_text(reader: Reader, what: str) -> str:
    start = reader.offset
    try:
        return str(reader.nullable_bytes(what) or b"", "utf-8")
    except UnicodeDecodeError:
        raise WireError(start, f"{what} is not UTF-8") from None
