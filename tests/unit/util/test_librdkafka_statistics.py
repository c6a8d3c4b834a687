"""Statistics of librdkafka: their parts, and waiting for those that are not from before."""

from __future__ import annotations

from collections import deque

import pytest

from rackassign.util.librdkafka_statistics import ClientStatistics, ConnectionStatistics, await_reports
from tests.helpers.librdkafka_statistics import broker, partition, statistics_json


class Client:
    """A client whose reports wait in a queue until it is polled; each is the time at which it was made."""

    def __init__(self, queued: list[int], coming: list[int]) -> None:
        self.received: list[int] = []
        self._queued = deque(queued)
        self._coming = deque(coming)

    def poll(self, timeout_s: float) -> None:
        while self._queued:
            self.received.append(self._queued.popleft())
        if timeout_s and self._coming:
            self.received.append(self._coming.popleft())

    def reports(self) -> int:
        return len(self.received)


def test_what_is_queued_is_skipped_and_so_is_the_report_that_was_being_made() -> None:
    client = Client([1, 2, 3], [4, 5, 6])
    assert await_reports(client.poll, client.reports, timeout_s=60)
    assert client.received == [1, 2, 3, 4, 5]


def test_it_goes_on_until_the_last_report_is_settled() -> None:
    client = Client([1], [2, 3, 4, 5])
    assert await_reports(client.poll, client.reports, timeout_s=60, settled=lambda: client.received[-1] >= 4)
    assert client.received == [1, 2, 3, 4]


@pytest.mark.parametrize("coming", [[], [2]])
def test_it_ends_without_reports(coming: list[int]) -> None:
    client = Client([1], coming)
    assert not await_reports(client.poll, client.reports, timeout_s=0.05)


def test_all_that_is_declared_is_read_and_only_that() -> None:
    text = statistics_json([partition(3, txmsgs=4), partition(-1)], {"k:1/1": broker(1, 5)})
    found = ClientStatistics.from_json(text)
    assert [(topic, each.partition, each.sent_records) for topic, each in found.partitions()] == [("t", 3, 4)]
    connections = ConnectionStatistics.from_json(text.replace('"topics"', '"others"'))
    assert (connections.client, connections.made_us, connections.brokers) == ("rdkafka#consumer-1", 0, found.brokers)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", '{"name": "c", "ts": 1}', '{"name": "c", "ts": 1, "brokers": {"'),
        statistics_json([partition(3)]).replace('"ts": 0', '"ts": true'),
        statistics_json([partition(3, rxbytes="7")]),
        statistics_json([{"partition": 3}]),
    ],
)
def test_text_of_another_format_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        ClientStatistics.from_json(text)
