"""User data of Kafka Streams, version 11: what a member writes into its subscription, and its leader into assignments.

=============================================================  =================================================
subscription (`SubscriptionInfo`)                              assignment (`AssignmentInfo`)
=============================================================  =================================================
version and the newest version that it supports (32 bits)      version and the newest that all members support
process ID (128 bits)                                          active tasks
endpoint, as bytes: `host:port`, empty for none                standby tasks, each with its partitions
offset sums, task by task, each with the name of its topology  the topics of the hosts' partitions, by number
a number that makes it differ from the one before (8 bits)     for each host its active partitions
error code (32 bits)                                           for each host its standby partitions
client tags (KIP-708), key and value as bytes                  error code, time of the next rebalance (64 bits)
=============================================================  =================================================

Only assignors of this package share a group with members that decode these bytes, and they write version 11. Any other
version is refused. The i-th active task belongs to the i-th partition of the assignment. Names of topics and hosts in
an assignment are encoded as Java's `DataOutputStream` does: UTF-8 with exceptions, after their length in 16 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from rackassign.errors import WireError
from rackassign.model import TopicPartition
from rackassign.wire.primitives import Reader, Writer

VERSION = 11

ACTIVE_SUM = -2
"""Value of an offset sum: the task is active on the member."""

NO_REBALANCE = 2**63 - 1
"""Value of the time if no rebalance is scheduled."""

_NO_PROCESS = UUID(int=0)
_MAX_JAVA_TEXT = 2**16 - 1
_NUL = b"\xc0\x80"


class TaskId(NamedTuple):
    """A task of Kafka Streams."""

    subtopology: int
    partition: int
    # None for the only one.
    topology: str | None = None


Hosts = Mapping[str, tuple[TopicPartition, ...]]
"""Partitions by `host:port`."""


@dataclass(frozen=True, slots=True)
class StreamsSubscriptionInfo:
    """Information of a member about itself."""

    process: UUID = _NO_PROCESS
    # The sum of a task's changelog offsets, or `ACTIVE_SUM`; other negative numbers are unknown offsets.
    task_offset_sums: Mapping[TaskId, int] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    # `host:port` of its interactive queries; empty for none.
    endpoint: str = ""
    # From -128 to 127; differs from the last subscription's.
    unique_field: int = 0
    # 4 requests all members to stop.
    error: int = 0
    # The newest version that the member supports.
    latest: int = VERSION


@dataclass(frozen=True, slots=True)
class StreamsAssignmentInfo:
    """Information for a member about its assignment."""

    # In the order of the assigned partitions.
    active: tuple[TaskId, ...] = ()
    standby: Mapping[TaskId, tuple[TopicPartition, ...]] = field(default_factory=dict)
    partitions_by_host: Hosts = field(default_factory=dict)
    standby_hosts: Hosts = field(default_factory=dict)
    error: int = 0
    # Time at which the member is to rejoin; `NO_REBALANCE` for never.
    next_rebalance_ms: int = NO_REBALANCE
    # The newest version that all members support.
    common: int = VERSION


def encode_streams(info: StreamsSubscriptionInfo) -> bytes:
    """Encode information of a member, with tasks and tags in the order of its mappings."""
    out = Writer()
    out.int32(VERSION)
    out.int32(info.latest)
    out.write_bytes(info.process.bytes)
    _write_utf8(out, info.endpoint)
    out.int32(len(info.task_offset_sums))
    for task, total in info.task_offset_sums.items():
        out.int32(task.subtopology)
        out.int32(task.partition)
        out.int64(total)
        out.nullable_string(task.topology)
    out.int8(info.unique_field)
    out.int32(info.error)
    out.int32(len(info.tags))
    for key, value in info.tags.items():
        _write_utf8(out, key)
        _write_utf8(out, value)
    return out.done()


def decode_streams(data: bytes) -> StreamsSubscriptionInfo:
    reader = Reader(data)
    _check_version(reader)
    latest = reader.int32("the newest version")
    process = UUID(bytes=reader.read_bytes(16, "the process id"))
    endpoint = _read_utf8(reader, "the endpoint")
    sums: dict[TaskId, int] = {}
    for _ in range(reader.count("offset sums", 18) or 0):
        task = TaskId(reader.int32("a subtopology"), reader.int32("a partition"))
        total = reader.int64("an offset sum")
        sums[task._replace(topology=reader.nullable_string("the name of a topology"))] = total
    unique = reader.int8("the number that makes it differ")
    error = reader.int32("the error code")
    tags: dict[str, str] = {}
    for _ in range(reader.count("tags", 8) or 0):
        key = _read_utf8(reader, "a tag's key")
        tags[key] = _read_utf8(reader, "a tag's value")
    return StreamsSubscriptionInfo(process, sums, tags, endpoint, unique, error, latest)


def encode_streams_assignment(info: StreamsAssignmentInfo) -> bytes:
    """Encode information for a member, in the order of its mappings."""
    out = Writer()
    out.int32(VERSION)
    out.int32(info.common)
    out.int32(len(info.active))
    for task in info.active:
        _write_task(out, task)
    out.int32(len(info.standby))
    for task, partitions in info.standby.items():
        _write_task(out, task)
        out.int32(len(partitions))
        for topic, partition in partitions:
            _write_java_text(out, topic)
            out.int32(partition)
    _write_hosts(out, (info.partitions_by_host, info.standby_hosts))
    out.int32(info.error)
    out.int64(info.next_rebalance_ms)
    return out.done()


def decode_streams_assignment(data: bytes) -> StreamsAssignmentInfo:
    reader = Reader(data)
    _check_version(reader)
    common = reader.int32("the version all know")
    active = tuple(_read_task(reader) for _ in range(reader.count("active tasks", 12) or 0))
    standby: dict[TaskId, tuple[TopicPartition, ...]] = {}
    for _ in range(reader.count("standby tasks", 16) or 0):
        task = _read_task(reader)
        standby[task] = tuple(
            TopicPartition(_read_java_text(reader, "the name of a topic"), reader.int32("a partition"))
            for _ in range(reader.count("partitions", 6) or 0)
        )
    topics: dict[int, str] = {}
    for _ in range(reader.count("topics", 6) or 0):
        number = reader.int32("the number of a topic")
        topics[number] = _read_java_text(reader, "the name of a topic")
    hosts, standby_hosts = _read_hosts(reader, topics), _read_hosts(reader, topics)
    error = reader.int32("the error code")
    time = reader.int64("the time of the next rebalance")
    return StreamsAssignmentInfo(active, standby, hosts, standby_hosts, error, time, common)


def _check_version(reader: Reader) -> None:
    version = reader.int32("the version")
    if version != VERSION:
        raise WireError(0, f"version {version}: expected {VERSION}")


def _write_task(out: Writer, task: TaskId) -> None:
    out.int32(task.subtopology)
    out.int32(task.partition)
    # Java writes characters of 16 bits here.
    units = _units(task.topology or "")
    out.int32(len(units) // 2)
    out.write_bytes(units)


def _read_task(reader: Reader) -> TaskId:
    subtopology, partition = reader.int32("a subtopology"), reader.int32("a partition")
    characters = reader.count("characters of the name of a topology", 2) or 0
    start = reader.offset
    units = reader.read_bytes(2 * characters, "the name of a topology")
    return TaskId(subtopology, partition, _of_units(units, start) or None)


def _write_hosts(out: Writer, maps: tuple[Hosts, Hosts]) -> None:
    numbers: dict[str, int] = {}
    for topic, _ in (tp for hosts in maps for partitions in hosts.values() for tp in partitions):
        numbers.setdefault(topic, len(numbers))
    out.int32(len(numbers))
    for topic, number in numbers.items():
        out.int32(number)
        _write_java_text(out, topic)
    for hosts in maps:
        out.int32(len(hosts))
        for address, partitions in hosts.items():
            name, _, port = address.rpartition(":")
            if not port.isdecimal():
                raise WireError(0, f"{address!r}: expected HOST:PORT")
            _write_java_text(out, name)
            out.int32(int(port))
            out.int32(len(partitions))
            for topic, partition in partitions:
                out.int32(numbers[topic])
                out.int32(partition)


def _read_hosts(reader: Reader, topics: Mapping[int, str]) -> dict[str, tuple[TopicPartition, ...]]:
    hosts = {}
    for _ in range(reader.count("hosts", 10) or 0):
        name = _read_java_text(reader, "the name of a host")
        address = f"{name}:{reader.int32('a port')}"
        partitions = []
        for _ in range(reader.count("partitions", 8) or 0):
            start = reader.offset
            number = reader.int32("the number of a topic")
            if number not in topics:
                raise WireError(start, f"topic {number} is not in the dictionary")
            partitions.append(TopicPartition(topics[number], reader.int32("a partition")))
        hosts[address] = tuple(partitions)
    return hosts


def _write_utf8(out: Writer, text: str) -> None:
    try:
        out.nullable_bytes(text.encode())
    except UnicodeEncodeError:
        raise WireError(0, f"{text!r} cannot be written as UTF-8") from None


def _read_utf8(reader: Reader, what: str) -> str:
    start = reader.offset
    try:
        return str(reader.nullable_bytes(what) or b"", "utf-8")
    except UnicodeDecodeError:
        raise WireError(start, f"{what} is not UTF-8") from None


def _units(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _of_units(units: bytes, start: int) -> str:
    try:
        return units.decode("utf-16-be")
    except UnicodeDecodeError as error:
        raise WireError(start + error.start, "characters that do not belong together") from None


def _write_java_text(out: Writer, text: str) -> None:
    """Write a text as Java's `writeUTF` does: each half of a UTF-16 surrogate pair separately, and no byte is 0."""
    halves = "".join(chr(high << 8 | low) for high, low in zip(*[iter(_units(text))] * 2, strict=True))
    written = halves.encode("utf-8", "surrogatepass").replace(b"\0", _NUL)
    if len(written) > _MAX_JAVA_TEXT:
        raise WireError(0, f"a text of {len(written)} bytes, {_MAX_JAVA_TEXT} is the most")
    out.write_bytes(len(written).to_bytes(2, "big") + written)


def _read_java_text(reader: Reader, what: str) -> str:
    size = int.from_bytes(reader.read_bytes(2, f"the length of {what}"), "big")
    start = reader.offset
    written = reader.read_bytes(size, what)
    try:
        halves = written.replace(_NUL, b"\0").decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise WireError(start + error.start, f"{what} is not Java's UTF-8") from None
    return _of_units(_units(halves), start)
