"""What a member reports of its state: counters, restores and copies, in kafka-python's metrics and in Prometheus'."""

from __future__ import annotations

import gc
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.metrics import Metrics
from prometheus_client import CollectorRegistry, generate_latest

from rackassign.errors import ConfigError
from rackassign.stateful import StateStore
from rackassign.stateful._statistics import GROUP, StateCounts, StateStatistics, TaskStatistics, publish
from rackassign.stateful.prometheus import ExportedMember, StateMetrics
from rackassign.strategies.standby import StandbyOptions
from rackassign.text import WarnOnce
from tests.helpers.stateful_world import FIRST, LOG, Played, Stage, count
from tests.helpers.tasks import Record


def shown(one: Played) -> dict[str, float]:
    found: dict[str, float] = one.consumer.metrics()[GROUP]
    return found


def test_what_a_member_does_is_counted(stage: Stage) -> None:
    def process(record: Record, store: StateStore) -> None:
        count(record, store)
        store.delete(b"x")

    one = stage.start(process=process, metrics_enabled=True)
    stage.feed(5)
    stage.feed(2, 1)
    stage.run()
    counts = one.stateful.statistics().counts
    # Besides those of `process`, the progress of a task is read when it begins.
    assert (counts.records, counts.commits, counts.puts, counts.gets) == (7, 2, 14, 9)
    # n, x and the progress; the end of the transaction is none.
    assert counts.changelog_records == 2 * 3 == sum(stage.log(LOG, each).end - 1 for each in range(2))
    assert counts.changelog_bytes > 2 * 50
    assert shown(one) == {
        "processed-records-total": 7,
        "commits-total": 2,
        "changelog-records-total": 6,
        "changelog-bytes-total": counts.changelog_bytes,
        "store-gets-total": 9,
        "store-puts-total": 14,
        "damaged-files-total": 0,
        "active-tasks": 2,
        "active-restoring-tasks": 0,
        "standby-tasks": 0,
        "restore-remaining-records-total": 0,
        "standby-lag-records-max": 0,
    }
    # What was returned before does not change.
    stage.feed(1)
    stage.run()
    assert (counts.records, one.stateful.statistics().counts.records) == (7, 8)


def test_restores_and_copies_are_shown_and_prometheus_gets_the_sums_of_a_group(stage: Stage) -> None:
    registry, metrics = CollectorRegistry(), StateMetrics()
    registry.register(metrics)
    warm = {"standbys": StandbyOptions(num_standby_replicas=1), "metrics_enabled": True}

    def sample(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"rackassign_state_{name}", {"group": "group", **labels})

    one = stage.start("1", **warm)
    metrics.add(one.stateful)
    metrics.add(one.stateful)
    for _ in range(3):
        stage.feed(1)
        stage.feed(1, 1)
        stage.run(0.6)
    copy = stage.start("2", **warm)
    metrics.add(copy.stateful)
    stage.run()
    roles = {each.role: (each.to_restore, each.restored, each.lag) for each in copy.stateful.statistics().tasks}
    # It had a copy of what it took over.
    assert roles == {"active": (0, 0, 0), "standby": (0, 0, 0)}
    assert (sample("records_total"), sample("tasks", role="active"), sample("tasks", role="standby")) == (6, 2, 2)
    owned = {str(tp.partition) for tp in copy.stateful.standby_partitions()}
    assert sample("standby_lag_records", topic="t", partition=owned.pop()) == 0
    assert shown(copy)["standby-tasks"] == 1
    stage.stop(copy)
    copy.stateful = None
    gc.collect()
    # What it has counted stays in the sum.
    assert sample("records_total") == 6
    assert b"rackassign_state_changelog_bytes_total" in generate_latest(registry)
    with pytest.raises(ConfigError, match="has no statistics of state"):
        metrics.add(object())  # type: ignore[arg-type]


def test_sums_are_of_the_tasks_of_each_role() -> None:
    tasks = (
        TaskStatistics(FIRST, "active", 3, 4, 4),
        TaskStatistics(FIRST, "restoring", 9, 2, 7),
        TaskStatistics(FIRST, "restoring", 9, 0, 1),
        TaskStatistics(FIRST, "standby", 5),
        TaskStatistics(FIRST, "standby", 2),
    )
    found = StateStatistics(tasks, StateCounts())
    assert (found.number("active"), found.number("restoring"), found.number("standby")) == (1, 2, 2)
    assert (found.restore_remaining, found.standby_lag_max) == (6, 5)


@pytest.mark.parametrize("metrics", [None, SimpleNamespace(metric_name=None), Metrics()])
def test_a_client_without_metrics_is_no_problem(caplog: pytest.LogCaptureFixture, metrics: Any) -> None:
    consumer: Any = SimpleNamespace(_metrics=metrics)
    once = WarnOnce(logging.getLogger("rackassign"))
    publish(consumer, lambda: StateStatistics((), StateCounts()), StateCounts(), once)
    # Of a client that has none on purpose nothing is said.
    assert caplog.text.count("state is not among its metrics") == int(isinstance(metrics, SimpleNamespace))


def test_nothing_is_kept_of_each_member_that_is_gone() -> None:
    class Short:
        group = "g"

        def statistics(self) -> StateStatistics:
            return StateStatistics((), StateCounts(records=1))

    registry, metrics = CollectorRegistry(), StateMetrics()
    registry.register(metrics)

    def series() -> float | None:
        return registry.get_sample_value("rackassign_state_records_total", {"group": "g"})

    def exported() -> int:
        return sum(isinstance(each, ExportedMember) for each in gc.get_objects())

    before = exported()
    for _ in range(100):
        one = Short()
        metrics.add(one)
        generate_latest(registry)
        del one
        gc.collect(0)
    assert series() == 100
    assert exported() <= before
