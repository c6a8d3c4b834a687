"""Groups that are described again and again: one that is gone hides no other, and what nobody reads lags."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import NodeNotReadyError, SaslAuthenticationFailedError

from rackassign import broker_plugin
from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.model import Broker, TopicPartition
from rackassign.monitoring import ClusterReport, GroupCollector, collect_repeatedly, collector
from rackassign.monitoring.live_groups import GroupDescription
from rackassign.monitoring.read_rates import CommitSample, Measurement
from rackassign.monitoring.throughput import LogSample, LogSamples, compute_throughput
from tests.helpers.builders import cluster, group, member

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
THERE = cluster({"t": [[1], [2]]})
COMMITTED = {T0: 990, T1: 0}


class Coordinators:
    """Describes groups as a test has them, by name; an exception is raised."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **groups: GroupDescription | Exception) -> None:
        self.groups = groups
        self.topics: list[frozenset[str]] = []
        monkeypatch.setattr(collector, "describe_group", lambda _, name: self._described(name))
        monkeypatch.setattr(
            collector, "GroupAdmin", lambda _: SimpleNamespace(committed_offsets=lambda _: dict(COMMITTED))
        )
        monkeypatch.setattr(collector, "cluster_id", lambda _: "c")
        monkeypatch.setattr(collector, "describe_cluster", self._cluster)
        monkeypatch.setattr("rackassign.monitoring.collector.time.sleep", lambda _: None)

    def _described(self, name: str) -> GroupDescription:
        found = self.groups[name]
        if isinstance(found, Exception):
            raise found
        return found

    def _cluster(self, _admin: object, topics: frozenset[str], _memory: object) -> Any:
        self.topics.append(topics)
        return THERE


def own(name: str) -> GroupDescription:
    return group(member("m", "a", {"t": [0]}), name=name)


def collecting() -> Any:
    made: Any = GroupCollector(None)

    def logs(at_s: float) -> LogSamples:
        return LogSamples({tp: LogSample(at_s, 1000, 0, 1000) for tp in (T0, T1)})

    samples = [CommitSample(0.0, COMMITTED), CommitSample(10.0, COMMITTED)]
    written = compute_throughput(logs(0.0), logs(10.0))
    measured = Measurement(written, logs(0.0), logs(10.0), dict.fromkeys(("a", "b"), samples))
    made._meter = SimpleNamespace(measure=lambda *_: measured, last=None)
    return made


def names(report: ClusterReport | str) -> tuple[list[str], list[str]] | str:
    if isinstance(report, str):
        return report
    return [each.snapshot.live.name for each in report.inspections], [odd.name for odd in report.skipped]


def test_a_named_group_that_disappears_hides_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Coordinators(monkeypatch, a=own("a"), b=own("b"))
    reports = collect_repeatedly(collecting(), ["a", "b"], interval_s=0.0, looks=4)
    assert names(next(reports)) == (["a", "b"], [])
    seen.groups["b"] = ConfigError("group: there is no consumer group 'b' on this cluster")
    assert names(next(reports)) == (["a"], ["b"])
    seen.groups["a"] = ConfigError("group: there is no consumer group 'a' on this cluster")
    assert names(next(reports)) == "not seen now: group: there is no consumer group 'b' on this cluster"
    seen.groups |= {"a": own("a"), "b": own("b")}
    assert names(next(reports)) == (["a", "b"], [])


def test_after_two_reports_in_a_row_that_failed_there_is_a_new_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Coordinators(monkeypatch, a=own("a"))
    collector, admins = collecting(), list[object]()

    def reconnect() -> None:
        admins.append(object())
        collector.use(admins[-1])
        if len(admins) == 1:
            raise KafkaUnavailableError("still away")

    reports = collect_repeatedly(collector, ["a"], interval_s=0.0, reconnect=reconnect)
    assert names(next(reports)) == (["a"], [])
    seen.groups["a"] = SaslAuthenticationFailedError("refused")
    failures = [str(next(reports)) for _ in range(4)]
    assert failures == ["not seen now: SaslAuthenticationFailedError: refused"] * 4
    # It is made when the next report is requested.
    seen.groups["a"] = own("a")
    assert names(next(reports)) == (["a"], [])
    assert len(admins) == 3
    assert collector._admin is collector._meter.admin is admins[-1]
    seen.groups["a"] = SaslAuthenticationFailedError("refused")
    next(reports)
    seen.groups["a"] = own("a")
    assert names(next(reports)) == (["a"], [])
    assert len(admins) == 3


def test_what_was_measured_for_a_report_that_failed_is_in_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Coordinators(monkeypatch, a=own("a"))
    made, begun = collecting(), list[str]()
    made._meter.last = "first"

    def measure(*_: object) -> Measurement:
        begun.append(made._meter.last)
        made._meter.last = f"after {len(begun)}"
        # The coordinator ends after it.
        seen.groups["a"] = NodeNotReadyError("gone") if len(begun) == 1 else own("a")
        return Measurement()

    made._meter.measure = measure
    made._seen = {"a"}
    with pytest.raises(NodeNotReadyError):
        made.report(["a"], interval_s=1.0)
    seen.groups["a"] = own("a")
    assert names(made.report(["a"], interval_s=1.0)) == (["a"], [])
    assert (begun, made._meter.last) == (["first", "first"], "after 2")


def test_names_of_groups_are_kept_only_if_they_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    Coordinators(monkeypatch, a=own("a"))
    made = collecting()
    monkeypatch.setattr(made, "_all", lambda _: ["a"])
    assert names(made.report(None)) == (["a"], [])
    assert made._seen == set()
    made.report(["a"])
    assert made._seen == {"a"}


def test_a_named_group_that_never_existed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    Coordinators(monkeypatch, a=own("a"), b=ConfigError("group: there is no consumer group 'b' on this cluster"))
    with pytest.raises(ConfigError, match="no consumer group 'b'"):
        collecting().report(["a", "b"])


def test_the_broker_plug_in_is_known_by_the_list_of_the_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    served = replace(own("a"), kind="consumer", strategy="uniform", coordinator=2)
    Coordinators(monkeypatch, a=served, b=replace(served, name="b", coordinator=1))
    with_plugin = replace(THERE.brokers[1], assignors=(broker_plugin.UNIFORM_CLASS, "range"))
    there = replace(THERE, brokers=(THERE.brokers[0], with_plugin, *THERE.brokers[2:]))
    monkeypatch.setattr(collector, "describe_cluster", lambda *_: there)
    seen = collecting().report(["a", "b"]).inspections
    assert [each.snapshot.live.strategy for each in seen] == ["rackassign", "uniform"]


def test_a_group_is_not_both_described_and_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Coordinators(monkeypatch, a=own("a"))
    moving = group(member("m", "a", {"t": [0]}), name="a", kind="consumer", state="Reconciling")
    states = iter((moving, ConfigError("gone")))

    def described(name: str) -> GroupDescription:
        del name
        found = next(states)
        if isinstance(found, Exception):
            raise found
        return found

    made = collecting()
    made._seen = {"a"}
    seen._described = described  # type: ignore[method-assign]
    assert moving.is_visible
    assert not moving.is_stable
    assert names(made.report(["a"])) == (["a"], [])


@pytest.mark.parametrize(
    ("live", "racks"), [(own("a"), {"a": 10}), (group(name="a", state="Empty"), {})], ids=["one member", "no member"]
)
def test_partitions_without_a_reader_lag_as_well(
    monkeypatch: pytest.MonkeyPatch, live: GroupDescription, racks: dict[str, int]
) -> None:
    seen = Coordinators(monkeypatch, a=live)
    (found,) = collecting().report(["a"], interval_s=10.0).inspections
    assert (found.rates.lag, found.rates.total_lag) == ({T0: 10, T1: 1000}, 1010)
    assert found.lag_by_rack == racks
    # To measure its lag, the topics of a group without members are described, too.
    assert seen.topics[0] == {"t"}


def test_groups_of_a_broker_that_lists_none_are_unlisted_and_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(_: object, broker: int) -> dict[str, str]:
        if broker == 1:
            raise NodeNotReadyError(1)
        return {"a": "consumer"}

    Coordinators(monkeypatch, a=own("a"))
    monkeypatch.setattr(collector, "list_brokers", lambda _: (Broker(1), Broker(2)))
    monkeypatch.setattr(collector, "list_groups_on", listed)
    monkeypatch.setattr(collector, "can_describe_cluster", lambda _: False)
    report = collecting().report(None)
    assert names(report) == (["a"], ["", ""])
    # A permission that is missing is missing for good: groups that are gone are forgotten nevertheless.
    assert [odd.unlisted for odd in report.skipped] == [True, False]
