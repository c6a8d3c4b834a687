"""Statistics of librdkafka: its JSON text as checked, typed records.

Several parts count with them: the locality of consumers, the detection of stalled partitions, the measurements of Spark
tasks. They are read here once, so that a change of librdkafka's format has one place. Checked with 1.9 to 2.16.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

_Value = TypeVar("_Value", int, str)
_NO_ID = -1
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    """Counts of one connection since the client was created.

    Args:
        name: Name of the connection; the group coordinator has one of its own.
        broker: Broker ID; -1 for a bootstrap address.
        received_bytes: Bytes received over the network.
        in_flight: Requests without a response so far.
    """

    name: str
    broker: int
    received_bytes: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class PartitionStatistics:
    """Counts of one partition since librdkafka has known it.

    Args:
        topic: Its topic.
        partition: Its number.
        broker: Broker ID of the replica it is read from or written to; -1 for none.
        received_bytes: Bytes of keys and values received, decompressed.
        received_records: Records received.
        next_offset: Offset of the next record to fetch; negative before the first fetch.
        delivered_offset: Offset after the last record returned to the application; negative before the first one.
        fetch_state: State of fetching, in librdkafka's terms.
        queued_records: Records in the queue that it is delivered from; consumers have one for all partitions.
        queued_bytes: Size of that queue.
        sent_bytes: Bytes of keys and values that a producer has sent, uncompressed.
        sent_records: Records that it has sent.
    """

    topic: str
    partition: int
    broker: int
    received_bytes: int
    received_records: int
    next_offset: int
    delivered_offset: int
    fetch_state: str
    queued_records: int
    queued_bytes: int
    sent_bytes: int
    sent_records: int


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    """Statistics of one client.

    Args:
        client: Name of the client, unique in a process.
        made_us: When they were made, in microseconds of a clock that never goes back.
        brokers: Its connections.
        partitions: Its partitions.
    """

    client: str
    made_us: int
    brokers: tuple[BrokerStatistics, ...]
    partitions: tuple[PartitionStatistics, ...]

    @classmethod
    def from_json(cls, text: str) -> ClientStatistics:
        """Parse what librdkafka passes to a `stats_cb`.

        Raises:
            ValueError: The text is not JSON.
            KeyError, TypeError, AttributeError, RecursionError: It is JSON, but of another format.
        """
        reported = json.loads(text)
        return cls(
            _typed(reported, "name", str),
            _typed(reported, "ts", int),
            _brokers(reported),
            tuple(
                _partition(topic, counts)
                for topic, described in reported["topics"].items()
                for counts in described["partitions"].values()
                # Partition -1 is for messages without a partition.
                if _typed(counts, "partition", int) != _NO_ID
            ),
        )

    @classmethod
    def of_connections(cls, text: str) -> ClientStatistics:
        """Parse what librdkafka passes to a `stats_cb`, without its partitions: those of each topic are all described.

        With 5000 partitions, this takes a twentieth of the time of `from_json`, which is longer than a short interval
        between reports. A client that is called back without a pause does not return from a poll.

        Raises:
            ValueError: The text is not JSON, or has no such part.
            KeyError, TypeError, AttributeError, RecursionError: It is JSON, but of another format.
        """
        reported = {key: _first_value(text, key) for key in ("name", "ts", "brokers")}
        return cls(_typed(reported, "name", str), _typed(reported, "ts", int), _brokers(reported), ())


def await_reports(
    poll: Callable[[float], object],
    reports: Callable[[], int],
    *,
    timeout_s: float,
    settled: Callable[[], bool] = lambda: True,
) -> bool:
    """Wait for statistics that include all that a client did before this call; return whether they came in time.

    Reports that are queued already can be older than that, and the first one after them can be, too. So the queue is
    emptied first, and the second report after that is the one.

    Args:
        poll: Calls the client's callbacks, for up to the given seconds.
        reports: Returns the number of reports that the callback received so far.
        timeout_s: Time limit in seconds.
        settled: A further condition on the last report.
    """
    deadline = time.monotonic() + timeout_s
    poll(0.0)
    enough = reports() + 2
    while reports() < enough or not settled():
        if time.monotonic() >= deadline:
            return False
        poll(_POLL_S)
    return True


def _first_value(text: str, key: str) -> Any:  # noqa: ANN401 - any JSON
    """Return the value after the first occurrence of a key in the text of a JSON object."""
    found = re.search(rf'"{key}"\s*:\s*', text)
    if found is None:
        raise ValueError(f"no {key} in statistics")
    return json.JSONDecoder().raw_decode(text, found.end())[0]


def _brokers(reported: Mapping[str, Any]) -> tuple[BrokerStatistics, ...]:
    return tuple(_broker(name, counts) for name, counts in reported["brokers"].items())


def _broker(name: str, counts: Mapping[str, Any]) -> BrokerStatistics:
    return BrokerStatistics(
        name, _typed(counts, "nodeid", int), _typed(counts, "rxbytes", int), _typed(counts, "waitresp_cnt", int)
    )


def _partition(topic: str, counts: Mapping[str, Any]) -> PartitionStatistics:
    return PartitionStatistics(
        topic,
        _typed(counts, "partition", int),
        _typed(counts, "broker", int),
        _typed(counts, "rxbytes", int),
        _typed(counts, "rxmsgs", int),
        _typed(counts, "next_offset", int),
        _typed(counts, "app_offset", int),
        _typed(counts, "fetch_state", str),
        _typed(counts, "fetchq_cnt", int),
        _typed(counts, "fetchq_size", int),
        _typed(counts, "txbytes", int),
        _typed(counts, "txmsgs", int),
    )


def _typed(counts: Mapping[str, Any], key: str, wanted: type[_Value]) -> _Value:
    value: _Value = counts[key]
    # Not isinstance(): a bool is an int.
    if type(value) is not wanted:
        raise TypeError(f"{key}: expected {wanted.__name__}, got {value!r}")
    return value
