"""What a member reports of its state: counters, restores and copies, in kafka-python's metrics and in Prometheus'."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import pytest
from kafka.metrics import Metrics
from prometheus_client import CollectorRegistry, generate_latest

from rackassign.errors import ConfigError
from rackassign.stateful import StatefulConsumer, StateStore
from rackassign.stateful import _changelog_client as changelog
from rackassign.stateful._statistics import GROUP, StateCounts, StateStatistics
from rackassign.stateful.prometheus import ExportedMember, StateMetrics
from tests.helpers.fakes.kafka import Kafka, Member, Record
from tests.helpers.faulty_files import overwrite
from tests.helpers.stateful_consumers import FIRST, count, drain, give, member, settle, together


@pytest.fixture(autouse=True)
def with_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give members the metrics that kafka-python has."""
    init = Member.__init__

    def made(self: Any, *args: Any) -> None:
        init(self, *args)
        self._metrics = Metrics()

    monkeypatch.setattr(Member, "__init__", made)


def shown(one: StatefulConsumer) -> dict[str, float]:
    group: Any = one.consumer
    return {
        name.name: metric.value() for name, metric in group._metrics.metrics.items() if name.group == GROUP
    }  # fmt: skip


def test_what_a_member_does_is_counted(kafka: Kafka, tmp_path: Path) -> None:
    def process(record: Record, store: StateStore) -> None:
        count(record, store)
        store.delete(b"x")

    with member(tmp_path, process=process) as one:
        give(one, 0, 1)
        kafka.feed(0, 5)
        kafka.feed(1, 2)
        drain(one)
        counts = one.statistics().counts
        assert (counts.records, counts.commits, counts.puts, counts.damaged_files) == (7, 2, 14, 0)
        # Besides those of `process`, the progress of a task is read when it begins.
        assert counts.gets == 7 + 2
        logs = kafka.topics["g-t-changelog"].logs
        # n, x and the progress; the end of the transaction is none.
        assert counts.changelog_records == 2 * 3 == sum(not record.marker for log in logs for record in log)
        assert counts.changelog_bytes == sum(
            len(record.key or b"") + len(record.value or b"") for log in logs for record in log
        )
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
        kafka.feed(0, 1)
        drain(one)
        assert counts.records == 7


def test_restores_and_copies_are_shown_while_they_lag(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with member(tmp_path / "1") as one:
        give(one, 0)
        for _ in range(10):
            kafka.feed(0, 1)
            drain(one)
    monkeypatch.setattr(changelog, "_AT_ONCE", 4)
    with member(tmp_path / "2") as copy, member(tmp_path / "3") as heir:
        copy._assignor._copies.kept = frozenset({FIRST})
        give(copy)
        copy.poll(0)
        copy.poll(0)
        (task,) = copy.statistics().tasks
        assert (task.tp, task.role) == (FIRST, "standby")
        assert 0 < task.lag < 30
        assert shown(copy)["standby-lag-records-max"] == task.lag
        settle(copy)
        assert copy.statistics().standby_lag_max == 0
        give(heir, 0)
        heir.poll(0)
        heir.poll(0)
        (task,) = heir.statistics().tasks
        assert (task.role, task.to_restore) == ("restoring", 30)
        assert heir.statistics().restore_remaining == 30 - task.restored > 0
        assert shown(heir)["active-restoring-tasks"] == 1
        settle(heir)
        assert [each.role for each in heir.statistics().tasks] == ["active"]


def test_damaged_files_are_counted(kafka: Kafka, tmp_path: Path) -> None:
    kafka.feed(0, 3000)

    def process(record: Record, store: StateStore) -> None:
        store.put(b"%d" % record.offset, b"x" * 100)

    with member(tmp_path, process=process) as one:
        give(one, 0)
        drain(one)
    overwrite(next(tmp_path.glob("*.sqlite")))
    with member(tmp_path, process=process) as one:
        give(one, 0)
        drain(one)
        for _ in range(3):
            try:
                list(one.store(FIRST).items())
            except Exception:  # noqa: BLE001 - it is found here at the latest
                drain(one)
        assert one.statistics().counts.damaged_files == 1


def test_a_client_without_metrics_is_no_problem(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.feed(0, 1)

    class Broken:
        def metric_name(self, *_: object) -> None:
            raise AttributeError

    for metrics in (None, Broken()):
        init = Member.__init__

        def made(self: Any, *args: Any, init: Any = init, metrics: object = metrics) -> None:
            init(self, *args)
            self._metrics = metrics

        with monkeypatch.context() as patch:
            patch.setattr(Member, "__init__", made)
            with member(tmp_path) as one:
                give(one, 0)
                drain(one)
                assert one.statistics().number("active") == 1
    assert caplog.text.count("state is not among its metrics") == 1


def test_prometheus_gets_the_sums_of_the_members_of_a_group(kafka: Kafka, tmp_path: Path) -> None:
    registry, metrics = CollectorRegistry(), StateMetrics()
    registry.register(metrics)
    group = {"group": "g"}

    def sample(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"rackassign_state_{name}", {**group, **labels})

    with member(tmp_path / "1") as one:
        metrics.add(one)
        metrics.add(one)
        with member(tmp_path / "2") as other:
            metrics.add(other)
            give(one, 0)
            give(other, 1)
            other._assignor._copies.kept = frozenset({FIRST})
            together(one)
            kafka.feed(0, 3)
            kafka.feed(1, 2)
            for each in (one, other):
                drain(each)
            assert sample("records_total") == 5
            assert (sample("tasks", role="active"), sample("tasks", role="standby")) == (2, 1)
            assert sample("standby_lag_records", topic="t", partition="0") == 0
            assert sample("restore_remaining_records", topic="t", partition="0") is None
        del other
        gc.collect()
        # What it has counted stays in the sum.
        assert sample("records_total") == 5
        kafka.feed(0, 1)
        drain(one)
        assert sample("records_total") == 6
        assert sample("tasks", role="active") == 1
    assert b"rackassign_state_changelog_bytes_total" in generate_latest(registry)
    with pytest.raises(ConfigError, match="has no statistics of state"):
        metrics.add(object())  # type: ignore[arg-type]


def test_nothing_is_kept_of_each_member_that_is_gone() -> None:
    class Short:
        group = "g"

        def statistics(self) -> StateStatistics:
            return StateStatistics((), StateCounts(records=1))

    registry, metrics = CollectorRegistry(), StateMetrics()
    registry.register(metrics)

    def series() -> float | None:
        return registry.get_sample_value("rackassign_state_records_total", {"group": "g"})

    for _ in range(100):
        one = Short()
        metrics.add(one)
        generate_latest(registry)
        del one
        gc.collect(0)
    assert series() == 100
    assert not [each for each in gc.get_objects() if isinstance(each, ExportedMember)]


def test_statistics_can_be_read_by_another_thread(kafka: Kafka, tmp_path: Path) -> None:
    problems: list[BaseException] = []
    stop = threading.Event()

    def read() -> None:
        try:
            while not stop.is_set():
                assert one.statistics().counts.records >= 0
                shown(one)
        except BaseException as error:  # noqa: BLE001 - of a thread
            problems.append(error)

    with member(tmp_path) as one:
        thread = threading.Thread(target=read)
        thread.start()
        try:
            for number in range(60):
                give(one, *([0, 1] if number % 2 else [number % 3 % 2]))
                kafka.feed(0, 1)
                drain(one)
        finally:
            stop.set()
            thread.join()
    assert problems == []
