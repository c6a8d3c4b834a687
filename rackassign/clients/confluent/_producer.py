"""A producer of confluent-kafka that writes to leaders in its rack (KIP-1123).

librdkafka reads no racks and takes no partitioner from Python. So the leaders and their racks are read by an admin
client on a thread of its own, and `produce()` names the partition. Only the first record of a topic waits for that
thread, and not for long: while the leaders of its topic are not known, librdkafka chooses.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicCollection
from confluent_kafka.admin import AdminClient

from rackassign.assignor.member import resolve_rack
from rackassign.clients.confluent._config import CLIENT_ID, STATISTICS, ProducerConfig
from rackassign.clients.confluent.internals import UNKNOWN_PARTITION
from rackassign.clients.fetch_metrics import RackTraffic, Traffic
from rackassign.clients.local_leaders import LocalLeaders
from rackassign.clients.write_metrics import WriteMeter, meter_of, set_meter
from rackassign.model import TOPIC_NAME, TopicPartition
from rackassign.racks import client_id_with_zone
from rackassign.text import Settings, WarnOnce, describe_error
from rackassign.util.librdkafka_statistics import ClientStatistics, PartitionStatistics

if TYPE_CHECKING:
    from types import TracebackType

log = logging.getLogger(__name__)

_ANY = -1
"""The partition of a record for which librdkafka chooses one."""

_RETRY_S = 0.5
"""First pause after a look that has failed, or has not found a topic; the next ones are twice as long each."""

_DOUBLINGS = 10

_FIRST_RECORD_S = 0.1
"""How long the first record of a topic waits for its leaders. Other clients wait for metadata here, too, for longer."""

_REQUEST_S = 5.0
"""Time limit of a request; twice that for its result, as librdkafka may report the end of the limit late."""

_TOPICS_AT_ONCE = 200
"""Topics of a request. All threads of the process wait while its response becomes objects: of 10,000 topics for 0.1 s
and more, of 200 for some milliseconds."""

_PRODUCER_ONLY = frozenset(
    (
        *("transactional.id", "enable.idempotence", "enable.gapless.guarantee"),
        *("statistics.interval.ms", "stats_cb", "error_cb", "throttle_cb", "on_delivery"),
    )
)
"""Properties that an admin client must not share with a producer."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker in metadata; compared by its values, while a choice is up to date only for this very object.

    Args:
        rack: Its rack; None if it has none.
    """

    rack: str | None


@dataclass(frozen=True, slots=True)
class Leaders:
    """The leaders of topics at one time, as `LocalLeaders` reads metadata."""

    nodes: Mapping[int, Broker] = field(default_factory=dict)
    # For each topic the leader of each partition, -1 if there is none.
    topics: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def brokers(self) -> Iterable[Broker]:
        return self.nodes.values()

    def broker_metadata(self, broker_id: int) -> Broker | None:
        return self.nodes.get(broker_id)

    def partitions_for_topic(self, topic: str) -> Iterable[int] | None:
        return self.topics.get(topic)

    def leader_for_partition(self, partition: TopicPartition) -> int | None:
        leaders = self.topics.get(partition.topic)
        return None if leaders is None else leaders.get(partition.partition)


def read_leaders(admin: AdminClient, topics: Iterable[str], before: Leaders) -> Leaders:
    """Return the leaders of topics that exist, as before for those that cannot be described now. Blocks."""
    cluster = admin.describe_cluster(request_timeout=_REQUEST_S).result(2 * _REQUEST_S)
    found: dict[str, Mapping[int, int]] = {}
    names = list(topics)
    for first in range(0, len(names), _TOPICS_AT_ONCE):
        part = TopicCollection(names[first : first + _TOPICS_AT_ONCE])
        for topic, future in admin.describe_topics(part, request_timeout=_REQUEST_S).items():
            try:
                rows = future.result(2 * _REQUEST_S).partitions
            except KafkaException as error:
                code = error.args[0].code()
                if code < 0:
                    # Not of a broker but of librdkafka, for all topics of the request.
                    raise
                log.debug("the leaders of topic %s are not known: %s", topic, describe_error(error))
                # One that was deleted may be created again, with fewer partitions.
                if topic in before.topics and code != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    found[topic] = before.topics[topic]
                continue
            found[topic] = {row.id: _ANY if row.leader is None else row.leader.id for row in rows}
    return Leaders({node.id: Broker(node.rack or None) for node in cluster.nodes}, found)


class LeaderWatch:
    """Reads the leaders of topics on a thread, which refers only to this object, so that a producer can be released."""

    def __init__(self, properties: Mapping[str, Any], refresh_s: float) -> None:
        # As of the last look; replaced by each look that has found a change.
        self.leaders = Leaders()
        self._properties = properties
        self._refresh_s = refresh_s
        self._topics: set[str] = set()
        self._new: set[str] = set()
        """Topics that no look has included yet."""
        self._read = threading.Condition()
        """For `_topics` and `_new`; notified after each look."""
        self._patient = True
        """Whether records wait: not after one has waited in vain, until brokers have responded."""
        self._refused: set[str] = set()
        """Topics of which the producer has refused a partition since the last look."""
        self._look = threading.Event()
        self._over = False
        self._producer: Callable[[], Producer | None] = lambda: None
        self._in_use = threading.RLock()
        """Held while the thread uses the producer, which must not be closed then."""
        self._credentials: tuple[str, str] | None = None
        self._once = WarnOnce(log)

    def begin(self, producer: Producer) -> None:
        """Read the racks of brokers from now on, and the leaders of topics that are added; returns at once."""
        # With a strong reference, the thread would keep the producer.
        self._producer = weakref.ref(producer)
        threading.Thread(target=self._run, name="rackassign-leaders", daemon=True).start()

    def add(self, topic: str) -> None:
        """Read the leaders of this topic, too; returns when they are known, and after 100 ms at the latest.

        After a record has waited in vain, none waits until brokers respond again.
        """
        with self._read:
            self._include(topic)
            if topic in self._new and self._patient and not self._over:
                self._patient = self._read.wait_for(lambda: topic not in self._new, _FIRST_RECORD_S)

    def await_leaders(self, topic: str, timeout_s: float) -> bool:
        """Read the leaders of this topic, too, and return whether they are known; waits for them."""
        with self._read:
            self._include(topic)
            return self._read.wait_for(lambda: topic in self.leaders.topics, timeout_s)

    def _include(self, topic: object) -> None:
        """Have a topic that is new in the next look, which begins now; under `_read`.

        A name that no topic can have is left out: the admin client raises an error for some, which would be the end of
        the look for all topics, and ends the process for one that is not UTF-8 (confluent-kafka 2.16.1).
        """
        if topic not in self._topics and isinstance(topic, str) and TOPIC_NAME.fullmatch(topic):
            self._topics.add(topic)
            self._new.add(topic)
            self._look.set()

    def refuse(self, topic: str) -> None:
        """Note that the producer does not know a partition that was chosen; returns at once."""
        if topic not in self._refused:
            self._refused.add(topic)
            self._look.set()

    def rack_of(self, broker: int) -> str | None:
        node = self.leaders.nodes.get(broker)
        return None if node is None else node.rack

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these credentials for new connections."""
        self._credentials = username, password

    def stop(self) -> None:
        """End the thread; waits only for a request of the producer."""
        self._over = True
        self._look.set()
        with self._in_use:
            self._producer = lambda: None

    def _run(self) -> None:
        admin: AdminClient | None = None
        missed, whole = 0, 0.0
        while True:
            self._look.clear()
            if self._over:
                return
            with self._read:
                # A topic that is new does not wait for the others, which can be thousands.
                due = monotonic() >= whole
                topics = sorted(self._topics if due else (self._topics - self.leaders.topics.keys()) | self._refused)
            try:
                if admin is None:
                    admin = AdminClient(dict(self._properties))
                if (credentials := self._credentials) is not None:
                    admin.set_sasl_credentials(*credentials)
                try:
                    seen = self._update(read_leaders(admin, topics, self.leaders), topics)
                finally:
                    # It calls the `logger` only then; until then the messages add up in memory.
                    admin.poll(0)
            except Exception as error:  # noqa: BLE001 - a thread that ends would leave the leaders as they were
                missed, whole = missed + 1, 0.0
                # It waits for the broker that was the controller in its first metadata, and never asks for newer ones
                # (librdkafka 2.16.1). A new client begins with the bootstrap servers.
                admin = None
                # A request may be on its way while the producer is closed.
                if not self._over:
                    self._once.warn(
                        "leaders",
                        "leaders of topics cannot be read, so records may go to leaders in all racks: %s",
                        describe_error(error),
                    )
            else:
                missed = 0 if seen.topics.keys() >= set(topics) else missed + 1
                self._patient = True
                if due:
                    whole = monotonic() + self._refresh_s
                if seen != self.leaders:
                    self.leaders = seen
            with self._read:
                self._new.difference_update(topics)
                self._read.notify_all()
            pause = _RETRY_S * 2.0 ** min(missed - 1, _DOUBLINGS) if missed else whole - monotonic()
            self._look.wait(min(pause, self._refresh_s))

    def _update(self, seen: Leaders, topics: list[str]) -> Leaders:
        """Return the leaders of all topics, where a topic has only partitions that the producer takes.

        librdkafka reads the partitions of a topic every 5 minutes, and takes no record for one that was added
        meanwhile. A request with the producer itself updates them.
        """
        before, read = self.leaders.topics, set(topics)
        merged = {topic: leaders for topic, leaders in before.items() if topic not in read}
        for topic, leaders in seen.topics.items():
            if topic in self._refused or (topic in before and before[topic].keys() != leaders.keys()):
                self._refused.discard(topic)
                with self._in_use:
                    producer = self._producer()
                    if producer is not None:
                        taken = producer.list_topics(topic, _REQUEST_S).topics[topic].partitions
                        merged[topic] = {number: leader for number, leader in leaders.items() if number in taken}
            else:
                merged[topic] = leaders
        return Leaders(seen.nodes, merged)


class WriteStatistics:
    """A `stats_cb` that counts what a producer sends, and then calls that of the application.

    It counts what librdkafka reports: the bytes of keys and values, uncompressed. If a partition is written to another
    broker than in the last statistics, all since then counts as the new broker's, and as the last one's if it has no
    leader now. If several threads call `poll()`, older statistics may come after newer ones, which include them: the
    older ones are not counted.
    """

    def __init__(self, meter: WriteMeter, also: Callable[[str], object] | None) -> None:
        self._meter = meter
        # The `stats_cb` of the application.
        self._also = also
        # The counts of each partition, and its leader when it was last written to.
        self._last: dict[TopicPartition, tuple[Traffic, int]] = {}
        self._counted_us = -1
        self._lock = threading.Lock()
        self._once = WarnOnce(log)

    def __call__(self, statistics: str) -> None:
        """Count what was sent since the last statistics."""
        try:
            reported = ClientStatistics.from_json(statistics)
            with self._lock:
                if reported.made_us > self._counted_us:
                    self._counted_us = reported.made_us
                    for topic, each in reported.partitions():
                        self._count(TopicPartition(topic, each.partition), each)
        except Exception:  # noqa: BLE001 - it would come out of the user's poll()
            self._once.warn("statistics", "librdkafka's statistics cannot be read", exc_info=True)
        if self._also is not None:
            self._also(statistics)

    def _count(self, tp: TopicPartition, each: PartitionStatistics) -> None:
        last, leader = self._last.get(tp, (Traffic(), each.broker))
        if each.sent_records != last.records:
            leader = each.broker if each.broker >= 0 else leader
            now = Traffic(each.sent_bytes, each.sent_records)
            self._last[tp] = now, leader
            # librdkafka counts from 0 again after it has dropped the topic meanwhile.
            since = now if now.records < last.records else Traffic(now.bytes - last.bytes, now.records - last.records)
            self._meter(leader, [(tp, since)])


_produce = Producer.produce
"""Looked up once, as a record costs about a microsecond."""


class RackAwareProducer(Producer):
    """A `confluent_kafka.Producer` that writes records without a key and a partition to leaders in its rack.

    Takes all properties of `confluent_kafka.Producer`. `client.rack` is the rack of the producer; if omitted,
    `RACKASSIGN_RACK` is read, and "auto" tries more sources (see `detect_rack`). Without a rack it is a plain producer,
    and a warning is logged.

    The leaders and their racks are read by an admin client with the same properties, on a thread of its own: when a
    topic is used for the first time, and then every 30 s or every `topic.metadata.refresh.interval.ms`, if that is
    less. The first record of a topic waits for them for 100 ms at most; until they are known, librdkafka chooses. Then
    a partition is kept for `sticky.partitioning.linger.ms`, which is how long librdkafka keeps its own choice, so
    batches are as full. `LocalLeaders` has the other rules.

    What it writes is counted if `statistics.interval.ms` is set, and `poll()` or `flush()` are called.

    A `partitioner` still applies to records with a key, and those with an empty one.

    Args:
        config: librdkafka's properties.
        zone_hint: The vendor of a service that reads the zone from `client.id`; see `client_id_with_zone`.
        max_share: How many times its fair share of the records without a key a partition may get; see `LocalLeaders`.
            With it, `produce()` takes a microsecond longer.
        more: Properties as keywords, and `logger`.

    Raises:
        ConfigError: `max_share` is not valid, "auto" finds no rack, or `zone_hint` cannot be followed.
        KafkaException: librdkafka rejects a property.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        zone_hint: Any = None,  # noqa: ANN401 - `**more` may have values of any type
        max_share: float | None = None,
        **more: Any,  # noqa: ANN401 - as confluent-kafka's
    ) -> None:
        settings = ProducerConfig.of({**(config or {}), **more} if more or config is None else config)
        properties = Settings(settings.properties)
        rack = resolve_rack(properties.pop("client.rack", None), "client.rack")
        if zone_hint is not None:
            properties["client.id"] = client_id_with_zone(zone_hint, properties.get("client.id") or CLIENT_ID, rack)
        shared = {name: value for name, value in properties.items() if name not in _PRODUCER_ONLY}
        self._watch = watch = LeaderWatch(Settings(shared), settings.refresh_s)
        meter = WriteMeter(rack, watch.rack_of, lambda: [node.rack for node in watch.leaders.nodes.values()])
        if settings.counts:
            properties["stats_cb"] = WriteStatistics(meter, properties.get("stats_cb"))
        super().__init__(dict(properties))
        set_meter(self, meter if settings.counts else f"{STATISTICS} is not set")
        # Of a record that is written without a call the bytes are not counted.
        self._local = LocalLeaders(rack, keep_s=settings.keep_s, max_share=max_share, snapshots=max_share is None)
        self._choices = self._local.choices
        weakref.finalize(self, watch.stop)
        if settings.counts or rack is not None:
            watch.begin(self)
        if rack is None:
            log.warning("the producer has no rack, so records go to leaders in all racks")

    def produce(  # noqa: PLR0917 - as confluent-kafka's
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = _ANY,
        callback: Callable[[KafkaError | None, Message], None] | None = None,
        on_delivery: Callable[[KafkaError | None, Message], None] | None = None,
        timestamp: int = 0,
        headers: Any = None,  # noqa: ANN401 - as confluent-kafka's
    ) -> None:
        """Produce a record, as `confluent_kafka.Producer` does; without a key and a partition to a leader in the rack.

        Raises:
            BufferError: The queue is full.
            KafkaException: librdkafka refuses the record.
        """
        number, leaders = partition, self._watch.leaders
        if partition == _ANY and key is None:
            # What `choose` does, without a call: a record of librdkafka costs half a microsecond.
            choice = self._choices.get(topic)
            if choice is not None and choice.seen is leaders and monotonic() < choice.until:
                number = choice.partition.partition
            else:
                number = self._choose(topic, leaders, len(value or ""))
        # `callback` and `on_delivery` are names of the same, and with None for the first the second is not looked at.
        report = on_delivery if callback is None else callback
        try:
            # All at their positions: with `*args` and `**more` a call takes a tenth of a microsecond longer.
            _produce(self, topic, value, key, number, report, None, timestamp, headers)
        except KafkaException as error:
            if number == partition or error.args[0].code() != UNKNOWN_PARTITION:
                raise
            # Its metadata are older than those of the last look, or newer: partitions were added, or the topic was
            # created again with fewer of them. It chooses for the records until the next look, which begins now.
            self._watch.refuse(topic)
            _produce(self, topic, value, key, partition, report, None, timestamp, headers)

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = _ANY,
        *args: Any,  # noqa: ANN401 - as confluent-kafka's
        **more: Any,  # noqa: ANN401 - the same
    ) -> int:
        """Produce several records; those without a key and a partition go to leaders in the rack.

        Raises:
            BufferError: The queue is full.
            KafkaException: librdkafka refuses the records.
        """
        given: Any = messages
        plain = isinstance(given, list) and all(isinstance(message, dict) for message in given)
        if partition != _ANY or self._local.rack is None or not plain:
            return super().produce_batch(topic, messages, partition, *args, **more)
        parts: dict[int, list[dict[str, Any]]] = {}
        for message in messages:
            number = _ANY
            if message.get("key") is None and message.get("partition", _ANY) == _ANY:
                number = self._choose(topic, self._watch.leaders, len(message.get("value") or ""))
            parts.setdefault(number, []).append(message)
        count = 0
        for number, part in parts.items():
            taken = super().produce_batch(topic, part, number, *args, **more)
            error = None if taken or number == _ANY else part[0].get("_error")
            if error is not None and error.code() == UNKNOWN_PARTITION:
                # As in `produce`; no record was taken.
                self._watch.refuse(topic)
                for message in part:
                    del message["_error"]
                taken = super().produce_batch(topic, part, _ANY, *args, **more)
            count += taken
        return count

    def await_leaders(self, topic: str, timeout_s: float) -> bool:
        """Wait until the leaders of a topic are known, so that its first records go to those in the rack, too.

        Returns:
            Whether they are known; False also for a producer without a rack, which does not choose by them.
        """
        return self._local.rack is not None and self._watch.await_leaders(topic, timeout_s)

    def locality(self) -> RackTraffic:
        """Return the traffic written so far, by topic and by rack of the leader, as of librdkafka's last statistics.

        Raises:
            ConfigError: `statistics.interval.ms` is not set.
        """
        return meter_of(self).locality()

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Set the credentials of new connections, also of those that read the leaders."""
        super().set_sasl_credentials(username, password)
        self._watch.set_sasl_credentials(username, password)

    def close(self) -> bool:
        """Send what is queued, and close the producer."""
        self._watch.stop()
        # Before confluent-kafka 2.13 a producer is closed when it is released.
        return super().close() if hasattr(Producer, "close") else self.flush() == 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._watch.stop()
        return super().__exit__(kind, error, trace)

    def _choose(self, topic: str, leaders: Leaders, size: int) -> int:
        if self._local.rack is None:
            return _ANY
        chosen = self._local.choose(topic, size, leaders)
        if chosen is None:
            self._watch.add(topic)
            chosen = self._local.choose(topic, size, self._watch.leaders)
        return _ANY if chosen is None else chosen
