"""The measurement of what groups read: which samples are taken, and when."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.errors import RequestTimedOutError

from rackassign.model import TopicPartition
from rackassign.monitoring import read_rates
from rackassign.monitoring.read_rates import RateMeter
from rackassign.monitoring.throughput import LogSample, LogSamples
from tests.helpers.builders import cluster

ADMIN: Any = object()
TP = TopicPartition("t", 0)
THERE = cluster({"t": [[1]]})


class Brokers:
    """Stand in for a log that grows by 1,000 records a second, and for coordinators of groups.

    Attributes:
        now: The time.
        cost: Seconds that a request for committed offsets takes.
        asked: The groups in order of the requests, each with the time.
    """

    def __init__(self, *, cost: float = 0.0) -> None:
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
    monkeypatch.setattr(read_rates, "sample_logs", there.sample_logs)
    monkeypatch.setattr(read_rates, "GroupAdmin", lambda _: there)
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
