"""What a group reads, from what is written and from its committed offsets.

The measurement of what groups read: which samples are taken, and when.

Samples of logs: what a broker that hangs costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError, RequestTimedOutError

from rackassign.model import TopicPartition
from rackassign.monitoring import throughput
from rackassign.monitoring.read_rates import CommitSample, RateMeter, ReadRates, read_rates
from rackassign.monitoring.throughput import LogSample, LogSamples, compute_throughput, record_size
from tests.helpers.builders import cluster

TP = TopicPartition("t", 0)

SIZE = 100
"""Bytes of a record."""


def rates(
    ends: tuple[int, int], committed: Sequence[tuple[float, int | None]], *, first: int = 0, seconds: float = 10.0
) -> ReadRates:
    """Return the rates of a partition with these end offsets and commits, seen at these times."""
    before, after = (
        LogSamples({TP: LogSample(at_s, SIZE * (end - first), first, end)})
        for at_s, end in zip((0.0, seconds), ends, strict=True)
    )
    commits = [CommitSample(at_s, {} if offset is None else {TP: offset}) for at_s, offset in committed]
    return read_rates([TP], compute_throughput(before, after), before, after, commits)


@pytest.mark.parametrize(
    "committed",
    [
        pytest.param([(0.0, 9_990), (10.0, 19_990)], id="at each poll"),
        pytest.param([(0.0, 6_000), (2.0, 11_500), (7.0, 16_500), (10.0, 16_500)], id="every 5 s"),
        pytest.param([(0.0, 0), (10.0, 0)], id="less often than it is measured"),
        pytest.param([(0.0, 0), (4.0, 14_000), (10.0, 14_000)], id="every 14 s"),
        pytest.param([(0.0, None), (10.0, None)], id="never"),
        pytest.param([], id="not known"),
    ],
)
def test_a_group_that_keeps_up_reads_what_is_written(committed: list[tuple[float, int | None]]) -> None:
    found = rates((10_000, 20_000), committed)
    assert (found.bytes_s, found.bytes_read) == ({TP: 1000.0 * SIZE}, {TP: 10_000.0 * SIZE})
    assert (found.by_commits, found.measured_by) == (frozenset(), "written")


def test_a_group_that_lags_reads_what_it_commits() -> None:
    found = rates((100_000, 110_000), [(0.0, 500), (5.0, 525), (10.0, 550)])
    assert (found.bytes_s, found.bytes_read) == ({TP: 5.0 * SIZE}, {TP: 50.0 * SIZE})
    assert (found.measured_by, found.lag, found.total_lag) == ("committed", {TP: 109_450}, 109_450)
    assert not found.catches_up
    assert not found.not_committed


def test_the_lag_grows_of_a_group_that_reads_less_than_is_written_and_is_not_merely_stuck() -> None:
    assert rates((100_000, 110_000), [(0.0, 500), (5.0, 525), (10.0, 550)]).lag_growth == 9_950
    assert rates((100_000, 101_000), [(0.0, 500), (5.0, 2_525), (10.0, 5_550)]).lag_growth == -4_050
    assert rates((100_000, 110_000), [(0.0, 500), (5.0, 500), (10.0, 500)]).lag_growth == 0
    assert rates((10_000, 20_000), [(0.0, 9_990), (10.0, 19_000)]).lag_growth == 0


def test_a_group_that_has_just_begun_to_lag_reads_what_it_commits() -> None:
    # It has run for 12 s, so it is behind by less than groups that commit seldom are.
    found = rates((12_000, 22_000), [(0.0, 60), (10.0, 110)])
    assert found.bytes_s == {TP: 5.0 * SIZE}


def test_the_time_between_two_commits_counts_and_not_the_one_between_two_samples() -> None:
    # A commit every 6 s of what was read in 6 s: in 10 s there are one or two of them.
    found = rates((100_000, 110_000), [(0.0, 0), (1.0, 600), (6.0, 600), (7.0, 1200), (10.0, 1200)])
    assert found.bytes_s == {TP: 100.0 * SIZE}
    assert found.bytes_read == {TP: 1200.0 * SIZE}


@pytest.mark.parametrize(("committed", "reads"), [((0, 15_000), True), ((500, 500), False), ((500, 0), False)])
def test_a_consumer_that_assigns_itself_reads_what_is_written_if_it_commits(
    committed: tuple[int, int],
    reads: bool,  # noqa: FBT001
) -> None:
    before, after = (
        LogSamples({TP: LogSample(at_s, SIZE * end, 0, end)}) for at_s, end in ((0.0, 10_000), (10.0, 20_000))
    )
    commits = [CommitSample(at_s, {TP: offset}) for at_s, offset in zip((0.0, 10.0), committed, strict=True)]
    found = read_rates([], compute_throughput(before, after), before, after, commits)
    assert found.unowned_s == ({TP: 1000.0 * SIZE} if reads else {})
    assert found.bytes_s == {}


def test_a_group_that_catches_up_reads_more_than_is_written() -> None:
    found = rates((100_000, 100_100), [(0.0, 0), (5.0, 20_000), (10.0, 40_000)])
    assert found.bytes_s == {TP: pytest.approx(4000.0 * SIZE)}
    assert found.measured_by == "committed"
    assert (found.catches_up, found.written_s) == (True, 10.0 * SIZE)


BURST = [(0.0, 0), (1.0, 0), (2.0, 10_000), (4.0, 20_000), (6.0, 30_000), (7.0, 30_000), (45.0, 30_000)]
"""What lay there is read within 5 s of 45 s."""


@pytest.mark.parametrize(
    ("ends", "records"),
    [
        pytest.param((30_000, 30_000), 30_000, id="nothing is written"),
        # The lag at the end is what was written since the last commit.
        pytest.param((29_000, 34_000), 30_000, id="some is written"),
        # It was stopped 39 s before the end, and is behind.
        pytest.param((90_000, 90_000), 30_000, id="it has stopped"),
    ],
)
def test_a_burst_counts_by_the_time_between_the_samples(ends: tuple[int, int], records: int) -> None:
    found = rates(ends, BURST, seconds=45.0)
    assert found.by_commits == {TP}
    assert found.bytes_read == {TP: records * SIZE}
    assert found.bytes_s == {TP: pytest.approx(records * SIZE / 45)}


def test_a_burst_that_goes_on_counts_by_the_time_between_its_commits() -> None:
    found = rates((90_000, 90_000), [(0.0, 0), (40.0, 0), (42.0, 10_000), (44.0, 20_000), (45.0, 20_000)], seconds=45.0)
    assert found.bytes_s == {TP: 5000.0 * SIZE}


def test_a_partition_that_is_paused_does_not_make_a_burst_last() -> None:
    other = TopicPartition("t", 1)
    before, after = (
        LogSamples({TP: LogSample(at_s, 3_000_000, 0, 30_000), other: LogSample(at_s, 900, 0, 9)})
        for at_s in (0.0, 45.0)
    )
    commits = [CommitSample(at_s, {TP: offset, other: 0}) for at_s, offset in BURST]
    found = read_rates([TP, other], compute_throughput(before, after), before, after, commits)
    assert found.bytes_s == {TP: pytest.approx(3_000_000 / 45), other: 0.0}


def test_what_is_read_while_nothing_is_written_counts() -> None:
    found = rates((5000, 5000), [(0.0, 0), (10.0, 5000)])
    assert (found.bytes_s, found.bytes_read, found.lag) == ({TP: 500.0 * SIZE}, {TP: 5000.0 * SIZE}, {TP: 0})


def test_of_a_group_that_lags_and_commits_nothing_nothing_is_read_and_that_is_known() -> None:
    found = rates((100_000, 110_000), [(0.0, 500), (10.0, 500)])
    assert (found.bytes_s, found.not_committed) == ({TP: 0.0}, True)


def test_a_group_that_stopped_when_writing_stopped_is_no_riddle() -> None:
    found = rates((100, 100), [(0.0, 99), (10.0, 99)])
    assert (found.bytes_s, found.not_committed, found.lag) == ({TP: 0.0}, False, {TP: 1})


def test_an_offset_that_was_reset_is_no_progress() -> None:
    found = rates((100_000, 110_000), [(0.0, 90_000), (10.0, 10)])
    assert (found.bytes_s, found.lag) == ({TP: 0.0}, {TP: 109_990})


def test_what_is_read_again_after_a_reset_counts() -> None:
    # Read on, set back to the beginning within the interval, and read again: no rate is less than nothing.
    found = rates((100_000, 110_000), [(0.0, 50_000), (2.0, 50_100), (4.0, 0), (6.0, 200), (10.0, 600)])
    assert found.bytes_read == {TP: 700.0 * SIZE}
    assert found.bytes_s == {TP: 600 / 8 * SIZE}


def test_records_that_were_deleted_are_neither_read_nor_lag() -> None:
    found = rates((100_000, 110_000), [(0.0, 10), (10.0, 90_010)], first=90_000)
    assert (found.bytes_read, found.lag) == ({TP: 10.0 * SIZE}, {TP: 19_990})


def test_partitions_are_measured_one_by_one() -> None:
    other = TopicPartition("t", 1)
    before = LogSamples({tp: LogSample(0.0, 0, 0, 0) for tp in (TP, other)})
    after = LogSamples({tp: LogSample(10.0, 1000 * SIZE, 0, 1000) for tp in (TP, other)})
    commits = [CommitSample(0.0, {other: 0}), CommitSample(10.0, {other: 1000})]
    before_lag = LogSamples({**before.logs, TP: LogSample(0.0, 900 * SIZE, 0, 900)})
    commits = [CommitSample(s.at_s, {**s.offsets, TP: 0}) for s in commits]
    found = read_rates([TP, other], compute_throughput(before_lag, after), before_lag, after, commits)
    assert found.measured_by == "both"
    assert found.by_commits == frozenset({TP})
    assert found.lag == {TP: 1000, other: 0}
    # Of a partition that is not assigned nothing is read.
    assert read_rates([other], compute_throughput(before_lag, after), before_lag, after).bytes_s.keys() == {other}


def test_a_member_that_reads_one_partition_after_the_other_commits_in_turn() -> None:
    # 30 records of one partition every 6 s.
    other = TopicPartition("t", 1)
    before, after = (
        LogSamples({tp: LogSample(at_s, SIZE * end, 0, end) for tp in (TP, other)})
        for at_s, end in ((0.0, 100_000), (10.0, 110_000))
    )
    commits = [
        CommitSample(at_s, {TP: one, other: two})
        for at_s, one, two in ((0.0, 0, 0), (2.0, 30, 0), (8.0, 30, 30), (10.0, 30, 30))
    ]
    found = read_rates([TP, other], compute_throughput(before, after), before, after, commits)
    assert sum(found.bytes_s.values()) == pytest.approx(5.0 * SIZE)
    assert sum(found.bytes_read.values()) == 60.0 * SIZE
    assert not found.not_committed


@pytest.mark.parametrize(
    ("before", "after", "size"),
    [
        # Compacted: a million records of 1,000 bytes among a billion offsets.
        (LogSample(0.0, 10**9, 0, 10**9), LogSample(10.0, 10**9 + 10_000_000, 0, 10**9 + 10_000), 1000.0),
        # Nothing is written, or a segment was deleted: what there is counts.
        (LogSample(0.0, 50_000, 0, 500), LogSample(10.0, 50_000, 0, 500), 100.0),
        (LogSample(0.0, 50_000, 0, 500), LogSample(10.0, 30_000, 300, 600), 100.0),
        # Of another replica, which has compacted less.
        (LogSample(0.0, 10_000, 0, 500, 1), LogSample(10.0, 60_000, 0, 600, 2), 100.0),
        (LogSample(0.0, 0, 0, 0), LogSample(10.0, 0, 0, 0), 0.0),
    ],
)
def test_a_record_has_the_size_of_those_that_are_written(before: LogSample, after: LogSample, size: float) -> None:
    assert record_size(before, after) == size


ADMIN: Any = object()
THERE = cluster({"t": [[1]]})


class Brokers:
    """Stand in for a log that grows by 1,000 records a second, and for coordinators of groups."""

    def __init__(self, *, cost: float = 0.0) -> None:
        # `asked`: the groups in order of the requests, each with the time.
        self.now, self.cost = 0.0, cost
        self.asked: list[tuple[str, float]] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def sample_logs(self, *_: object) -> LogSamples:
        records = round(1000 * self.now) + 100_000
        return LogSamples({TP: LogSample(self.now, 10 * records, 0, records)})

    def committed_offsets(self, group: str) -> dict[TopicPartition, int]:
        self.asked.append((group, self.now))
        self.now += self.cost
        if group == "broken":
            raise RequestTimedOutError
        end = round(1000 * self.now) + 100_000
        return {"slow": {TP: round(5 * self.now)}, "fresh": {TP: end}}.get(group, {})


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    there = Brokers()
    monkeypatch.setattr("rackassign.monitoring.read_rates.sample_logs", there.sample_logs)
    monkeypatch.setattr("rackassign.monitoring.read_rates.GroupAdmin", lambda _: there)
    return there


def test_each_measurement_goes_on_where_the_last_one_ended(brokers: Brokers) -> None:
    meter = RateMeter(ADMIN, brokers.clock, brokers.sleep)
    first = meter.measure(THERE, ["slow", "fresh"], 10.0)
    assert first.of_group("slow", [TP]).bytes_s == {TP: pytest.approx(50.0)}
    assert first.of_group("fresh", [TP]).bytes_s == {TP: 10_000.0}
    assert first.of_group("other", [TP]).bytes_s == {TP: 10_000.0}
    brokers.now += 5.0
    second = meter.measure(THERE, ["slow", "fresh", "new"], 10.0)
    assert second.written.seconds == 15.0
    assert second.of_group("slow", [TP]).bytes_read == {TP: pytest.approx(750.0)}
    assert second.of_group("new", [TP]).lag == {}


def test_only_groups_that_lag_are_sampled_in_between(brokers: Brokers) -> None:
    RateMeter(ADMIN, brokers.clock, brokers.sleep).measure(THERE, ["slow", "fresh"], 10.0)
    times = {name: [at_s for asked, at_s in brokers.asked if asked == name] for name in ("slow", "fresh")}
    assert times == {"slow": [float(i) for i in range(11)], "fresh": [0.0, 10.0]}


def test_samples_of_hundreds_of_groups_take_a_tenth_of_the_time(brokers: Brokers) -> None:
    brokers.cost = 0.5
    RateMeter(ADMIN, brokers.clock, brokers.sleep).measure(THERE, ["slow"], 60.0)
    assert 5 <= len(brokers.asked) <= 15


def test_a_group_without_committed_offsets_reads_what_is_written_and_the_reason_is_known(brokers: Brokers) -> None:
    found = RateMeter(ADMIN, brokers.clock, brokers.sleep).measure(THERE, ["broken", "slow"], 3.0)
    assert found.of_group("broken", [TP]).measured_by == "written"
    assert found.written.problems == ("broken: its committed offsets are not known: RequestTimedOutError",)


def test_a_broker_that_hangs_is_not_asked_for_each_of_its_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = {f"t{number}": [[1]] for number in range(500)} | {"other": [[2]]}
    now = 0.0

    def offsets(_: object, tps: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        nonlocal now
        if tps[0].topic == "other":
            return {tps[0]: (0, 7)}
        now += 5.0
        raise KafkaTimeoutError

    sizes = {TopicPartition(topic, 0): 1000 for topic in topics}
    monkeypatch.setattr(throughput, "describe_log_dirs", lambda *_: sizes)
    monkeypatch.setattr(throughput, "list_offsets", offsets)
    seen = throughput.sample_logs(ADMIN, cluster(topics).topology.topics, clock=lambda: now)
    assert now <= 20.0
    assert seen.logs.keys() == {TopicPartition("other", 0)}
    assert seen.problems == ("broker 1 does not report the offsets of all its logs in time",)
