"""The meter of librdkafka's statistics: what it counts, and what it lets pass."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackassign.clients.confluent import StatsMeter
from rackassign.clients.fetch_metrics import Traffic
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from tests.helpers.librdkafka_statistics import broker, partition, statistics_json

RACKS = {1: "a", 2: "b", 3: None}


def statistics(*partitions: tuple[int, int, int, int], topic: str = "t", brokers: dict[int, int] | None = None) -> str:
    """Return statistics as librdkafka 2.16 writes them: number, broker, bytes and records of each partition."""
    return statistics_json(
        [partition(number, broker=at, rxbytes=size, rxmsgs=records) for number, at, size, records in partitions],
        {f"host:{number}": broker(number, size) for number, size in (brokers or {}).items()},
        topic=topic,
    )


def test_what_came_since_the_last_time_is_counted_by_rack() -> None:
    meter = StatsMeter("a", RACKS)
    meter(statistics((0, 1, 100, 1), (1, 2, 500, 5), (2, 3, 7, 1), (-1, -1, 9, 9)))
    meter(statistics((0, 1, 300, 3), (1, 2, 500, 5), (2, 3, 7, 1)))
    read = meter.locality()
    assert read.by_rack() == {"a": Traffic(300, 3), "b": Traffic(500, 5), None: Traffic(7, 1)}
    assert read.local_share() == 300 / 800
    assert meter.bytes_by_rack() == {"a": 300, "b": 500, None: 7}


@pytest.mark.parametrize(
    ("reports", "read"),
    [
        pytest.param([(2, 0, 0), (1, 100, 1), (2, 150, 2)], {"a": 100, "b": 50}, id="the broker of now"),
        pytest.param([(1, 100, 1), (-1, 150, 2)], {"a": 150}, id="no broker any more"),
        pytest.param([(1, 100, 1), (1, 30, 1)], {"a": 130}, id="counts begin again"),
    ],
)
def test_what_came_in_an_interval_is_of_one_broker(reports: list[tuple[int, int, int]], read: dict[str, int]) -> None:
    meter = StatsMeter("a", RACKS)
    for each in reports:
        meter(statistics((0, *each)))
    assert meter.bytes_by_rack() == read


def test_topics_are_told_apart() -> None:
    meter = StatsMeter("a", RACKS)
    meter(statistics((0, 1, 100, 1)))
    meter(statistics((0, 2, 40, 1), topic="u"))
    assert meter.locality().by_rack("u") == {"b": Traffic(40, 1)}
    assert meter.locality().by_rack("t") == {"a": Traffic(100, 1)}


def test_a_partition_is_read_from_the_broker_of_the_last_statistics() -> None:
    meter = StatsMeter("a", RACKS)
    assert meter.broker_of(TopicPartition("t", 0)) is None
    meter(statistics((0, 2, 0, 0), (1, -1, 0, 0)))
    meter(statistics((0, 1, 100, 1)))
    assert [meter.broker_of(TopicPartition("t", number)) for number in range(3)] == [1, None, None]


def test_all_that_was_received_is_known_by_rack() -> None:
    meter = StatsMeter("a", RACKS.get)
    meter(statistics(brokers={1: 10, 2: 20, -1: 5}))
    meter(statistics(brokers={1: 15, 3: 1}))
    assert meter.received_by_rack() == {"a": 15, "b": 20, None: 6}


def test_another_client_counts_from_nothing() -> None:
    meter = StatsMeter("a", RACKS)
    meter(statistics((0, 1, 100, 1), brokers={1: 10}))
    meter.reset()
    meter(statistics((0, 1, 150, 2), brokers={1: 15}))
    assert meter.bytes_by_rack() == {"a": 250}
    assert meter.received_by_rack() == {"a": 25}


def test_a_consumer_without_rack_reads_nothing_at_home() -> None:
    meter = StatsMeter("", RACKS)
    meter(statistics((0, 1, 100, 1)))
    assert meter.locality().rack is None
    assert meter.locality().local_share() is None
    with pytest.raises(ConfigError, match="racks: expected a dict"):
        StatsMeter("a", ["a"])  # type: ignore[arg-type]


ODD: list[Any] = [
    "",
    "{",
    "[]",
    "null",
    "[" * 100_000,
    json.dumps({"name": "c", "topics": {}}),
    json.dumps({"name": "c", "ts": 1, "topics": {"t": None}, "brokers": {}}),
    json.dumps({"name": "c", "ts": 1, "topics": {"t": {"partitions": []}}, "brokers": {}}),
    json.dumps({"topics": {}, "brokers": {}}),
    statistics((0, 1, 10, 1)).replace("10", '"10"'),
    statistics((0, 1, 10, 1)).replace("10", "true"),
    statistics((0, 1, 10, 1)).replace("10", "1e400"),
    statistics((0, 1, 10, 1)).replace("rxbytes", "bytes"),
    statistics(brokers={1: 10}).replace("10", "null"),
    None,
    b"\xff",
]


LOGGER = "rackassign.clients.confluent._stats_meter"


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_what_makes_no_sense_is_left_out_and_said_once(odd: Any, caplog: pytest.LogCaptureFixture) -> None:
    meter = StatsMeter("a", RACKS)
    meter(statistics((0, 1, 100, 1)))
    with caplog.at_level(logging.WARNING):
        meter(odd)
        meter(odd)
    # A consumer that another test dropped may be garbage-collected now, and log that.
    assert len([record for record in caplog.records if record.name == LOGGER]) == 1
    meter(statistics((0, 1, 150, 2)))
    assert meter.bytes_by_rack() == {"a": 150}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["name", "ts", "topics", "partitions", "brokers", "0", "partition", "broker", "rxbytes", "rxmsgs"]
                ),
                inner,
            )
        ),
        max_leaves=20,
    )
)
def test_no_statistics_raise(odd: Any) -> None:
    StatsMeter("a", RACKS)(json.dumps(odd))
