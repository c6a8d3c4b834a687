"""Measurement of what groups read: two samples of the logs, and committed offsets in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from rackassign.admin.groups import GroupAdmin
from rackassign.model import TopicPartition
from rackassign.monitoring.cluster import ObservedCluster
from rackassign.monitoring.read_rates import CommitSample, ReadRates, read_rates
from rackassign.monitoring.throughput import LogSamples, Throughput, compute_throughput, sample_logs
from rackassign.util.progress import Progress, ProgressCallback, ignore_progress
from rackassign.util.text import describe_error

_STEP_S = 1.0
"""Shortest time between two samples of committed offsets."""

_SHARE = 0.1
"""Longest part of the interval that requests for committed offsets may take: of hundreds of groups they take long."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was seen of the logs and of the groups that read them.

    Args:
        written: Throughput of the topics.
        before: The first sample of the logs.
        after: The last one.
        commits: Samples of committed offsets by group.
    """

    written: Throughput = field(default_factory=Throughput)
    before: LogSamples = field(default_factory=lambda: LogSamples({}))
    after: LogSamples = field(default_factory=lambda: LogSamples({}))
    commits: Mapping[str, Sequence[CommitSample]] = field(default_factory=dict)

    def of_group(self, name: str, tps: Iterable[TopicPartition]) -> ReadRates:
        """Return what a group reads of the partitions that are assigned to it."""
        return read_rates(tuple(tps), self.written, self.before, self.after, self.commits.get(name, ()))


@dataclass(frozen=True, slots=True)
class LastSamples:
    """The samples that ended a measurement.

    Args:
        logs: Samples of the logs; None before the first measurement.
        commits: Samples of committed offsets by group.
    """

    logs: LogSamples | None = None
    commits: Mapping[str, CommitSample] = field(default_factory=dict)


class RateMeter:
    """Measures repeatedly, each time since the last measurement.

    Args:
        admin: Admin client that is not used by another thread meanwhile.
        clock: Seconds of a monotonic clock.
        sleep: Waits for some seconds.
    """

    def __init__(
        self,
        admin: KafkaAdminClient,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
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
    ) -> Measurement:
        """Measure topics and groups; the first measurement takes two samples.

        Args:
            cluster: Cluster with all topics of the groups.
            groups: Names of the groups.
            interval_s: Time between two measurements.
            report_progress: Called with the progress.
        """
        calls = GroupAdmin(self.admin)
        before = self.last.logs or sample_logs(self.admin, cluster.topology.topics, self._clock)
        commits, problems = self._sample(calls, [name for name in groups if name not in self.last.commits])
        seen = {name: [sample] for name, sample in {**self.last.commits, **commits}.items() if name in groups}
        behind = [name for name, (sample,) in seen.items() if _is_behind(before, sample)]
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
                    seen[name].append(sample)
                asked = self._clock()
                pause = max(_STEP_S, (asked - now) / _SHARE)
        after = sample_logs(self.admin, cluster.topology.topics, self._clock)
        commits_after, problems_after = self._sample(calls, groups)
        self.last = LastSamples(after, commits_after)
        for name, sample in commits_after.items():
            seen.setdefault(name, []).append(sample)
        written = compute_throughput(before, after, (*problems, *problems_after))
        return Measurement(written, before, after, seen)

    def _sample(self, calls: GroupAdmin, groups: Iterable[str]) -> tuple[dict[str, CommitSample], list[str]]:
        """Read committed offsets; return them and what could not be read."""
        found: dict[str, CommitSample] = {}
        problems: list[str] = []
        for name in groups:
            at_s = self._clock()
            try:
                found[name] = CommitSample(at_s, calls.committed_offsets(name))
            except KafkaError as error:
                problems.append(f"{name}: its committed offsets are not known: {describe_error(error)}")
        return found, problems


def _is_behind(logs: LogSamples, sample: CommitSample) -> bool:
    return any(tp in logs.logs and logs.logs[tp].end > offset for tp, offset in sample.offsets.items())
