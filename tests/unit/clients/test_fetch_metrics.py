"""What a consumer has read, from where, and what it says of its assignment."""

from __future__ import annotations

import logging
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import InconsistentGroupProtocolError
from kafka.metrics import Metrics
from kafka.record.memory_records import MemoryRecordsBuilder

from rackassign.assignor.assignment_log import format_assignment
from rackassign.clients.fetch_metrics import FetchedPartition, FetchMeter, Traffic, count_reads, count_records
from rackassign.clients.kafka_python.internals.joins import warn_on_join_response
from rackassign.clients.kafka_python.internals.traffic import LocalityMetrics
from rackassign.locality import Locality
from rackassign.model import Broker, LocalityMode, Partition, Partitions, TopicPartition, Topology
from rackassign.text import WarnOnce


def batch(count: int, compression: int = 0) -> bytes:
    builder = MemoryRecordsBuilder(2, compression, 100_000)
    for i in range(count):
        builder.append(i, None, b"x" * 10)
    builder.close()
    return bytes(builder.buffer())


def test_records_are_counted_by_the_heads_of_their_batches() -> None:
    whole = batch(3) + batch(1) + batch(200, 1)
    assert count_records(whole) == 204
    assert count_records(b"") == 0
    # The last one may be cut off.
    assert count_records(whole[:-1]) == 4
    assert count_records(whole + batch(7)[:30]) == 204
    marker = bytearray(batch(1))
    marker[22] |= 0x20
    assert count_records(bytes(marker) + batch(2)) == 2
    old = bytearray(batch(1))
    old[16] = 1
    assert count_records(bytes(old)) == 1


def fetched(topic: str, size: int, records: int) -> FetchedPartition:
    return FetchedPartition(TopicPartition(topic, 0), size, records, None)


def test_what_is_read_is_known_by_topic_and_rack() -> None:
    racks = {1: "a", 2: "b"}
    pairs: list[tuple[str, str | None]] = []
    meter = FetchMeter("a", racks.get, lambda topic, rack: pairs.append((topic, rack)))
    assert meter.locality().local_share() is None
    meter(1, [fetched("t", 100, 10), fetched("u", 30, 1), fetched("u", 0, 0)])
    meter(2, [fetched("t", 50, 5)])
    meter(3, [fetched("t", 7, 1)])
    meter(1, [fetched("t", 100, 10)])
    locality = meter.locality()
    assert locality.topics == {
        "t": {None: Traffic(7, 1), "a": Traffic(200, 20), "b": Traffic(50, 5)},
        "u": {"a": Traffic(30, 1)},
    }
    assert locality.by_rack() == {None: Traffic(7, 1), "a": Traffic(230, 21), "b": Traffic(50, 5)}
    assert (locality.local(), locality.cross(), locality.unknown()) == (Traffic(230, 21), Traffic(50, 5), Traffic(7, 1))
    assert locality.local_share("t") == 0.8
    assert locality.local_share("u") == 1.0
    assert locality.local_share("none") is None
    assert pairs == [("t", "a"), ("u", "a"), ("t", "b"), ("t", None)]
    # Where a broker stood when it sent counts, and not where it stands now.
    racks[1] = "z"
    assert meter.locality().local() == Traffic(230, 21)


def test_all_is_unknown_in_a_rack_without_brokers_as_long_as_none_was_seen_there() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "b", 3: None}
    meter = FetchMeter("d", racks.get, racks=racks.values)
    meter(1, [fetched("t", 100, 10)])
    read = meter.locality()
    assert (read.rack, read.unknown(), read.cross(), read.local_share()) == ("d", Traffic(100, 10), Traffic(), None)
    assert count_reads(read, [1, 2, None], racks.get) == Locality(0, 0, 3)
    racks[4] = "d"
    meter(4, [fetched("t", 5, 1)])
    # A broker that is offline is in no metadata.
    del racks[4]
    read = meter.locality()
    assert (read.local(), read.cross(), read.unknown()) == (Traffic(5, 1), Traffic(100, 10), Traffic())
    assert count_reads(read, [1, 2, None], racks.get) == Locality(0, 2, 1)


def test_without_racks_of_brokers_no_rack_is_foreign() -> None:
    meter = FetchMeter("d", {1: None}.get, racks={1: None}.values)
    meter(1, [fetched("t", 100, 10)])
    assert not meter.locality().foreign


def test_reporters_see_it_among_the_consumer_s_metrics() -> None:
    metrics = Metrics()
    try:
        shown = LocalityMetrics(SimpleNamespace(_metrics=metrics), WarnOnce(logging.getLogger("test")))
        meter = FetchMeter(
            "a", {1: "a", 2: "b"}.get, lambda topic, rack: shown.add_topic_rack_metric(meter, topic, rack)
        )
        shown.publish(meter)
        meter(1, [fetched("t", 75, 3)])
        meter(2, [fetched("t", 25, 1)])
        found = {metric.name: (metric.tags, value.value()) for metric, value in metrics.metrics.items()}
        assert found["local-share"] == ({"rack": "a"}, 0.75)
        assert found["local-bytes-total"] == ({"rack": "a"}, 75)
        assert found["cross-records-total"] == ({"rack": "a"}, 1)
        assert found["bytes-of-t-from-b-total"] == ({"rack": "a", "topic": "t", "from": "b"}, 25)
    finally:
        metrics.close()


def test_metrics_of_a_topic_that_is_not_read_any_more_go_and_come_back_with_it() -> None:
    """Who subscribes to a pattern meets ever new topics."""
    with closing(Metrics()) as metrics:
        shown = LocalityMetrics(SimpleNamespace(_metrics=metrics), WarnOnce(logging.getLogger("rackassign.test")))
        meter = FetchMeter("a", {1: "a"}.get, lambda topic, rack: shown.add_topic_rack_metric(meter, topic, rack))

        def named(topic: str) -> list[str]:
            return [name.name for name in metrics.metrics if f"-of-{topic}-" in name.name]

        for number in range(100):
            meter(1, [fetched(f"t{number}", 10, 1)])
            shown.withdraw_others(meter, {f"t{number}"})
        assert [len(named(f"t{number}")) for number in (0, 98, 99)] == [0, 0, 2]
        meter(1, [fetched("t0", 5, 1)])
        assert len(named("t0")) == 2
        # What was counted stays counted.
        assert meter.amount("t0", "a") == Traffic(15, 2)
        assert meter.locality().local() == Traffic(1005, 101)


def test_metrics_that_are_off_or_differ_cost_nothing_but_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    once = WarnOnce(logging.getLogger("test"))
    meter = FetchMeter("a", lambda _: None)
    LocalityMetrics(SimpleNamespace(_metrics=None), once).publish(meter)
    assert not caplog.records
    LocalityMetrics(SimpleNamespace(_metrics=object()), once).publish(meter)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


TOPOLOGY = Topology(
    (Broker(1, "a"), Broker(2, "b"), Broker(3)),
    {"t": (Partition((1, 2), 2), Partition((2,), 2), Partition((3,), 3), Partition((2,), None))},
)


@pytest.mark.parametrize(
    ("rack", "owned", "before", "mode", "line"),
    [
        ("a", {"t": (0,)}, None, "any-replica", "rack a: 1 of 1 partitions local"),
        (
            *("a", {"t": (0, 1)}, {"t": (1, 2)}, "any-replica"),
            "rack a: 1 of 2 partitions local (t-1 from rack b: no replica in a), 1 moved",
        ),
        ("a", {"t": (0,)}, {}, "leader", "rack a: 0 of 1 partitions local (t-0 from rack b)"),
        (
            *("a", {"t": (2, 3), "gone": (0,)}, None, "any-replica"),
            "rack a: 0 of 3 partitions local (t-3 from a leader of unknown rack: no replica in a), 2 of unknown rack",
        ),
        (None, {"t": (0, 1)}, {"t": (0,)}, "any-replica", "no rack: 2 partitions, 1 moved"),
        ("z", {}, {"t": (0,)}, "any-replica", "rack z: 0 of 0 partitions local"),
    ],
)
def test_an_assignment_is_said_in_one_line(
    rack: str | None, owned: Partitions, before: Partitions | None, mode: LocalityMode, line: str
) -> None:
    assert format_assignment(rack, owned, before, TOPOLOGY, mode) == line


def test_no_more_than_five_partitions_are_named() -> None:
    topology = Topology((Broker(1, "b"),), {"t": (Partition((1,), 1),) * 9})
    line = format_assignment("a", {"t": tuple(range(9))}, None, topology, "any-replica")
    assert line.startswith("rack a: 0 of 9 partitions local (t-0 from rack b: no replica in a; t-1")
    assert line.endswith("; t-4 from rack b: no replica in a; 4 more)")


class Coordinator:
    group_id = "g"

    def __init__(self) -> None:
        self.processed: list[Any] = []
        self._assignors = {name: SimpleNamespace(name=name) for name in ("range", "sticky")}

    def _process_join_group_response(self, response: Any, send_time: float) -> Any:
        del send_time
        self.processed.append(response)
        return response


def test_a_member_says_once_what_the_answers_to_its_joins_tell(caplog: pytest.LogCaptureFixture) -> None:
    coordinator = Coordinator()
    warn_on_join_response(SimpleNamespace(_coordinator=coordinator), WarnOnce(logging.getLogger("test")))
    sound = SimpleNamespace(error_code=0, leader="m1")
    served = SimpleNamespace(error_code=0, leader="")
    refused = SimpleNamespace(error_code=79, leader="")
    failed = SimpleNamespace(error_code=-1, leader="")
    unfit = SimpleNamespace(error_code=InconsistentGroupProtocolError.errno, leader="")
    answers = [sound, refused, failed, failed, sound, failed, failed]
    for each in answers:
        assert coordinator._process_join_group_response(each, 0.0) is each
    assert not caplog.records
    more: list[object] = [failed, failed, served, served, unfit, unfit, "odd"]
    for answer in more:
        coordinator._process_join_group_response(answer, 0.0)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 4
    assert "doctor --group g --fix" in messages[0]
    assert "KIP-848" in messages[1]
    assert "into group g" in messages[2]
    assert "(range, sticky)" in messages[2]
    assert "differs" in messages[3]
    assert len(coordinator.processed) == len(answers) + len(more)
