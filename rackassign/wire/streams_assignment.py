"""User data that the leader of a Kafka Streams group writes into an assignment: tasks, and the tasks of other hosts.

=======  ==========================================================================================
version  fields, in this order
=======  ==========================================================================================
1        version (32 bits), active tasks, standby tasks each with its partitions by name of topic
2        for each host its active partitions, by name of topic
3        the newest version that all members support, after the version
4        an error code at the end
5        a dictionary of topics before the hosts, whose partitions then refer to topics by number
6        for each host its standby partitions, in the form of version 5
7        the time of the next rebalance, in milliseconds; the largest number for none
10       the name of the topology after each task
=======  ==========================================================================================

The i-th active task belongs to the i-th partition of the assignment. Names of topics and hosts are encoded as Java's
`DataOutputStream` does: UTF-8 with exceptions, after their length in 16 bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rackassign.errors import WireError
from rackassign.model import TopicPartition
from rackassign.wire.primitives import Reader, Writer
from rackassign.wire.streams_subscription import NEWEST_STREAMS, TaskId

NO_REBALANCE = 2**63 - 1
"""Value of the time if no rebalance is scheduled."""

_HAS_HOSTS, _HAS_COMMON, _HAS_ERROR, _HAS_TOPICS, _HAS_STANDBYS, _HAS_TIME, _HAS_NAMES = 2, 3, 4, 5, 6, 7, 10
_LONGEST_JAVA_TEXT = 2**16 - 1
_NUL = b"\xc0\x80"

Hosts = Mapping[str, tuple[TopicPartition, ...]]
"""Partitions by `host:port`."""


@dataclass(frozen=True, slots=True)
class StreamsAssignmentInfo:
    """Information for a member about its assignment.

    Args:
        active: Active tasks, in the order of the assigned partitions.
        standby: Standby tasks, with their partitions.
        partitions_by_host: Active partitions of each host.
        standby_hosts: Standby partitions of each host.
        error: Error code.
        next_rebalance_ms: Time at which the member is to rejoin; `NO_REBALANCE` for never.
        version: Version to encode, from 1.
        common: The newest version that all members support; -1 if it is not encoded, before version 3.
    """

    active: tuple[TaskId, ...] = ()
    standby: Mapping[TaskId, tuple[TopicPartition, ...]] = field(default_factory=dict)
    partitions_by_host: Hosts = field(default_factory=dict)
    standby_hosts: Hosts = field(default_factory=dict)
    error: int = 0
    next_rebalance_ms: int = NO_REBALANCE
    version: int = NEWEST_STREAMS
    common: int = NEWEST_STREAMS


def encode_streams_assignment(info: StreamsAssignmentInfo) -> bytes:
    """Encode information for a member, in the given order; fields that the version lacks are omitted.

    Raises:
        WireError: The version does not exist, or a value does not fit it.
    """
    version = info.version
    _check(version)
    out = Writer()
    out.int32(version)
    if version >= _HAS_COMMON:
        out.int32(info.common)
    out.int32(len(info.active))
    for task in info.active:
        _write_task(out, task, version)
    out.int32(len(info.standby))
    for task, tps in info.standby.items():
        _write_task(out, task, version)
        _write_tps(out, tps, None)
    _write_hosts(out, info, version)
    if version >= _HAS_ERROR:
        out.int32(info.error)
    if version >= _HAS_TIME:
        out.int64(info.next_rebalance_ms)
    return out.done()


def decode_streams_assignment(data: bytes) -> StreamsAssignmentInfo:
    """Decode information for a member.

    Raises:
        WireError: The bytes have another format, or an unknown version.
    """
    reader = Reader(data)
    version = reader.int32("the version")
    _check(version)
    common = reader.int32("the version all know") if version >= _HAS_COMMON else -1
    smallest = 12 if version >= _HAS_NAMES else 8
    active = tuple(_read_task(reader, version) for _ in range(reader.count("active tasks", smallest) or 0))
    standby: dict[TaskId, tuple[TopicPartition, ...]] = {}
    for _ in range(reader.count("standby tasks", smallest + 4) or 0):
        task = _read_task(reader, version)
        standby[task] = _read_tps(reader, None)
    topics = None
    if version >= _HAS_TOPICS:
        topics = {}
        for _ in range(reader.count("topics", 6) or 0):
            number = reader.int32("the number of a topic")
            topics[number] = _read_text(reader, "the name of a topic")
    hosts = _read_hosts(reader, topics) if version >= _HAS_HOSTS else {}
    standby_hosts = _read_hosts(reader, topics) if version >= _HAS_STANDBYS else {}
    error = reader.int32("the error code") if version >= _HAS_ERROR else 0
    time = reader.int64("the time of the next rebalance") if version >= _HAS_TIME else NO_REBALANCE
    return StreamsAssignmentInfo(active, standby, hosts, standby_hosts, error, time, version, common)


def _check(version: int) -> None:
    if not 1 <= version <= NEWEST_STREAMS:
        raise WireError(0, f"version {version}: expected 1 to {NEWEST_STREAMS}")


def _write_task(out: Writer, task: TaskId, version: int) -> None:
    out.int32(task.subtopology)
    out.int32(task.partition)
    if version < _HAS_NAMES:
        if task.topology is not None:
            raise WireError(0, f"version {version} has no room for the name of a topology")
        return
    # Java writes characters of 16 bits here.
    units = _units(task.topology or "")
    out.int32(len(units) // 2)
    out.write_bytes(units)


def _read_task(reader: Reader, version: int) -> TaskId:
    group, partition = reader.int32("a subtopology"), reader.int32("a partition")
    if version < _HAS_NAMES:
        return TaskId(group, partition)
    characters = reader.count("characters of the name of a topology", 2) or 0
    start = reader.offset
    units = reader.read_bytes(2 * characters, "the name of a topology")
    return TaskId(group, partition, _of_units(units, start) or None)


def _write_tps(out: Writer, tps: Iterable[TopicPartition], numbers: Mapping[str, int] | None) -> None:
    listed = list(tps)
    out.int32(len(listed))
    for topic, partition in listed:
        if numbers is None:
            _write_text(out, topic)
        else:
            out.int32(numbers[topic])
        out.int32(partition)


def _read_tps(reader: Reader, topics: Mapping[int, str] | None) -> tuple[TopicPartition, ...]:
    found = []
    for _ in range(reader.count("partitions", 6 if topics is None else 8) or 0):
        if topics is None:
            topic = _read_text(reader, "the name of a topic")
        else:
            start = reader.offset
            number = reader.int32("the number of a topic")
            if number not in topics:
                raise WireError(start, f"topic {number} is not in the dictionary")
            topic = topics[number]
        found.append(TopicPartition(topic, reader.int32("a partition")))
    return tuple(found)


def _write_hosts(out: Writer, info: StreamsAssignmentInfo, version: int) -> None:
    if version < _HAS_HOSTS:
        return
    maps = (info.partitions_by_host, info.standby_hosts) if version >= _HAS_STANDBYS else (info.partitions_by_host,)
    numbers: dict[str, int] | None = None
    if version >= _HAS_TOPICS:
        numbers = {}
        for topic, _ in (tp for hosts in maps for tps in hosts.values() for tp in tps):
            numbers.setdefault(topic, len(numbers))
        out.int32(len(numbers))
        for topic, number in numbers.items():
            out.int32(number)
            _write_text(out, topic)
    for hosts in maps:
        out.int32(len(hosts))
        for address, tps in hosts.items():
            name, _, port = address.rpartition(":")
            if not port.isdecimal():
                raise WireError(0, f"{address!r}: expected HOST:PORT")
            _write_text(out, name)
            out.int32(int(port))
            _write_tps(out, tps, numbers)


def _read_hosts(reader: Reader, topics: Mapping[int, str] | None) -> dict[str, tuple[TopicPartition, ...]]:
    found = {}
    for _ in range(reader.count("hosts", 10) or 0):
        name = _read_text(reader, "the name of a host")
        address = f"{name}:{reader.int32('a port')}"
        found[address] = _read_tps(reader, topics)
    return found


def _units(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _of_units(units: bytes, start: int) -> str:
    try:
        return units.decode("utf-16-be")
    except UnicodeDecodeError as error:
        raise WireError(start + error.start, "characters that do not belong together") from None


def _write_text(out: Writer, text: str) -> None:
    """Write a text as Java's `writeUTF` does: each half of a UTF-16 surrogate pair separately, and no byte is 0."""
    halves = "".join(chr(high << 8 | low) for high, low in zip(*[iter(_units(text))] * 2, strict=True))
    written = halves.encode("utf-8", "surrogatepass").replace(b"\0", _NUL)
    if len(written) > _LONGEST_JAVA_TEXT:
        raise WireError(0, f"a text of {len(written)} bytes, {_LONGEST_JAVA_TEXT} is the most")
    out.write_bytes(len(written).to_bytes(2, "big") + written)


def _read_text(reader: Reader, what: str) -> str:
    size = int.from_bytes(reader.read_bytes(2, f"the length of {what}"), "big")
    start = reader.offset
    written = reader.read_bytes(size, what)
    try:
        halves = written.replace(_NUL, b"\0").decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise WireError(start + error.start, f"{what} is not Java's UTF-8") from None
    return _of_units(_units(halves), start)
