"""Received bytes of tasks: which broker and which range they are counted for.

The traffic of batches: which report belongs to which batch, and as what its bytes count.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rackassign.errors import ConfigError, InputError
from rackassign.model import TopicPartition
from rackassign.spark import batch_traffic
from rackassign.spark._splits import OffsetRange, Split
from rackassign.spark._task_metrics import (
    BatchOffsets,
    BatchTraffic,
    SplitReport,
    WriteReport,
    append_line,
    process_meter,
    read_reports,
    traffic_of,
    write_report,
    writing_meter,
)
from tests.helpers.librdkafka_statistics import broker, statistics_json


def test_what_was_received_is_told_by_broker(tmp_path: Path) -> None:
    meter = process_meter.__wrapped__()
    for name, received in (("one", 5), ("two", 7), ("one", 6)):
        meter(statistics_json((), {"k:1/bootstrap": broker(-1, 99), "k:1/1": broker(1, received)}, client=name))
    assert meter.total() == Counter({1: 13})
    split = Split(OffsetRange(TopicPartition("t", 3), 5, 9), ("a",), 10, 1)
    write_report(str(tmp_path / "new"), split, "a", 4, meter.total())
    (file,) = (tmp_path / "new").iterdir()
    assert json.loads(file.read_text("utf-8")) == {
        "topic": "t",
        "partition": 3,
        "start": 5,
        "end": 9,
        "rack": "a",
        "replica_racks": ["a"],
        "useful": 4,
        "received": {"1": 13},
    }


def test_a_folder_that_cannot_be_written_to_is_named_with_its_option(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    split = Split(OffsetRange(TopicPartition("t", 3), 5, 9), ("a",), 10, 1)
    with pytest.raises(ConfigError, match=r"metricsPath: cannot write to .*file"):
        write_report(str(tmp_path / "file"), split, "a", 4, Counter())


def test_connections_of_one_broker_are_summed() -> None:
    meter = process_meter.__wrapped__()
    meter(statistics_json((), {"k:1/1": broker(1, 5), "GroupCoordinator": broker(1, 2)}))
    assert meter.total() == Counter({1: 7})


class Consumer:
    """A consumer whose statistics wait in a queue until it is polled."""

    def __init__(self, meter: Callable[[str], None], queued: list[str], coming: list[str]) -> None:
        # `queued`: statistics that were made before the first poll.
        self._meter = meter
        self._queued = deque(queued)
        self._coming = deque(coming)

    def poll(self, timeout: float) -> None:
        """Pass on what is queued, or wait for the next."""
        while self._queued:
            self._meter(self._queued.popleft())
        if timeout and self._coming:
            self._meter(self._coming.popleft())


def received_when_settled(queued: list[str], coming: list[str]) -> Counter[int]:
    meter = process_meter.__wrapped__()
    consumer: Any = Consumer(meter, queued, coming)
    return meter.settle(consumer)


def of_broker(received: int, in_flight: int = 0) -> str:
    return statistics_json((), {"k:1/1": broker(1, received, in_flight=in_flight)})


def test_statistics_that_were_queued_before_the_end_of_a_range_are_not_its_last() -> None:
    assert received_when_settled([of_broker(1)] * 5, [of_broker(7)] * 3) == Counter({1: 7})


def test_a_fetch_in_flight_counts_for_the_range_that_sent_it() -> None:
    coming = [of_broker(7, in_flight=1)] * 4 + [of_broker(9)] * 2
    assert received_when_settled([of_broker(1)], coming) == Counter({1: 9})


def test_what_a_bootstrap_address_has_not_answered_is_not_awaited() -> None:
    text = statistics_json((), {"k:1/bootstrap": broker(-1, 0, in_flight=1), "k:1/1": broker(1, 7)})
    assert received_when_settled([], [text] * 2 + [of_broker(9)]) == Counter({1: 7})


RACKS: Mapping[int, str | None] = {1: "a", 2: "b", 3: None}


def progress(batch: int, start: Any, end: Any, *more: dict[str, Any]) -> dict[str, Any]:
    return {"batchId": batch, "sources": [*more, {"startOffset": start, "endOffset": end}]}


def offsets(*of_partitions: int) -> str:
    return json.dumps({"t": {str(number): offset for number, offset in enumerate(of_partitions)}})


def batch(number: int, start: tuple[int, ...], end: tuple[int, ...]) -> BatchOffsets:
    return BatchOffsets.of(progress(number, offsets(*start), offsets(*end)), 0)


def report(
    partition: int,
    start: int,
    end: int,
    received: Mapping[int, int],
    *,
    rack: str | None = "a",
    replicas: tuple[str, ...] = ("a", "b"),
) -> SplitReport:
    return SplitReport(
        OffsetRange(TopicPartition("t", partition), start, end), rack, replicas, 10 * (end - start), received
    )


def test_what_is_sent_is_counted_apart() -> None:
    meter = writing_meter.__wrapped__()
    meter(statistics_json((), {"k:1/1": broker(1, 5, sent=8)}))
    assert meter.total() == Counter({1: 8})


def test_what_is_written_belongs_to_the_batch_with_its_number() -> None:
    reports: list[SplitReport | WriteReport] = [
        report(0, 0, 10, {1: 7}),
        WriteReport(4, "a", {1: 100, 2: 20, 3: 5}),
        WriteReport(4, None, {1: 3}),
        WriteReport(5, "a", {1: 999}),
    ]
    assert traffic_of([batch(4, (0,), (10,))], reports, RACKS) == [
        BatchTraffic(4, useful=100, local=7, written_local=100, written_crossed=20, written_unknown=8)
    ]


def test_reports_of_both_kinds_are_read_from_one_folder(tmp_path: Path) -> None:
    written = WriteReport(4, "a", {2: 3, 1: 100})
    write_report(str(tmp_path), Split(OffsetRange(TopicPartition("t", 0), 0, 9), ("a",), 0, 1), "a", 5, Counter({1: 7}))
    append_line(str(tmp_path), written.to_json())
    _, found = read_reports(tmp_path)
    assert found == written


def test_a_report_belongs_to_the_batch_that_contains_its_range() -> None:
    batches = [batch(4, (0, 0), (10, 5)), batch(5, (10, 5), (20, 5))]
    reports = [
        report(0, 0, 10, {1: 7}),
        report(0, 10, 20, {1: 11}),
        report(1, 0, 5, {1: 3}),
        report(0, 20, 30, {1: 99}),
        # Another partition, and a range that no batch has as a whole.
        report(2, 0, 10, {1: 99}),
        report(0, 5, 15, {1: 99}),
    ]
    assert traffic_of(batches, reports, RACKS) == [
        BatchTraffic(4, useful=150, local=10),
        BatchTraffic(5, useful=100, local=11),
    ]


def test_bytes_count_by_the_racks_of_broker_and_reader() -> None:
    (found,) = traffic_of(
        [batch(0, (0, 0, 0, 0, 0), (1, 1, 1, 1, 1))],
        [
            report(0, 0, 1, {1: 1, 2: 10, 3: 100, 4: 1000}),
            report(1, 0, 1, {2: 10_000}, replicas=("b", "c")),
            report(2, 0, 1, {2: 100_000}, rack=None),
            # No rack of a replica is known: the split was local to no task.
            report(3, 0, 1, {2: 1_000_000}, replicas=()),
            report(4, 0, 1, {1: 10_000_000}, rack="b", replicas=("a", "c")),
        ],
        RACKS,
    )
    assert (found.local, found.unknown) == (1, 101_100)
    assert found.crossed == 10 + 10_000 + 1_000_000 + 10_000_000
    assert found.stolen == 10_000 + 10_000_000
    assert found.received == found.local + found.crossed + found.unknown == 11_111_111
    assert (found.useful, found.unreported) == (50, 0)


def test_a_range_that_is_read_again_counts_again() -> None:
    reports = [report(0, 0, 10, {1: 7}), report(0, 0, 10, {2: 8})]
    (found,) = traffic_of([batch(0, (0,), (10,))], reports, RACKS)
    assert found == BatchTraffic(0, useful=200, local=7, crossed=8)


@pytest.mark.parametrize(
    ("ranges", "missing"),
    [
        ([], 30),
        ([(0, 0, 10), (0, 10, 20), (1, 5, 15)], 0),
        ([(0, 10, 20), (0, 0, 10)], 20 - 10),
        ([(0, 2, 10), (1, 5, 15)], 12),
        ([(0, 0, 20), (0, 5, 10), (1, 5, 6), (1, 8, 15)], 2),
    ],
)
def test_offsets_without_a_report_are_counted(ranges: list[tuple[int, int, int]], missing: int) -> None:
    reports = [report(*each, {}) for each in ranges]
    (found,) = traffic_of([batch(0, (0, 5), (20, 15))], reports, RACKS)
    assert found.unreported == missing


def test_the_first_batch_of_a_query_starts_at_its_first_report() -> None:
    first = BatchOffsets.of(progress(0, None, offsets(20, 9)), 0)
    reports = [report(0, 5, 10, {1: 7}), report(0, 12, 20, {1: 1}), report(0, 20, 30, {1: 99})]
    assert traffic_of([first], reports, RACKS) == [BatchTraffic(0, useful=130, local=8, unreported=2)]


def test_a_partition_that_was_added_starts_at_its_first_report() -> None:
    (found,) = traffic_of([batch(0, (10,), (10, 8))], [report(1, 0, 8, {2: 5})], RACKS)
    assert found == BatchTraffic(0, useful=80, crossed=5)


@pytest.mark.parametrize("written", [lambda offset: offset, str, json.dumps])
def test_offsets_may_be_json_or_its_objects_or_their_text(written: Callable[[object], object]) -> None:
    found = BatchOffsets.of(progress(7, written({"t": {"0": 3}}), written({"t": {"0": 4}})), 0)
    assert found == BatchOffsets(7, {TopicPartition("t", 0): 3}, {TopicPartition("t", 0): 4})
    first = BatchOffsets.of(progress(7, written(None), written({"t": {"0": 4}})), 0)
    assert first == BatchOffsets(7, {}, {TopicPartition("t", 0): 4})


def test_the_source_is_chosen_by_its_index() -> None:
    first = progress(0, None, str({**json.loads(offsets(9)), 'start of a new query: {"t":{"0":4}}': {}}))
    assert BatchOffsets.of(first, 0).start == {TopicPartition("t", 0): 4}
    both = progress(0, offsets(0), offsets(1), {"startOffset": "12", "endOffset": "13"})
    assert BatchOffsets.of(both, 1).end == {TopicPartition("t", 0): 1}
    for other in ("12", "FileStreamSource(2)", "{"):
        with pytest.raises(InputError, match="progress: expected the offsets of a Kafka source; set source"):
            BatchOffsets.of(progress(0, other, other), 0)
    for wrong in (2, -1):
        with pytest.raises(ConfigError, match=f"source: expected 0 to 1, got {wrong}"):
            BatchOffsets.of(both, wrong)


def test_reports_are_what_tasks_have_written(tmp_path: Path) -> None:
    split = Split(OffsetRange(TopicPartition("t", 3), 5, 9), ("a", "b"), 10, 1)
    assert list(read_reports(tmp_path / "none")) == []
    write_report(str(tmp_path), split, "a", 4, Counter({2: 5, 1: 6}))
    write_report(str(tmp_path), split, None, 4, Counter())
    assert list(read_reports(tmp_path)) == [
        SplitReport(split.range, "a", ("a", "b"), 4, {1: 6, 2: 5}),
        SplitReport(split.range, None, ("a", "b"), 4, {}),
    ]


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    whole = report(0, 0, 1, {1: 7})
    (tmp_path / "one.jsonl").write_text(f"{whole.to_json()}\n{whole.to_json()[:-9]}", "utf-8")
    assert list(read_reports(tmp_path)) == [whole]


@pytest.mark.parametrize(
    "line",
    [
        *("", "{}", "[]", "7", '{"topic": "t"', "[" * 100_000),
        report(0, 1, 2, {}).to_json().replace("1", "3"),
        report(0, 1, 2, {}).to_json().replace('"useful": 10', '"useful": "10"'),
        report(0, 1, 2, {7: 8}).to_json().replace("8", "null"),
    ],
)
def test_a_line_that_is_no_report_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "one.jsonl").write_text(f"{report(0, 0, 1, {}).to_json()}\n{line}\n", "utf-8")
    with pytest.raises(InputError, match=r"one\.jsonl:2: expected a report of metricsPath: "):
        list(read_reports(tmp_path))


def test_a_file_of_another_program_is_named(tmp_path: Path) -> None:
    write_report(str(tmp_path), Split(OffsetRange(TopicPartition("t", 3), 5, 9), (), 10, 1), None, 4, Counter())
    (tmp_path / "zipped.jsonl").write_bytes(b"\x1f\x8b\x08\x00\n")
    with pytest.raises(InputError, match=r"zipped\.jsonl: expected a file with reports of metricsPath: .*utf-8"):
        list(read_reports(tmp_path))
    (tmp_path / "zipped.jsonl").unlink()
    (tmp_path / "zipped.jsonl").mkdir()
    with pytest.raises(InputError, match=r"zipped\.jsonl: expected a file with reports"):
        list(read_reports(tmp_path))


def test_a_stream_without_metrics_path_has_no_traffic() -> None:
    with pytest.raises(ConfigError, match="metricsPath is missing: expected the folder with the reports of the stream"):
        batch_traffic({"kafka.bootstrap.servers": "k:1", "subscribe": "t"}, [])
