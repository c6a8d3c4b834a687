"""Counters of brokers, as jmx_exporter publishes them, in place of what logs grow by and groups are assumed to read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rackassign.bill.broker_metrics import (
    BrokerCounters,
    BrokerTopic,
    apply_broker_metrics,
    late_followers,
    read_broker_metrics,
)
from rackassign.bill.usage import ItemKey, Setting, Span, Usage
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.monitoring import ClusterReport
from tests.helpers.builders import cluster, group, inspected, member, rates

Write = Callable[[str, str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def one(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return one


def default_names(broker: int, leader: int, copied: int, received: int, sent: int) -> str:
    """The text of a broker with jmx_exporter's own names, and averages and totals that must not count."""
    fetcher = f'clientId="ReplicaFetcherThread-0-{leader}",brokerHost="b{leader}",brokerPort="9092"'
    return f"""# HELP kafka_server_BrokerTopicMetrics_Count Attribute exposed for management
# TYPE kafka_server_BrokerTopicMetrics_Count untyped
kafka_server_BrokerTopicMetrics_Count{{name="BytesInPerSec"}} 99999.0
kafka_server_BrokerTopicMetrics_Count{{name="BytesInPerSec",topic="t"}} {received}.0
kafka_server_BrokerTopicMetrics_Count{{name="BytesOutPerSec",topic="t"}} {sent}.0
kafka_server_BrokerTopicMetrics_Count{{name="MessagesInPerSec",topic="t"}} 7.0
kafka_server_BrokerTopicMetrics_OneMinuteRate{{name="BytesInPerSec",topic="t"}} 12.5
kafka_server_BrokerTopicMetrics_Count{{name="ReassignmentBytesInPerSec"}} 5.0
kafka_server_FetcherStats_Count{{{fetcher},name="BytesPerSec"}} {copied}.0
kafka_server_FetcherStats_Count{{{fetcher},name="RequestsPerSec"}} 71.0
kafka_server_FetcherStats_MeanRate{{{fetcher},name="BytesPerSec"}} 1.0
kafka_server_app_info_StartTimeMs{{id="{broker}"}} 1.7E12
jvm_gc_collection_seconds_count{{gc="Copy"}} 3.0
"""


def strimzi_names(leader: int, copied: int, received: int, sent: int, labels: str = "") -> str:
    """The text of a broker with Strimzi's rules, whose pattern for two labels leaves a third one in a label's name."""
    fetcher = f'clientId_ReplicaFetcherThread_0_{leader}__brokerHost="b",brokerPort="1",{labels}'
    return f"""kafka_server_brokertopicmetrics_bytesin_total{{{labels}}} 99999.0
kafka_server_brokertopicmetrics_bytesin_total{{topic="t",{labels}}} {received}.0
kafka_server_brokertopicmetrics_bytesout_total{{topic="t",{labels}}} {sent}.0
kafka_server_brokertopicmetrics_messagesin_total{{topic="t",{labels}}} 7.0
kafka_server_fetcherstats_bytes_total{{{fetcher}}} {copied}.0
kafka_server_fetcherstats_requests_total{{{fetcher}}} 71.0
"""


def test_default_names_are_read_and_tell_which_broker_it_is(write: Write) -> None:
    found = read_broker_metrics(
        [write("1", default_names(1, 2, 10, 20, 30)), write("2", default_names(2, 1, 40, 50, 60))]
    )
    assert found.copied == {(2, 1): 10, (1, 2): 40}
    assert found.received == {BrokerTopic(1, "t"): 20, BrokerTopic(2, "t"): 50}
    assert found.sent == {BrokerTopic(1, "t"): 30, BrokerTopic(2, "t"): 60}
    assert found.read_at.keys() == {1, 2}


def test_names_of_strimzi_are_read_and_the_broker_is_given(write: Write) -> None:
    text = write("1", strimzi_names(2, 10, 20, 30))
    found = read_broker_metrics([f"1={text}"])
    assert (found.copied, found.received, found.sent) == (
        {(2, 1): 10},
        {BrokerTopic(1, "t"): 20},
        {BrokerTopic(1, "t"): 30},
    )
    with pytest.raises(ConfigError, match=f"1: does not have the ID of its broker; put it before the source: 1={text}"):
        read_broker_metrics([text])


def test_brokers_of_one_federated_text_are_known_by_their_pods(write: Write) -> None:
    text = write("all", "".join(strimzi_names(3 - b, 10 * b, b, b, f'pod="kafka-{b}",') for b in (1, 2)))
    found = read_broker_metrics([text])
    assert found.copied == {(2, 1): 10, (1, 2): 20}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no FetcherStats and no BrokerTopicMetrics"),
        ("jvm_threads 3\n", "has no FetcherStats and no BrokerTopicMetrics"),
        ('kafka_server_BrokerTopicMetrics_Count{name="BytesInPerSec"} 1.0\n', "has no FetcherStats"),
        ('kafka_server_BrokerTopicMetrics_Count{name="BytesInPerSec" 1.0\n', "expected metrics in Prometheus's text"),
        ("\xff", "has no FetcherStats"),
    ],
)
def test_a_text_that_is_not_of_a_broker_is_refused(write: Write, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read_broker_metrics([write("x", text)])


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-5", "1e400"])
def test_a_counter_that_is_no_number_of_bytes_is_refused(write: Write, value: str) -> None:
    text = default_names(1, 2, 10, 20, 30).replace(" 20.0", f" {value}")
    with pytest.raises(ConfigError, match=r"_Count has the value .*, expected bytes"):
        read_broker_metrics([write("x", text)])


def test_one_broker_in_two_sources_would_count_twice(write: Write) -> None:
    sources = [write("1", default_names(1, 2, 10, 20, 30)), write("2", default_names(1, 2, 10, 20, 30))]
    with pytest.raises(ConfigError, match="broker 1 is in the metrics of another source, too"):
        read_broker_metrics(sources)


def test_rates_are_of_each_broker_s_own_interval_and_a_restart_begins_at_nothing() -> None:
    before = BrokerCounters({(2, 1): 100.0}, {BrokerTopic(1, "t"): 900.0}, {}, {1: 5.0})
    after = BrokerCounters({(2, 1): 300.0, (1, 2): 9.0}, {BrokerTopic(1, "t"): 100.0}, {}, {1: 15.0, 2: 15.0})
    found = after.since(before)
    # Broker 2 was not seen before, so its rates are not known.
    assert found.copied == {(2, 1): 20.0, (1, 2): 0.0}
    assert found.received == {BrokerTopic(1, "t"): 10.0}


def usage(read: float) -> Usage:
    there = cluster({"t": [[1, 2], [2, 3], [3, 1]]})
    measured = rates({("t", p): 100.0 for p in range(3)})
    live = group(*(member(rack, rack, {"t": [(i + 1) % 3]}) for i, rack in enumerate("abc")))
    report = ClusterReport(there, (inspected(live, there, rates({("t", p): read for p in range(3)})),), (), measured)
    return Usage.of(report)


def counted(received: float, sent: float, brokers: int = 3) -> BrokerCounters:
    ids = range(1, brokers + 1)
    return BrokerCounters(
        {(b, b % brokers + 1): 70.0 for b in ids},
        {BrokerTopic(b, "t"): received for b in ids},
        {BrokerTopic(b, "t"): sent for b in ids},
        {},
    )


def test_replicating_is_what_followers_have_fetched_and_producing_what_leaders_have_received() -> None:
    found, copied = apply_broker_metrics(usage(100.0), counted(150.0, 100.0))
    assert (copied.cross, copied.pairs[("a", "b")]) == (210.0, 70.0)
    assert found.written == {TopicPartition("t", p): pytest.approx(150.0) for p in range(3)}


def test_followers_that_copy_more_than_is_written_catch_up() -> None:
    found, copied = apply_broker_metrics(usage(100.0), counted(70.0, 100.0))
    assert not [*late_followers(found, copied)]
    (note,) = late_followers(found, replace(copied, pairs={pair: 5 * size for pair, size in copied.pairs.items()}))
    assert note.startswith("followers copy 5.0 times what is written to them: some catch up")


def test_what_coordinators_write_themselves_is_of_their_own_rack() -> None:
    there = cluster({"__consumer_offsets": [[1, 2], [2, 3], [3, 1]]})
    # Nothing was seen to grow: the topic is compacted.
    of = Usage.of(ClusterReport(there, (), (), rates({("__consumer_offsets", p): 0.0 for p in range(3)})))
    ids = (1, 2, 3)
    received = {BrokerTopic(b, "__consumer_offsets"): 10.0 for b in ids}
    found, _ = apply_broker_metrics(of, BrokerCounters({(b, b % 3 + 1): 10.0 for b in ids}, received, {}, {}))
    assert found.items(Setting())[ItemKey("producing", "__consumer_offsets")].across == Span()


def test_groups_read_less_where_brokers_send_less() -> None:
    found, _ = apply_broker_metrics(usage(100.0), counted(100.0, 60.0))
    assert found.items(Setting())[ItemKey("consuming", "t", "g")].traffic.total == pytest.approx(180.0)
    assert not found.other_reads


def test_what_is_sent_beside_the_groups_is_read_by_others_of_unknown_rack() -> None:
    found, _ = apply_broker_metrics(usage(100.0), counted(100.0, 250.0))
    assert found.items(Setting())[ItemKey("consuming", "t")].across == Span(0.0, 450.0)


def test_a_difference_of_a_moment_is_no_reader() -> None:
    found, _ = apply_broker_metrics(usage(100.0), counted(100.0, 110.0))
    assert not found.other_reads


def test_metrics_of_all_brokers_are_needed_and_of_no_others() -> None:
    with pytest.raises(ConfigError, match="expected the metrics of all brokers; missing: 3"):
        apply_broker_metrics(usage(100.0), counted(100.0, 100.0, 2))
    with pytest.raises(ConfigError, match="4 is no broker of this cluster"):
        apply_broker_metrics(usage(100.0), counted(100.0, 100.0, 4))
