"""A consumer with our assignors and librdkafka's speed, used like confluent-kafka's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_INVALID, Message, TopicPartition

from rackassign.clients.common.fetch_metrics import FetchLocality
from rackassign.clients.common.rack_config import resolve_rack
from rackassign.clients.confluent.closing import close_consumer, close_in_background
from rackassign.clients.confluent.commits import Commits
from rackassign.clients.confluent.config import ConsumerConfig
from rackassign.clients.confluent.errors import NOT_IMPLEMENTED, STATE, kafka_exception
from rackassign.clients.confluent.fetcher import ConsumerFactory, PartitionFetcher, to_topic_partition
from rackassign.clients.confluent.group_member import GroupMember
from rackassign.clients.confluent.rebalance import Callback, Callbacks, RebalanceHandler
from rackassign.clients.confluent.stall_detector import StallDetector
from rackassign.clients.confluent.statistics import StatsMeter
from rackassign.racks import BrokerRackCache

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

_LOOK_S = 0.1
"""So often the group is looked after while somebody polls; heartbeats go on without."""

_SETTLING_S = 0.01
"""The same while a rebalance is under way."""

_COMMIT_S = 30.0
_MAX_POLL_MS = 300_000


class RackAwareConsumer:
    """A `confluent_kafka.Consumer` that reads near home, with the assignors of this package.

    Two clients share the work: kafka-python's joins the group and commits, librdkafka's reads. What they are told is
    one dict of librdkafka's properties. With kafka-python's own consumers of the same assignors it makes one group.

    | property | what becomes of it |
    |---|---|
    | `client.rack` | also the assignor's; left out, `RACKASSIGN_RACK` is read; "auto" asks further (`detect_rack`) |
    | `partition.assignment.strategy` | `cooperative-sticky` (if left out, too), `sticky` or `range`, of this package |
    | `group.id`, `group.instance.id`, `session.timeout.ms`, `heartbeat.interval.ms` | the member's |
    | `max.poll.interval.ms` | the member's |
    | `enable.auto.commit`, `auto.commit.interval.ms` | the same, by the member |
    | `enable.auto.offset.store`, `on_commit` | the same, by the member |
    | `bootstrap.servers`, `client.id`, `isolation.level`, `allow.auto.create.topics` | both clients' |
    | `topic.metadata.refresh.interval.ms`, `reconnect.backoff.ms`, `reconnect.backoff.max.ms` | both clients' |
    | `security.protocol`, `sasl.mechanism`, `sasl.username`, `sasl.password` | both clients' |
    | `sasl.kerberos.service.name`, `ssl.endpoint.identification.algorithm` | both clients' |
    | `ssl.ca.location`, `ssl.certificate.location`, `ssl.key.location`, `ssl.key.password` | both clients' |
    | `ssl.ca.pem`, `ssl.crl.location`, `ssl.cipher.suites` | both clients' |
    | any other of `group.*`, `sasl.*`, `ssl.*` and `enable.ssl.*`, other strategies | refused: for the member |
    | `statistics.interval.ms` | 5000 if left out, for `locality()`, and to see partitions that librdkafka forgets |
    | all others | librdkafka's alone |

    What is as in confluent-kafka: callbacks run in `poll()`, `consume()`, `unsubscribe()` and `close()`, on the
    caller's thread; partitions are revoked, and may be committed, before the group is joined again; who does not poll
    for `max.poll.interval.ms` has left the group.

    What differs:

    * Errors of the group are raised out of `poll()` and `consume()` as `KafkaException`, where librdkafka gives out a
      message with an error; so is `UNKNOWN_TOPIC_OR_PART`, once for each topic of a subscription that does not exist
      after a second. It may still come. Of an exceeded `max.poll.interval.ms` only `on_lost` tells.
    * Of asynchronous commits one is on its way at a time. Those that are made meanwhile are merged into the last offset
      of each partition, and `on_commit` is told of the merged ones, once. What fails for a while is sent again, until
      its partition is given up; what is open then, or at `close()`, is committed before.
    * A commit is refused with `ILLEGAL_GENERATION` if nothing of it is assigned; what of it is assigned is committed.
    * `assign()` and its kin work within `on_assign` only, to say where to begin; they do not choose partitions.
    * `pause()`, `resume()` and `seek()` of what is not assigned are refused; `seek()` right after the assignment works.
    * It is no subclass: `isinstance(consumer, confluent_kafka.Consumer)` is False. Such an instance is a client of
      librdkafka's, which would be in the group by itself; this is two clients, and the member is the other one.
    * The constructor waits for a broker, since the member must know its version: without one it raises `_TIMED_OUT`
      after 30 s, and nothing of it stays behind. One that is dropped without `close()` leaves its group, on a thread
      and without callbacks of partitions; one that is there when the interpreter ends does not.
    * There is no `consumer_group_metadata()`: confluent-kafka has none to make for a member that is not its own, so
      offsets cannot be sent to a transaction. And there is no `set_sasl_credentials()`.

    Only commits, `position()`, `committed()` and the meters may be used beside the thread that polls.

    Args:
        config: librdkafka's properties.
        more: The same, as keywords: `RackAwareConsumer(**config)`.
        assignors: What the member offers the group, in the order of preference.
        logger: For what librdkafka has to say.

    Raises:
        ConfigError: A property cannot work, or "auto" finds no rack.
        KafkaException: librdkafka refuses a property, or no broker answers.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        assignors: Sequence[Any] | None = None,
        logger: Any = None,  # noqa: ANN401 - as confluent-kafka's
        **more: Any,  # noqa: ANN401 - the same
    ) -> None:
        given = {**(config or {}), **more} if more or config is None else config
        properties = ConsumerConfig.of(given, assignors)
        rack = resolve_rack(properties.member.get("client_rack"), "client.rack")
        given_rack: dict[str, Any] = {} if rack is None else {"client_rack": rack}
        racks = BrokerRackCache()
        self._meter = StatsMeter(rack, racks.rack_of)
        self._stalls = StallDetector()
        told = dict(properties.reader)
        if rack is not None:
            told["client.rack"] = rack
        listeners: list[Callable[[str], object]] = [self._stalls]
        if properties.stats_cb is not None:
            listeners.append(properties.stats_cb)
        # It objects without asking any broker, so it is first.
        self._reader = PartitionFetcher(ConsumerFactory(told, logger, self._meter, listeners), properties.start)
        try:
            self._member = GroupMember({**properties.member, **given_rack}, racks)
        except BaseException:
            self._reader.consumer.close()
            raise
        self._commits = Commits(self._member, self._reader, properties)
        self._rebalances = RebalanceHandler(self, self._member, self._reader, self._commits, self._stalls)
        # A batch that is long in coming must not cost the membership.
        self._patience_s = properties.member.get("max_poll_interval_ms", _MAX_POLL_MS) / 2000
        self._looked = 0.0
        self._next_look = 0.0
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: Callback | None = None,
        on_revoke: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Subscribe to topics, in place of those before; the group is joined by polling.

        Args:
            topics: Names, and regular expressions, which begin with ^ and are Python's. None of them: `unsubscribe`.
            on_assign: Called with this consumer and the partitions that came on top.
            on_revoke: Called before partitions are given up.
            on_lost: Called after they were lost; `on_revoke` is, without it.
        """
        self._check_polls()
        if isinstance(topics, str) or not all(isinstance(topic, str) for topic in topics):
            raise TypeError("expected a list of strings")
        for name, callback in (("on_assign", on_assign), ("on_revoke", on_revoke), ("on_lost", on_lost)):
            if callback is not None and not callable(callback):
                raise TypeError(f"{name} expects a callable")
        if not topics or self._member.needs_rejoin_for(topics):
            self.unsubscribe()
        if topics:
            self._member.subscribe(topics)
        self._rebalances.callbacks = Callbacks(on_assign, on_revoke, on_lost)
        self._next_look = 0.0

    def unsubscribe(self) -> None:
        """Give up everything and leave the group."""
        self._check_polls()
        try:
            self._give_up_all()
        finally:
            self._member.leave()

    def poll(self, timeout: float = -1) -> Message | None:
        """Return a message, or None after so many seconds; negative: wait for ever."""
        self._check_polls()
        end = _end(timeout)
        while True:
            message = self._reader.consumer.poll(self._serve(end))
            if message is not None and self._standing([message]):
                return message
            if monotonic() >= end:
                return None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return messages: as many as asked for, or what there is after so many seconds.

        Those that are there are also returned if a rebalance is to go on, or if half of `max.poll.interval.ms` is over.
        """
        self._check_polls()
        end = _end(timeout)
        messages: list[Message] = []
        while True:
            # What is in hand counts as delivered, so it is, before anything can be given up.
            wait_s = min(_LOOK_S, max(0.0, end - monotonic())) if messages else self._serve(end)
            messages = self._standing(messages + self._reader.consumer.consume(num_messages - len(messages), wait_s))
            now = monotonic()
            if len(messages) >= num_messages or now >= end or (messages and self._must_serve(now)):
                return messages

    def commit(
        self,
        message: Message | None = None,
        offsets: Sequence[TopicPartition] | None = None,
        asynchronous: bool = True,  # noqa: FBT001, FBT002 - as in confluent-kafka
        *,
        timeout: float = _COMMIT_S,
    ) -> list[TopicPartition] | None:
        """Commit a message, offsets, or all that was delivered; with `enable.auto.offset.store=false`, was stored.

        Args:
            message: Its record has been processed.
            offsets: The next ones to be read.
            asynchronous: Do not wait; `on_commit` of the configuration is told in a later `poll()` or in `close()`.
            timeout: How long to wait, in seconds.

        Returns:
            What was committed; None if that is not waited for.

        Raises:
            KafkaException: `ILLEGAL_GENERATION`, `UNKNOWN_MEMBER_ID` or `REBALANCE_IN_PROGRESS`: poll, and whoever has
                the partitions processes the records again. `_NO_OFFSET`: there is nothing. `_TIMED_OUT` or others.
        """
        self._check_open()
        return self._commits.commit(message, offsets, asynchronous=asynchronous, timeout=timeout)

    def store_offsets(self, message: Message | None = None, offsets: Sequence[TopicPartition] | None = None) -> None:
        """Keep what is to be committed; needs `enable.auto.offset.store=false`."""
        self._check_open()
        self._commits.store(message, offsets)

    def committed(self, partitions: Sequence[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Return what is committed of partitions."""
        self._check_open()
        return self._reader.consumer.committed(list(partitions), timeout=timeout)

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return the offset after the last record that was delivered of each; `OFFSET_INVALID` if none was."""
        self._check_open()
        known = {
            to_topic_partition(each): each.offset
            for each in self._reader.positions(map(to_topic_partition, partitions))
        }
        return [
            TopicPartition(each.topic, each.partition, known.get(to_topic_partition(each), OFFSET_INVALID))
            for each in partitions
        ]

    def seek(self, partition: TopicPartition) -> None:
        """Go on with a partition from an offset."""
        self._check_open()
        self._reader.seek(partition)
        self._commits.forget([to_topic_partition(partition)])
        self._stalls.forget([to_topic_partition(partition)])

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Deliver nothing of these until they are resumed, or given up."""
        self._check_open()
        self._reader.pause(partitions)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Deliver these again."""
        self._check_open()
        self._reader.resume(partitions)

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions there are; while they are revoked they still are, and when they were lost no more."""
        self._check_open()
        return [TopicPartition(*place) for place in sorted(self._reader.held)]

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Within `on_assign`: say from which offsets to begin."""
        self._check_telling()
        for partition in partitions:
            self._reader.begin_at(partition)

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Within `on_assign`: say from which offsets to begin."""
        self.assign(partitions)

    def unassign(self) -> None:
        """Within `on_revoke` and `on_lost`: nothing, for that is done anyway."""
        self._check_telling()

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:  # noqa: ARG002 - as in confluent-kafka
        """Within `on_revoke` and `on_lost`: nothing, for that is done anyway."""
        self._check_telling()

    def memberid(self) -> str:
        """Return the id in the group; empty before there is one."""
        self._check_open()
        return self._member.id

    def consumer_group_metadata(self) -> Any:  # noqa: ANN401 - as confluent-kafka's
        """Refuse: see the class."""
        raise kafka_exception(NOT_IMPLEMENTED, "there is none for a member of kafka-python's")

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:  # noqa: ANN401 - as confluent-kafka's
        """Return the metadata of the cluster, or of one topic."""
        self._check_open()
        return self._reader.consumer.list_topics(**({} if topic is None else {"topic": topic}), timeout=timeout)

    def cluster_id(self, timeout: float = -1) -> str:
        """Return the id of the cluster."""
        self._check_open()
        return self._reader.consumer.cluster_id(timeout)

    def get_watermark_offsets(
        self,
        partition: TopicPartition,
        timeout: float = -1,
        cached: bool = False,  # noqa: FBT001, FBT002 - as in confluent-kafka
    ) -> tuple[int, int]:
        """Return the first offset of a partition, and the one after its last."""
        self._check_open()
        return self._reader.consumer.get_watermark_offsets(partition, timeout=timeout, cached=cached)

    def offsets_for_times(self, partitions: Sequence[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Return the first offsets from the times on that are given as offsets, in milliseconds."""
        self._check_open()
        return self._reader.consumer.offsets_for_times(list(partitions), timeout=timeout)

    def locality(self) -> FetchLocality:
        """Return what was read so far, by topic and by the rack it came from; as of the last statistics."""
        return self._meter.locality()

    def bytes_by_rack(self) -> dict[str | None, int]:
        """Return the bytes read so far, by the rack they came from; None stands for brokers without a known rack."""
        return self._meter.bytes_by_rack()

    def close(self) -> None:
        """Give up everything, leave the group and end; what was delivered is committed if that is done by itself."""
        if self._closed:
            return
        self._check_polls()
        try:
            close_consumer(self._member, self._reader, self._rebalances, self._commits)
        finally:
            self._closed = True

    def __del__(self) -> None:
        # Of one that was not made whole there is nothing; and at the very end no thread can begin.
        if not getattr(self, "_closed", True) and not sys.is_finalizing():
            close_in_background(self._member, self._reader, self._rebalances, self._commits)

    def _serve(self, end: float) -> float:
        """Look after the group if it is time to; return how long records may be waited for until the next time."""
        now = monotonic()
        if now >= self._next_look:
            # Until it is done the next look is due: it may be left by what a callback raises.
            self._rebalances.serve(max(0.0, min(_LOOK_S, end - now)))
            self._looked = now = monotonic()
            self._next_look = now + (_SETTLING_S if self._rebalances.rebalance_pending() else _LOOK_S)
        return max(0.0, min(end, self._next_look) - now)

    def _must_serve(self, now: float) -> bool:
        """Tell whether the group cannot wait for a batch; it is looked after next then."""
        must = self._rebalances.rebalance_pending() or now - self._looked > self._patience_s
        if must:
            self._next_look = 0.0
        return must

    def _standing(self, messages: list[Message]) -> list[Message]:
        """Return what of this may be delivered: no records, once the membership is gone; they are another's by now."""
        if not messages or not self._member.lost():
            return messages
        self._next_look = 0.0
        return [message for message in messages if message.error() is not None]

    def _give_up_all(self) -> None:
        try:
            self._rebalances.give_up(self._reader.held, lost=self._member.lost())
        finally:
            self._commits.end()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("Consumer closed")

    def _check_polls(self) -> None:
        self._check_open()
        if self._rebalances.telling:
            raise kafka_exception(STATE, "not within a callback of a rebalance")

    def _check_telling(self) -> None:
        self._check_open()
        if not self._rebalances.telling:
            raise kafka_exception(STATE, "the group assigns; subscribe() says what")


def _end(timeout: float) -> float:
    return inf if timeout < 0 else monotonic() + timeout
