"""What brokers count themselves: replication by pair of brokers, and bytes in and out by topic and broker.

The counters are those of Kafka's MBeans, as jmx_exporter publishes them, with its default names or with the rules of
Strimzi: `FetcherStats` `BytesPerSec` (a follower's fetches from one leader) and `BrokerTopicMetrics` `BytesInPerSec`
and `BytesOutPerSec` (without followers' fetches). They are bytes of record batches, without headers.

With them replicating is exact by pair of brokers, also where logs are deleted or compacted meanwhile, producing by
topic and leader, and consuming by topic and serving broker. In which rack a producer or a reader is they do not show.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from rackassign.bill.usage import BROKERS_OWN, OVERCLAIMED, Setting, Usage
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.monitoring.metrics_text import MetricsText, counted_bytes, parse_metrics, read_metrics
from rackassign.monitoring.traffic import TrafficMatrix
from rackassign.text import join_ids, parse_digits, short_repr

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

_NAMES = ("fetcherstats", "brokertopicmetrics", "app_info")
"""In names of metrics, in small letters."""

_SOURCE = re.compile(r"(\d+)=(.+)", re.DOTALL)
_FETCHER = re.compile(r"ReplicaFetcherThread[-_]\d+[-_](\d+)")
_POD = re.compile(r".*-(\d+)\Z")
_PODS = ("pod", "kubernetes_pod_name", "pod_name")
"""Labels with the pod of a broker, whose name ends with the broker's ID, where one text has several brokers."""

_SAME, _MOMENT_S = 0.03, 1.5
"""Differences of that share, or of that many seconds, are no readers of their own: logs and counters are not read at
the same moment."""


class BrokerTopic(NamedTuple):
    """A broker and a topic."""

    broker: int
    topic: str


@dataclass(frozen=True, slots=True)
class BrokerCounters:
    """Bytes that brokers have counted since they were started, or bytes per second between two looks.

    Args:
        copied: By leader and follower.
        received: Of producers, by leader and topic.
        sent: To consumers, by serving broker and topic.
        read_at: When the metrics of each broker were read, in seconds; empty for bytes per second.
    """

    copied: Mapping[tuple[int, int], float]
    received: Mapping[BrokerTopic, float]
    sent: Mapping[BrokerTopic, float]
    read_at: Mapping[int, float]

    def since(self, before: BrokerCounters) -> BrokerCounters:
        """Return bytes per second since an earlier look; a counter that has sunk began at 0 again."""
        seconds = {broker: at - before.read_at.get(broker, at) for broker, at in self.read_at.items()}

        def rate(now: float, then: float, broker: int) -> float:
            return (now - then if now >= then else now) / seconds[broker] if seconds[broker] > 0 else 0.0

        return BrokerCounters(
            {pair: rate(now, before.copied.get(pair, 0.0), pair[1]) for pair, now in self.copied.items()},
            {key: rate(now, before.received.get(key, 0.0), key.broker) for key, now in self.received.items()},
            {key: rate(now, before.sent.get(key, 0.0), key.broker) for key, now in self.sent.items()},
            {},
        )


def read_broker_metrics(sources: Sequence[str]) -> BrokerCounters:
    """Read the metrics of brokers.

    Args:
        sources: Files and http or https addresses; `ID=` before one is the ID of its broker.

    Raises:
        ConfigError: A source cannot be read, has none of the metrics, or does not have the ID of its broker.
    """
    given = [_SOURCE.fullmatch(source) for source in sources]
    ids = [None if match is None else parse_digits(match[1]) for match in given]
    names = [source if match is None else match[2] for source, match in zip(sources, given, strict=True)]
    copied, received, sent = Counter[tuple[int, int]](), Counter[BrokerTopic](), Counter[BrokerTopic]()
    read_at: dict[int, float] = {}
    for id_, text in zip(ids, read_metrics(names, "metrics of brokers"), strict=True):
        for broker, sample in _samples(text, id_):
            if read_at.setdefault(broker, text.read_at) != text.read_at:
                raise ConfigError(f"{text.shown}: broker {broker} is in the metrics of another source, too")
            kind = f"{sample.name} {sample.labels.get('name', '')}".lower()
            leader = _FETCHER.search(" ".join((*sample.labels, *sample.labels.values())))
            topic = sample.labels.get("topic")
            if leader is not None and "byte" in kind:
                copied[int(leader[1]), broker] += counted_bytes(sample.value, sample.name, text.shown)
            elif topic is not None and "bytesin" in kind:
                received[BrokerTopic(broker, topic)] += counted_bytes(sample.value, sample.name, text.shown)
            elif topic is not None and "bytesout" in kind:
                sent[BrokerTopic(broker, topic)] += counted_bytes(sample.value, sample.name, text.shown)
    return BrokerCounters(copied, received, sent, read_at)


def _samples(text: MetricsText, id_: int | None) -> Iterator[tuple[int, Sample]]:
    """Yield the counters of a text, each with its broker."""
    samples = list(parse_metrics(text.text, text.shown, _NAMES))
    counters = [
        sample
        for sample in samples
        # Beside the counter each has rates as averages, which do not count.
        if sample.name.lower().endswith(("_count", "_total")) and "app_info" not in sample.name
    ]
    if not any("fetcherstats" in sample.name.lower() or "topic" in sample.labels for sample in counters):
        raise ConfigError(
            f"{text.shown}: has no FetcherStats and no BrokerTopicMetrics; expected metrics of a broker, as"
            " jmx_exporter publishes them"
        )
    own = {
        number
        for sample in samples
        if "app_info" in sample.name
        for label in ("id", "client_id")
        if (number := parse_digits(sample.labels.get(label, ""))) is not None
    }
    if id_ is not None and len(own) == 1 and id_ not in own:
        raise ConfigError(f"{text.shown}: is given as broker {id_}, and its metrics are of broker {min(own)}")
    for sample in counters:
        pod = next((match for label in _PODS if (match := _POD.match(sample.labels.get(label, "")))), None)
        if id_ is None and pod is None and len(own) != 1:
            raise ConfigError(
                f"{text.shown}: does not have the ID of its broker; put it before the source: 1={text.shown}"
            )
        yield id_ if id_ is not None else int(pod[1]) if pod is not None else min(own), sample


def apply_broker_metrics(usage: Usage, rates: BrokerCounters) -> tuple[Usage, TrafficMatrix]:
    """Return the usage with what brokers count of topics, and replicating between racks as they count it.

    What more is sent than the groups of the report read, readers without a group read, or those of groups that are not
    in the report; if less is sent, the groups read less than is written.

    Raises:
        ConfigError: The metrics of some brokers are missing.
    """
    cluster = usage.cluster
    live = {broker.id for broker in cluster.brokers if not broker.fenced}
    seen = {follower for _, follower in rates.copied} | {key.broker for key in (*rates.received, *rates.sent)}
    if missing := sorted(live - seen):
        raise ConfigError(f"broker-metrics: expected the metrics of all brokers; missing: {join_ids(missing)}")
    if foreign := sorted(seen - live):
        raise ConfigError(f"broker-metrics: {short_repr(foreign[0])} is no broker of this cluster")
    racks = cluster.topology.broker_racks()
    copied: dict[tuple[str | None, str | None], float] = {}
    for (leader, follower), rate in rates.copied.items():
        pair = racks.get(leader), racks.get(follower)
        copied[pair] = copied.get(pair, 0.0) + rate
    received = _with_received(usage, rates)
    factors, others = _compare_sent(received, rates, racks)
    return replace(received, read_factors=factors, other_reads=others), TrafficMatrix(copied)


def late_followers(usage: Usage, copied: TrafficMatrix) -> Iterator[str]:
    """Yield that followers copy more than is written, which does not last."""
    items = usage.items(Setting()).items()
    written = sum(item.traffic.total for key, item in items if key.line == "replicating")
    if written and copied.total > OVERCLAIMED * written:
        yield (
            f"followers copy {copied.total / written:.1f} times what is written to them: some catch up, or replicas are"
            " moved, which does not last"
        )


def _with_received(usage: Usage, rates: BrokerCounters) -> Usage:
    """Return the usage with what each broker has received of a topic in place of the growth of its logs."""
    racks = usage.cluster.topology.broker_racks()
    led: dict[BrokerTopic, list[TopicPartition]] = {}
    for topic, row in usage.cluster.topology.topics.items():
        for i, partition in enumerate(row):
            if partition.leader is not None:
                led.setdefault(BrokerTopic(partition.leader, topic), []).append(TopicPartition(topic, i))
    writers = dict(usage.writers)
    for key, rate in rates.received.items():
        tps = led.get(key, ())
        size = sum(sum(writers.get(tp, {}).values()) for tp in tps)
        for tp in tps:
            if size:
                writers[tp] = {rack: amount * rate / size for rack, amount in writers.get(tp, {}).items()}
            else:
                home = racks.get(key.broker) if key.topic in BROKERS_OWN else None
                writers[tp] = {home: rate / len(tps)}
    return replace(usage, writers=writers)


def _compare_sent(
    usage: Usage, rates: BrokerCounters, racks: Mapping[int, str]
) -> tuple[dict[str, float], dict[str, TrafficMatrix]]:
    """Return by which factor the groups read less of each topic than assumed, and what others read."""
    read: dict[str, dict[str | None, float]] = {}
    for key, item in usage.items(Setting()).items():
        if key.line == "consuming":
            of_topic = read.setdefault(key.topic, {})
            for (source, _), rate in item.traffic.pairs.items():
                of_topic[source] = of_topic.get(source, 0.0) + rate
    sent: dict[str, dict[str | None, float]] = {}
    for broker_topic, rate in rates.sent.items():
        of_topic = sent.setdefault(broker_topic.topic, {})
        rack = racks.get(broker_topic.broker)
        of_topic[rack] = of_topic.get(rack, 0.0) + rate
    same = max(_SAME, _MOMENT_S / usage.measured.seconds)
    factors: dict[str, float] = {}
    others: dict[str, TrafficMatrix] = {}
    for topic, of_topic in sent.items():
        known = read.get(topic, {})
        whole, assumed = sum(of_topic.values()), sum(known.values())
        if assumed and whole < assumed:
            factors[topic] = whole / assumed
        elif whole > assumed * (1 + same):
            rest = {(rack, None): max(0.0, size - known.get(rack, 0.0)) for rack, size in of_topic.items()}
            others[topic] = TrafficMatrix({pair: size for pair, size in rest.items() if size > same * whole})
    return factors, {topic: matrix for topic, matrix in others.items() if matrix.pairs}
