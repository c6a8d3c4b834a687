"""What a group reads of each partition, from what is written and from its committed offsets.

A group that keeps up reads what is written, which the sizes of the logs show exactly. Of a group that does not, its
committed offsets show what it reads: less while it falls behind, more while it catches up. Committed offsets are the
coarser measure, because members commit only from time to time (every 5 s by default) and offsets have no size. So they
are used only where they show something else than what is written.

What was read counts by the time between the samples: a group that has read all there was, however fast, does not go on
at that pace. A group that is still behind goes on, and of the time between its commits it is known what it has read.

A measurement takes two samples of the logs, and committed offsets in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from rackassign.admin.groups import GroupAdmin
from rackassign.model import TopicPartition
from rackassign.monitoring.throughput import (
    LogSample,
    LogSamples,
    Throughput,
    compute_throughput,
    record_size,
    sample_logs,
)
from rackassign.monitoring.traffic import ObservedCluster
from rackassign.text import describe_error
from rackassign.util.callbacks import Progress, ProgressCallback, ignore_progress

KEEPS_UP_S = 30.0
"""A group that is behind by less than what is written in this time may just not have committed yet."""

_ALIKE = 2.0
"""A group that reads between half and twice of what is written, and is hardly behind, keeps up."""

MeasuredBy = Literal["written", "committed", "both"]
"""Whether bytes are those that are written, or those that committed offsets advanced by, or this depends on the
partition."""


class CommitSample(NamedTuple):
    """The committed offsets of a group at one moment."""

    # Time of the request, in seconds of a monotonic clock.
    at_s: float
    # Committed offsets; partitions without one are missing.
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class ReadRates:
    """What a group reads of the partitions that are assigned to it, and its lag.

    Args:
        bytes_s: Bytes of record batches per second; unknown for missing partitions.
        bytes_read: Bytes of record batches between the first and the last sample; unknown for missing partitions.
        lag: Records between the committed offset and the end of the log, also of partitions that no member has; unknown
            for missing partitions, of which nothing is committed.
        by_commits: Partitions whose rate is computed from committed offsets; of all others it is what is written.
        not_committed: Whether the group lags, and committed nothing at all between the samples.
        written_s: Bytes per second that are written to all of these partitions, as far as it is known.
        lag_growth: Records by which the lag has grown between the samples, of partitions that are read and of which the
            group does not keep up; less than 0 if it catches up.
        unowned_s: Bytes per second that are written to partitions that no member has, and of which offsets are
            committed all the same: consumers read them that assign partitions to themselves.
    """

    bytes_s: Mapping[TopicPartition, float] = field(default_factory=dict)
    bytes_read: Mapping[TopicPartition, float] = field(default_factory=dict)
    lag: Mapping[TopicPartition, int] = field(default_factory=dict)
    by_commits: frozenset[TopicPartition] = frozenset()
    not_committed: bool = False
    written_s: float = 0.0
    lag_growth: int = 0
    unowned_s: Mapping[TopicPartition, float] = field(default_factory=dict)

    @property
    def measured_by(self) -> MeasuredBy | None:
        """Return what the rates are computed from; None if there are none."""
        if not self.bytes_s:
            return None
        if not self.by_commits:
            return "written"
        return "committed" if self.by_commits >= self.bytes_s.keys() else "both"

    @property
    def catches_up(self) -> bool:
        """Return whether much more is read than is written, which ends when the group has caught up."""
        # A snapshot does not have the lag.
        return self.total_lag != 0 and bool(self.by_commits) and sum(self.bytes_s.values()) > _ALIKE * self.written_s

    @property
    def total_lag(self) -> int | None:
        """Return the lag of all partitions together; None if it is unknown of each."""
        return sum(self.lag.values()) if self.lag else None


def read_rates(
    tps: Sequence[TopicPartition],
    written: Throughput,
    before: LogSamples,
    after: LogSamples,
    commits: Sequence[CommitSample] = (),
) -> ReadRates:
    """Compute what a group reads."""
    bytes_s, bytes_read, lag, by_commits = {}, {}, {}, set()
    idle = active = False
    growth = 0
    committed = commits[-1].offsets if commits else {}
    moves = {tp: _moves(tp, before.logs[tp], commits) for tp in tps if tp in before.logs and tp in after.logs}
    reading_on = any(
        _is_reading_on(moved, _lag(after.logs[tp], committed[tp]), written.records_s.get(tp, 0.0), commits[-1].at_s)
        for tp, moved in moves.items()
        if tp in committed
    )
    between = _first_and_last_commit(commits) if reading_on else (0.0, 0.0)
    unowned_s = {}
    # Partitions without a reader lag most.
    for tp in sorted((committed.keys() & after.logs.keys()).difference(tps)):
        lag[tp] = _lag(after.logs[tp], committed[tp])
        if tp in written.bytes_s and _moves(tp, before.logs[tp], commits):
            # Such a consumer, as that of a Flink job, commits once in a minute, so one commit is no rate.
            unowned_s[tp] = written.bytes_s[tp]
    for tp in tps:
        if tp in written.bytes_s:
            bytes_s[tp], bytes_read[tp] = written.bytes_s[tp], written.bytes_written[tp]
        offsets = [sample.offsets[tp] for sample in commits if tp in sample.offsets]
        if tp not in moves or len(offsets) < 2:  # noqa: PLR2004 - the first and the last
            continue
        progress = _progress(
            before.logs[tp],
            after.logs[tp],
            (offsets[0], offsets[-1]),
            moves[tp],
            commits[-1].at_s - commits[0].at_s,
            between,
        )
        active = active or progress.commits > 0
        lag[tp] = progress.lag
        records_s = written.records_s.get(tp)
        if records_s is None or progress.keeps_up(records_s, written.seconds):
            continue
        by_commits.add(tp)
        bytes_s[tp], bytes_read[tp] = progress.records_s * progress.size, progress.records * progress.size
        idle = idle or records_s > 0
        # More members do not help a partition on which its reader is stuck.
        growth += progress.lag - progress.lag_before if progress.records else 0
    written_s = sum(written.bytes_s.get(tp, 0.0) for tp in tps)
    idle = idle and not active
    return ReadRates(bytes_s, bytes_read, lag, frozenset(by_commits), idle, written_s, growth, unowned_s)


class _Progress(NamedTuple):
    """What commits show of one partition."""

    lag_before: int
    lag: int
    records: int
    # The same per second.
    records_s: float
    commits: int
    size: float

    def keeps_up(self, written_s: float, seconds: float) -> bool:
        """Return whether a group that keeps up could have committed this."""
        # `written_s`: records that are written per second.
        behind = max(self.lag_before, self.lag)
        if behind <= written_s * seconds:
            return True
        if behind > written_s * KEEPS_UP_S:
            return False
        # A single commit of a group that keeps up contains all that was written since the one before it, and that is at
        # least half of the time between the samples, since otherwise there would have been a second one.
        return not self.commits or written_s / _ALIKE <= self.records_s <= written_s * _ALIKE


def _first_and_last_commit(commits: Sequence[CommitSample]) -> tuple[float, float]:
    """Return when the group was first and last seen to have committed something."""
    times = [
        now.at_s
        for then, now in pairwise(commits)
        if any(offset > then.offsets.get(tp, offset) for tp, offset in now.offsets.items())
    ]
    return (times[0], times[-1]) if times else (0.0, 0.0)


class _Move(NamedTuple):
    """An advance of a committed offset, seen between two samples: their times, and its records."""

    since_s: float
    at_s: float
    records: int


def _moves(tp: TopicPartition, log: LogSample, commits: Sequence[CommitSample]) -> list[_Move]:
    seen = [(sample.at_s, sample.offsets[tp]) for sample in commits if tp in sample.offsets]
    # An offset that was reset to an earlier one is no progress, and what was deleted cannot be read. After the reset
    # records are read again, so this is the sum of the steps forwards, and not the distance of the last from the first.
    return [
        _Move(since_s, at_s, max(0, offset - max(old, log.first)))
        for (since_s, old), (at_s, offset) in pairwise(seen)
        if offset > old
    ]


def _is_reading_on(moves: Sequence[_Move], lag: int, written_s: float, end_s: float) -> bool:
    """Return whether a partition was behind at its last commit, and may be read since."""
    # What is written later is no lag of that moment. A partition without commits may have been paused.
    return bool(moves) and end_s - moves[-1].at_s <= KEEPS_UP_S and lag > written_s * (end_s - moves[-1].since_s)


def _progress(  # noqa: PLR0917 - called in one place
    before: LogSample,
    after: LogSample,
    committed: tuple[int, int],
    moves: Sequence[_Move],
    seconds: float,
    between: tuple[float, float],
) -> _Progress:
    """Return what commits show of a partition: of the time between its commits, or the group's, or the samples."""
    size = record_size(before, after)
    records = sum(move.records for move in moves)
    began, ended = between
    if ended > began and len(moves) > 1:
        # The time between two commits is known better than how long ago the first one was.
        records_s = sum(move.records for move in moves[1:]) / (moves[-1].at_s - moves[0].at_s)
    elif ended > began:
        # A member that reads its partitions one after the other commits in turn.
        records_s = records / (ended - began) if moves and moves[0].at_s > began else 0.0
    else:
        records_s = records / seconds if seconds > 0 else 0.0
    return _Progress(_lag(before, committed[0]), _lag(after, committed[1]), records, records_s, len(moves), size)


def _lag(log: LogSample, committed: int) -> int:
    return max(0, log.end - max(committed, log.first))


_STEP_S = 1.0
"""Shortest time between two samples of committed offsets."""

_SHARE = 0.1
"""Longest part of the interval that requests for committed offsets may take: of hundreds of groups they take long."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was seen of the logs and of the groups that read them."""

    written: Throughput = field(default_factory=Throughput)
    before: LogSamples = field(default_factory=lambda: LogSamples({}))
    after: LogSamples = field(default_factory=lambda: LogSamples({}))
    commits: Mapping[str, Sequence[CommitSample]] = field(default_factory=dict)

    def of_group(self, name: str, tps: Iterable[TopicPartition]) -> ReadRates:
        """Return what a group reads of the partitions that are assigned to it."""
        return read_rates(tuple(tps), self.written, self.before, self.after, self.commits.get(name, ()))


@dataclass(frozen=True, slots=True)
class LastSamples:
    """The samples that ended a measurement."""

    # Samples of the logs; None before the first measurement.
    logs: LogSamples | None = None
    commits: Mapping[str, CommitSample] = field(default_factory=dict)


class RateMeter:
    """Measures repeatedly, each time since the last measurement."""

    def __init__(
        self,
        admin: KafkaAdminClient,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        # `admin`: admin client that is not used by another thread meanwhile.
        # `clock`: seconds of a monotonic clock.
        self.admin = admin
        """The admin client, which may be replaced between two measurements."""
        self._clock = clock
        self._sleep = sleep
        self.last = LastSamples()
        """The samples with which the next measurement begins; set it back to measure the same time again."""

    def measure(
        self,
        cluster: ObservedCluster,
        groups: Sequence[str],
        interval_s: float,
        report_progress: ProgressCallback = ignore_progress,
        on_sample: Callable[[], None] = lambda: None,
    ) -> Measurement:
        """Measure topics and groups; the first measurement takes two samples."""
        calls = GroupAdmin(self.admin)
        before = self.last.logs or sample_logs(self.admin, cluster.topology.topics, self._clock)
        on_sample()
        commits, problems = self._sample(calls, [name for name in groups if name not in self.last.commits])
        samples = {name: [sample] for name, sample in {**self.last.commits, **commits}.items() if name in groups}
        behind = [name for name, (sample,) in samples.items() if _is_behind(before, sample)]
        begin = asked = self._clock()
        pause = _STEP_S
        while (passed := self._clock() - begin) < interval_s:
            report_progress(Progress("Measuring what is written and read", int(passed), round(interval_s), unit=""))
            self._sleep(min(_STEP_S, interval_s - passed))
            now = self._clock()
            # The last sample follows at once.
            if behind and now - asked >= pause and now - begin < interval_s:
                some, _ = self._sample(calls, behind)
                for name, sample in some.items():
                    samples[name].append(sample)
                asked = self._clock()
                pause = max(_STEP_S, (asked - now) / _SHARE)
        after = sample_logs(self.admin, cluster.topology.topics, self._clock)
        on_sample()
        commits_after, problems_after = self._sample(calls, groups)
        self.last = LastSamples(after, commits_after)
        for name, sample in commits_after.items():
            samples.setdefault(name, []).append(sample)
        written = compute_throughput(before, after, (*problems, *problems_after))
        return Measurement(written, before, after, samples)

    def _sample(self, calls: GroupAdmin, groups: Iterable[str]) -> tuple[dict[str, CommitSample], list[str]]:
        """Read committed offsets; return them and what could not be read."""
        samples: dict[str, CommitSample] = {}
        problems: list[str] = []
        for name in groups:
            at_s = self._clock()
            try:
                samples[name] = CommitSample(at_s, calls.committed_offsets(name))
            except KafkaError as error:
                problems.append(f"{name}: its committed offsets are not known: {describe_error(error)}")
        return samples, problems


def _is_behind(logs: LogSamples, sample: CommitSample) -> bool:
    return any(tp in logs.logs and logs.logs[tp].end > offset for tp, offset in sample.offsets.items())
