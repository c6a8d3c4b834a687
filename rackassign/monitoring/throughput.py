"""How much is written to each partition a second, from two looks at the logs.

A group that keeps up reads what is written, so this is what it will go on to read; what a group that lags reads now is
more, and passes. A log grows by what is appended, batches as they are sent to readers, unless its old end is deleted
between the two looks, which the first offset shows; then the records that came are counted, with the size that
the records there are have on average.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from rackassign.admin.cluster import describe_log_dirs, list_offsets
from rackassign.errors import RackassignError
from rackassign.model import TopicPartition
from rackassign.monitoring.cluster import ObservedCluster


class LogSample(NamedTuple):
    """A partition at one moment.

    Args:
        at_s: When the size was asked for, in seconds of a clock that only goes forward.
        size: Bytes on its leader's disks.
        first: The first offset there.
        end: The offset behind the last.
    """

    at_s: float
    size: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class LogSamples:
    """All partitions that could be looked at.

    Args:
        logs: By partition.
        problems: What could not be asked, each named once.
    """

    logs: Mapping[TopicPartition, LogSample]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Throughput:
    """What is written.

    Args:
        bytes_s: Bytes of record batches a second; a partition that is missing is not known.
        records_s: Offsets a second, likewise.
        seconds: Between the looks.
        problems: Why some are not known.
    """

    bytes_s: Mapping[TopicPartition, float] = field(default_factory=dict)
    records_s: Mapping[TopicPartition, float] = field(default_factory=dict)
    seconds: float = 0.0
    problems: tuple[str, ...] = ()


def sample_logs(
    admin: KafkaAdminClient, cluster: ObservedCluster, clock: Callable[[], float] = time.monotonic
) -> LogSamples:
    """Ask each leader for the sizes and offsets of what it leads; one that does not answer costs its own alone.

    Args:
        admin: To ask with.
        cluster: Whose topics are wanted.
        clock: Seconds, only forward.
    """
    topics = cluster.topology.topics
    led: dict[int, list[TopicPartition]] = {}
    for topic, row in topics.items():
        for i, partition in enumerate(row):
            if partition.leader is not None:
                led.setdefault(partition.leader, []).append(TopicPartition(topic, i))
    logs: dict[TopicPartition, LogSample] = {}
    problems: list[str] = []
    for broker, places in sorted(led.items()):
        wanted = {topic: len(topics[topic]) for topic in {place.topic for place in places}}
        try:
            sizes = describe_log_dirs(admin, broker, wanted)
        except KafkaError as error:
            problems.append(f"broker {broker} does not tell the sizes of its logs: {_why(error)}")
            continue
        at_s = clock()
        ends = _offsets(admin, [place for place in places if place in sizes])
        logs |= {place: LogSample(at_s, sizes[place], *end) for place, end in ends.items()}
        if not sizes.keys() >= set(places):
            problems.append(f"broker {broker} does not tell the sizes of its logs, perhaps for want of Describe on it")
    return LogSamples(logs, tuple(problems))


def _why(error: KafkaError) -> str:
    """Say what is missing where we know it; what the host adds to the names of its errors is long."""
    return str(error) if isinstance(error, RackassignError) else type(error).__name__


def _offsets(admin: KafkaAdminClient, places: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Return the offsets of those that tell: a topic that is gone by now must not cost the others theirs."""
    try:
        return list_offsets(admin, places)
    except KafkaError:
        by_topic: dict[str, list[TopicPartition]] = {}
        for place in places:
            by_topic.setdefault(place.topic, []).append(place)
        if len(by_topic) <= 1:
            return {}
        return {place: end for alike in by_topic.values() for place, end in _offsets(admin, alike).items()}


def compute_throughput(before: LogSamples, after: LogSamples) -> Throughput:
    """Compare two looks."""
    bytes_s: dict[TopicPartition, float] = {}
    records_s: dict[TopicPartition, float] = {}
    longest = 0.0
    for place, now in after.logs.items():
        then = before.logs.get(place)
        if then is None or now.at_s <= then.at_s:
            continue
        seconds = now.at_s - then.at_s
        longest = max(longest, seconds)
        came = max(0, now.end - then.end)
        records_s[place] = came / seconds
        grown = _grown(then, now, came)
        if grown is not None:
            bytes_s[place] = grown / seconds
    return Throughput(bytes_s, records_s, longest, tuple(dict.fromkeys(before.problems + after.problems)))


def _grown(then: LogSample, now: LogSample, came: int) -> float | None:
    """Return the bytes that came; None if nothing is left of them to tell by."""
    grown = now.size - then.size
    # It may shrink for other reasons: it was compacted, or is led by a broker that has compacted more of it.
    if now.first == then.first and grown >= 0:
        return grown
    held = now.end - now.first
    if not held:
        return None if came else 0.0
    return came * now.size / held
