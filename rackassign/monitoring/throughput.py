"""The throughput of each partition, from two samples of the logs.

A log grows by what is appended, in batches as they are sent to readers, unless its old end is deleted
between the two samples, which the first offset shows, or another replica leads: each replica is compacted by itself, so
their sizes may differ by far more than what is written. In these cases the new records are counted, with the average
size of the existing records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from rackassign.admin.describe import describe_log_dirs, list_offsets
from rackassign.model import Partition, TopicPartition
from rackassign.text import name_error

_OFFSETS_S = 10.0
"""Time limit of the requests for the offsets of single topics of a broker."""


class LogSample(NamedTuple):
    """A partition at one moment."""

    # Time of the size request, in seconds of a monotonic clock.
    at_s: float
    size: int
    first: int
    end: int
    broker: int = -1

    def is_continued_by(self, later: LogSample) -> bool:
        """Return whether a later sample is of the same replica, which has lost nothing at its old end since."""
        return self.broker == later.broker and self.first == later.first


@dataclass(frozen=True, slots=True)
class LogSamples:
    """Samples of all partitions that could be read."""

    logs: Mapping[TopicPartition, LogSample]
    # What could not be read, each once.
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Throughput:
    """The throughput of partitions.

    Args:
        bytes_s: Bytes of record batches per second; unknown for missing partitions.
        records_s: Offsets per second; unknown for missing partitions.
        seconds: Time between the samples; the longest, since brokers are sampled one after the other.
        problems: Why some are unknown.
        bytes_written: Bytes of record batches between the samples; unknown for missing partitions.
        sizes: Bytes of the log of each partition at the end.
    """

    bytes_s: Mapping[TopicPartition, float] = field(default_factory=dict)
    records_s: Mapping[TopicPartition, float] = field(default_factory=dict)
    seconds: float = 0.0
    problems: tuple[str, ...] = ()
    bytes_written: Mapping[TopicPartition, float] = field(default_factory=dict)
    sizes: Mapping[TopicPartition, int] = field(default_factory=dict)


def sample_logs(
    admin: KafkaAdminClient,
    topics: Mapping[str, Sequence[Partition]],
    clock: Callable[[], float] = time.monotonic,
) -> LogSamples:
    """Read sizes and offsets from each leader; one that does not respond affects only its own partitions."""
    # `clock`: seconds of a monotonic clock.
    led: dict[int, list[TopicPartition]] = {}
    for topic, row in topics.items():
        for i, partition in enumerate(row):
            if partition.leader is not None:
                led.setdefault(partition.leader, []).append(TopicPartition(topic, i))
    logs: dict[TopicPartition, LogSample] = {}
    problems: list[str] = []
    for broker, tps in sorted(led.items()):
        wanted = {topic: len(topics[topic]) for topic in {tp.topic for tp in tps}}
        try:
            sizes = describe_log_dirs(admin, broker, wanted)
        except KafkaError as error:
            problems.append(f"broker {broker} does not report the sizes of its logs: {name_error(error)}")
            continue
        at_s = clock()
        ends, in_time = _offsets(admin, [tp for tp in tps if tp in sizes], clock)
        if not in_time:
            problems.append(f"broker {broker} does not report the offsets of all its logs in time")
        logs |= {tp: LogSample(at_s, sizes[tp], *end, broker) for tp, end in ends.items()}
        if not sizes.keys() >= set(tps):
            problems.append(f"broker {broker} does not report the sizes of its logs, perhaps Describe on it is missing")
    return LogSamples(logs, tuple(problems))


def _offsets(
    admin: KafkaAdminClient, tps: Sequence[TopicPartition], clock: Callable[[], float]
) -> tuple[dict[TopicPartition, tuple[int, int]], bool]:
    """Return the offsets of partitions that have them, and whether all were requested.

    A deleted topic must not prevent those of the others, so after an error each topic has a request of its own. Those
    have a time limit in all: each request to a broker that hangs takes seconds, and a broker leads hundreds of topics.
    """
    with suppress(KafkaError):
        return list_offsets(admin, tps), True
    by_topic: dict[str, list[TopicPartition]] = {}
    for tp in tps:
        by_topic.setdefault(tp.topic, []).append(tp)
    offsets: dict[TopicPartition, tuple[int, int]] = {}
    until = clock() + _OFFSETS_S
    for alike in by_topic.values() if len(by_topic) > 1 else ():
        if clock() > until:
            return offsets, False
        with suppress(KafkaError):
            offsets |= list_offsets(admin, alike)
    return offsets, True


def compute_throughput(before: LogSamples, after: LogSamples, problems: Iterable[str] = ()) -> Throughput:
    """Compute the throughput from two samples; `problems` are what else could not be read."""
    bytes_s: dict[TopicPartition, float] = {}
    bytes_written: dict[TopicPartition, float] = {}
    records_s: dict[TopicPartition, float] = {}
    longest = 0.0
    for tp, now in after.logs.items():
        then = before.logs.get(tp)
        if then is None or now.at_s <= then.at_s:
            continue
        seconds = now.at_s - then.at_s
        longest = max(longest, seconds)
        came = max(0, now.end - then.end)
        records_s[tp] = came / seconds
        grown = _grown(then, now, came)
        if grown is not None:
            bytes_s[tp], bytes_written[tp] = grown / seconds, grown
    odd = tuple(dict.fromkeys((*before.problems, *after.problems, *problems)))
    sizes = {tp: log.size for tp, log in after.logs.items()}
    return Throughput(bytes_s, records_s, longest, odd, bytes_written, sizes)


def record_size(then: LogSample, now: LogSample) -> float:
    """Return the bytes of a record: of those that were written between two samples, if any were, else of all.

    A log that is compacted has fewer records than offsets, and the first offset of a tiered one is that of its remote
    part. So the size of all of them by their number may be far too small.
    """
    came, grown, held = now.end - then.end, now.size - then.size, now.end - now.first
    if came > 0 and grown > 0 and then.is_continued_by(now):
        return grown / came
    return now.size / held if held else 0.0


def _grown(then: LogSample, now: LogSample, came: int) -> float | None:
    """Return the bytes written; None if no records are left to estimate it from."""
    grown = now.size - then.size
    # A log may shrink for another reason: compaction.
    if then.is_continued_by(now) and grown >= 0:
        return grown
    held = now.end - now.first
    if not held:
        return None if came else 0.0
    return came * now.size / held
