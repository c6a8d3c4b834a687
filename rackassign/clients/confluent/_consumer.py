"""A consumer with rackassign's assignors and librdkafka's throughput, with the interface of confluent-kafka.

With it are what a producer needs to commit its offsets in a transaction (KIP-447), and its closing: by `close()`, or
without it, when the object is garbage-collected.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Message, TopicPartition

from rackassign.assignor.member import resolve_rack
from rackassign.clients import close_dropped
from rackassign.clients.confluent._commits import Commits
from rackassign.clients.confluent._config import ConsumerConfig
from rackassign.clients.confluent._delivery import Delivery, StallDetector
from rackassign.clients.confluent._fetcher import (
    ConsumerFactory,
    PartitionFetcher,
    UserCallbacks,
    consumer_view,
    to_topic_partition,
)
from rackassign.clients.confluent._group_member import GroupMember
from rackassign.clients.confluent._rebalance import Callback, Callbacks, RebalanceHandler
from rackassign.clients.confluent._stats_meter import StatsMeter
from rackassign.clients.confluent.internals import (
    NOT_IMPLEMENTED,
    STATE,
    form_difference,
    kafka_exception,
    serialize_group_metadata,
)
from rackassign.clients.fetch_metrics import RackTraffic, set_view
from rackassign.racks import BrokerRackCache, client_id_with_zone

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


class TransactionMetadata:
    """The group metadata of one consumer, for `send_offsets_to_transaction` of producers of confluent-kafka.

    Their generation is that of the assignment whose records are delivered, and not the newest one of the group: with
    the newest one, the broker would accept offsets of partitions that it has given to others.
    """

    def __init__(
        self, group_id: str, instance_id: str | None, member: GroupMember, rebalances: RebalanceHandler
    ) -> None:
        self._group_id = group_id
        self._instance_id = instance_id
        self._member = member
        self._rebalances = rebalances
        self._form_checked = False

    def current(self) -> bytes:
        following = self._rebalances.following
        if following is None or self._member.lost():
            reason = "this consumer has no assignment in its group: abort the transaction, and poll"
            # Without a generation the broker would accept the offsets of any member.
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID, reason, txn_requires_abort=True))
        if not self._form_checked:
            difference = form_difference(self._group_id, self._instance_id)
            if difference is not None:
                raise kafka_exception(NOT_IMPLEMENTED, difference)
            self._form_checked = True
        return serialize_group_metadata(self._group_id, following.generation, following.member_id, self._instance_id)


log = logging.getLogger(__name__)

_CLOSE_S = 10.0


def close_consumer(
    member: GroupMember, reader: PartitionFetcher, rebalances: RebalanceHandler, commits: Commits
) -> None:
    """Revoke everything, leave the group and close both clients, even if a step fails."""
    try:
        try:
            rebalances.give_up(reader.held, lost=member.lost())
        finally:
            commits.end()
    finally:
        try:
            member.close(_CLOSE_S)
        finally:
            reader.consumer.close()


_LOOK_S = 0.1
"""Interval at which the group is served during a poll; heartbeats are independent of it."""

_SETTLING_S = 0.01
"""The interval while a rebalance is under way."""

_COMMIT_S = 30.0
_MAX_POLL_MS = 300_000


class RackAwareConsumer:
    """A `confluent_kafka.Consumer` that reads locally, with the assignors of this package.

    It consists of two clients: that of kafka-python joins the group and commits, that of librdkafka reads. Both are
    configured by one dict of librdkafka's properties. It can be in one group with kafka-python's consumers that use the
    same assignors.

    | property | use |
    |---|---|
    | `client.rack` | also the assignor's; if omitted, `RACKASSIGN_RACK`; "auto" tries more sources (`detect_rack`) |
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
    | any other of `group.*`, `sasl.*`, `ssl.*` and `enable.ssl.*`, other strategies | rejected: needed by the member |
    | `statistics.interval.ms` | 5000 by default, for `locality()`, and to detect stalled partitions |
    | all others | librdkafka's only |

    As in confluent-kafka: callbacks run in `poll()`, `consume()`, `unsubscribe()` and `close()`, on the
    caller's thread; partitions are revoked, and may be committed, before the member rejoins; a consumer that is not
    polled for `max.poll.interval.ms` leaves the group.

    Differences:

    * Errors of the group are raised by `poll()` and `consume()` as `KafkaException`, where librdkafka returns a
      message with an error. So is `UNKNOWN_TOPIC_OR_PART`, once for each topic of a subscription that does not exist
      after a second; the topic may still be created. An exceeded `max.poll.interval.ms` is reported only by `on_lost`.
    * Of asynchronous commits one is in flight at a time. Those that are made meanwhile are merged into the last offset
      of each partition, and `on_commit` is called once for the merged ones. A commit with a temporary error is sent
      again, until its partition is revoked; pending commits are sent before that, and before `close()`.
    * A commit fails with `ILLEGAL_GENERATION` if none of its partitions is assigned; otherwise the assigned ones are
      committed.
    * `assign()` and its variants work only within `on_assign`, to set initial offsets; they do not choose partitions.
    * `pause()`, `resume()` and `seek()` of unassigned partitions fail; `seek()` right after the assignment works.
    * It is no subclass: `isinstance(consumer, confluent_kafka.Consumer)` is False. Such an instance is one client of
      librdkafka, which would be in the group itself. This class has two clients, and the member is the other one.
    * The constructor waits for a broker, since the member needs its version. Without a broker it raises `_TIMED_OUT`
      after 30 s, and releases all resources. A consumer that is garbage-collected without `close()` leaves its group,
      on a thread and without rebalance callbacks; one that exists at interpreter exit does not.
    * `consumer_group_metadata()` raises `UNKNOWN_MEMBER_ID` without an assignment. librdkafka returns metadata without
      a generation then, with which the broker does not reject the offsets of a former owner.
    * What `error_cb`, `stats_cb` or `logger` raises is raised by the next `poll()` or `consume()` without records.
      Records that a call has taken when a signal's handler raises (Ctrl-C) are read again; confluent-kafka loses them.
    * There is no `set_sasl_credentials()`.

    Only commits, `position()`, `committed()` and the meters may be used on other threads than the polling one.

    Args:
        config: librdkafka's properties.
        more: Properties as keywords: `RackAwareConsumer(**config)`.
        assignors: Assignors that the member offers to the group, in order of preference.
        logger: Logger for librdkafka's messages, which are logged by `poll()` and `consume()`.
        zone_hint: The vendor of a service that reads the zone from `client.id`; see `client_id_with_zone`.

    Raises:
        ConfigError: A property or `logger` is not valid, "auto" finds no rack, or `zone_hint` cannot be followed.
        KafkaException: librdkafka rejects a property, or no broker responds.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        assignors: Sequence[Any] | None = None,
        logger: Any = None,  # noqa: ANN401 - as confluent-kafka's
        zone_hint: Any = None,  # noqa: ANN401 - `**config` may have values of any type
        **more: Any,  # noqa: ANN401 - the same
    ) -> None:
        given = {**(config or {}), **more} if more or config is None else config
        properties = ConsumerConfig.of(given, assignors)
        rack = resolve_rack(properties.member.get("client_rack"), "client.rack")
        given_rack: dict[str, Any] = {} if rack is None else {"client_rack": rack}
        if zone_hint is not None:
            properties = properties.with_client_id(partial(client_id_with_zone, zone_hint, zone=rack))
        racks = BrokerRackCache()
        self._meter = StatsMeter(rack, racks.rack_of)
        self._stalls = StallDetector(properties.queue)
        reader_properties = dict(properties.reader)
        if rack is not None:
            reader_properties["client.rack"] = rack
        listeners: list[Callable[[str], object]] = [self._stalls]
        if properties.stats_cb is not None:
            listeners.append(properties.stats_cb)
        # It validates its properties without a connection, so it is created first.
        self._callbacks = UserCallbacks()
        make = ConsumerFactory(reader_properties, logger, self._callbacks, self._meter, listeners)
        self._reader = PartitionFetcher(make, properties.start, make.without_statistics)
        try:
            self._member = GroupMember({**properties.member, **given_rack}, racks)
        except BaseException:
            self._reader.consumer.close()
            raise
        self._commits = Commits(self._member, self._reader, properties)
        self._rebalances = RebalanceHandler(self, self._member, self._reader, self._commits, self._stalls)
        self._delivery = Delivery(self._reader, self._stalls, self._callbacks, self._member.lost)
        group_id, instance_id = properties.member["group_id"], properties.member.get("group_instance_id") or None
        self._transaction_metadata = TransactionMetadata(group_id, instance_id, self._member, self._rebalances)
        # Waiting for a batch must not cost the membership.
        self._patience_s = properties.member.get("max_poll_interval_ms", _MAX_POLL_MS) / 2000
        self._looked = 0.0
        self._next_look = 0.0
        self._closed = False
        set_view(self, consumer_view(self._meter, self._reader, racks, group_id))

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
        """Subscribe to topics, in place of those before; polling joins the group.

        Args:
            topics: Names, and Python regular expressions, which begin with ^. An empty list is `unsubscribe`.
            on_assign: Called with this consumer and the added partitions.
            on_revoke: Called before partitions are revoked.
            on_lost: Called after partitions were lost; if omitted, `on_revoke` is called.
        """
        self._check_polls()
        # A copy, since an iterator can be read only once.
        topics = topics if isinstance(topics, str) else list(topics)
        if isinstance(topics, str) or not all(isinstance(topic, str) for topic in topics):
            raise TypeError("expected a list of strings")
        for name, callback in (("on_assign", on_assign), ("on_revoke", on_revoke), ("on_lost", on_lost)):
            if callback is not None and not callable(callback):
                raise TypeError(f"{name} expects a callable")
        self._member.check_topics(topics)
        if not topics or self._member.needs_rejoin_for(topics):
            self.unsubscribe()
        if topics:
            self._member.subscribe(topics)
        self._rebalances.callbacks = Callbacks(on_assign, on_revoke, on_lost)
        self._next_look = 0.0

    def unsubscribe(self) -> None:
        """Revoke everything and leave the group."""
        self._check_polls()
        try:
            self._give_up_all()
        finally:
            self._member.leave()

    def poll(self, timeout: float = -1) -> Message | None:
        """Return a message, or None after so many seconds; if negative, wait forever."""
        self._check_polls()
        end = _end(timeout)
        self._delivery.begin()
        try:
            while True:
                message = self._delivery.poll(self._serve(end))
                if message is not None:
                    return message
                self._look_after_loss()
                if monotonic() >= end:
                    return None
        except BaseException:
            self._delivery.put_back()
            raise

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return messages: as many as requested, or those available after so many seconds.

        Available messages are also returned if a rebalance is to continue, or after half of `max.poll.interval.ms`.
        """
        self._check_polls()
        end = _end(timeout)
        messages: list[Message] = []
        self._delivery.begin()
        try:
            while True:
                # Messages taken count as delivered, so they must be returned before anything can be revoked.
                wait_s = min(_LOOK_S, max(0.0, end - monotonic())) if messages else self._serve(end)
                messages = self._delivery.consume(messages, num_messages, wait_s)
                self._look_after_loss()
                now = monotonic()
                if len(messages) >= num_messages or now >= end:
                    return messages
                if messages and (self._callbacks.failed or self._must_serve(now)):
                    return messages
        except BaseException:
            self._delivery.put_back()
            raise

    def commit(
        self,
        message: Message | None = None,
        offsets: Sequence[TopicPartition] | None = None,
        asynchronous: bool = True,  # noqa: FBT001, FBT002 - as in confluent-kafka
        *,
        timeout: float = _COMMIT_S,
    ) -> list[TopicPartition] | None:
        """Commit a message, offsets, or all delivered offsets; with `enable.auto.offset.store=false`, all stored ones.

        Args:
            message: The last processed record.
            offsets: Offsets of the next records to read.
            asynchronous: Do not wait; `on_commit` of the configuration is called in a later `poll()` or in `close()`.
            timeout: Time limit in seconds.

        Returns:
            The committed offsets; None for an asynchronous commit. Partitions that are not assigned are not among
            them, and are named in a warning or in `on_commit`.

        Raises:
            KafkaException: `ILLEGAL_GENERATION`, also if none of the partitions is assigned, `UNKNOWN_MEMBER_ID` or
                `REBALANCE_IN_PROGRESS`: continue to poll; the new owner of the partitions processes the records again.
                `_NO_OFFSET`: there is nothing to commit. `_TIMED_OUT` or others.
        """
        self._check_open()
        return self._commits.commit(message, offsets, asynchronous=asynchronous, timeout=timeout)

    def store_offsets(self, message: Message | None = None, offsets: Sequence[TopicPartition] | None = None) -> None:
        """Store offsets to be committed; needs `enable.auto.offset.store=false`."""
        self._check_open()
        self._commits.store(message, offsets)

    def committed(self, partitions: Sequence[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Return the committed offsets of partitions; while the group's coordinator moves, it is asked again."""
        self._check_open()
        return self._reader.committed(partitions, timeout)

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return the offset after the last delivered record of each partition; `OFFSET_INVALID` if there is none."""
        self._check_open()
        asked = [to_topic_partition(each) for each in partitions]
        known = {to_topic_partition(each): each.offset for each in self._reader.positions(asked)}
        return [TopicPartition(*tp, known.get(tp, OFFSET_INVALID)) for tp in asked]

    def seek(self, partition: TopicPartition) -> None:
        """Continue reading a partition at an offset."""
        self._check_open()
        self._reader.seek(partition, self._rebalances.end_offsets)
        self._commits.forget([to_topic_partition(partition)])
        self._stalls.forget([to_topic_partition(partition)])

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Deliver no records of these partitions until they are resumed or revoked."""
        self._check_open()
        self._reader.pause(partitions)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Resume delivery of these partitions."""
        self._check_open()
        self._reader.resume(partitions)

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions; partitions being revoked are included, lost ones are not."""
        self._check_open()
        return [TopicPartition(*tp) for tp in sorted(self._reader.held)]

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Within `on_assign`: set initial offsets."""
        self._check_in_callback()
        for partition in partitions:
            self._reader.begin_at(partition)

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Within `on_assign`: set initial offsets."""
        self.assign(partitions)

    def unassign(self) -> None:
        """Do nothing within `on_revoke` and `on_lost`: partitions are unassigned in any case."""
        self._check_in_callback()

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:  # noqa: ARG002 - as in confluent-kafka
        """Do nothing within `on_revoke` and `on_lost`: partitions are unassigned in any case."""
        self._check_in_callback()

    def memberid(self) -> str:
        """Return the member ID; empty before there is one."""
        self._check_open()
        return self._member.id

    def consumer_group_metadata(self) -> bytes:
        """Return what a producer's `send_offsets_to_transaction` needs; call it again for each transaction (KIP-447).

        Its generation is that of the assignment whose records are delivered. If the group is ahead of it, the broker
        rejects the offsets, and the transaction is to be aborted.

        Raises:
            KafkaException: `UNKNOWN_MEMBER_ID`: the consumer has no assignment (yet), or has lost it; a transaction
                with records of a lost one is to be aborted. `_NOT_IMPLEMENTED`: the installed confluent-kafka
                serializes these metadata in another form.
        """
        self._check_open()
        return self._transaction_metadata.current()

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:  # noqa: ANN401 - as confluent-kafka's
        """Return the metadata of the cluster, or of one topic."""
        self._check_open()
        return self._reader.consumer.list_topics(**({} if topic is None else {"topic": topic}), timeout=timeout)

    def cluster_id(self, timeout: float = -1) -> str:
        """Return the ID of the cluster."""
        self._check_open()
        return self._reader.consumer.cluster_id(timeout)

    def get_watermark_offsets(
        self,
        partition: TopicPartition,
        timeout: float = -1,
        cached: bool = False,  # noqa: FBT001, FBT002 - as in confluent-kafka
    ) -> tuple[int, int]:
        """Return the first offset of a partition, and the offset after its last record."""
        self._check_open()
        return self._reader.consumer.get_watermark_offsets(partition, timeout=timeout, cached=cached)

    def offsets_for_times(self, partitions: Sequence[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Return the first offsets at or after the times given as offsets, in milliseconds."""
        self._check_open()
        return self._reader.consumer.offsets_for_times(list(partitions), timeout=timeout)

    def locality(self) -> RackTraffic:
        """Return the traffic so far, by topic and by rack; as of the last statistics."""
        return self._meter.locality()

    def bytes_by_rack(self) -> dict[str | None, int]:
        """Return the bytes read so far, by rack; None is the key of brokers without a known rack."""
        return self._meter.bytes_by_rack()

    def close(self) -> None:
        """Revoke everything, leave the group and close; with automatic commits, commit delivered records."""
        if self._closed:
            return
        self._check_polls()
        try:
            close_consumer(self._member, self._reader, self._rebalances, self._commits)
        finally:
            self._closed = True
            self._callbacks.log_error()

    def __del__(self) -> None:
        # Nothing to close if the constructor failed; and during interpreter exit no thread can be started.
        if not getattr(self, "_closed", True) and not sys.is_finalizing():
            # No rebalance callbacks are called, because there is no consumer to pass to them.
            self._rebalances.callbacks = Callbacks()
            close_dropped(partial(close_consumer, self._member, self._reader, self._rebalances, self._commits))

    def _serve(self, end: float) -> float:
        """Serve the group if it is due; return for how long records may be awaited until the next time."""
        now = monotonic()
        if now >= self._next_look:
            # The next time is due immediately until this is done: a callback may raise.
            self._rebalances.serve(max(0.0, min(_LOOK_S, end - now)))
            self._looked = now = monotonic()
            self._next_look = now + (_SETTLING_S if self._rebalances.rebalance_pending() else _LOOK_S)
        # As min() and max() would, in a tenth of the time: it is done for every record.
        due = self._next_look
        wait_s = (end if end < due else due) - now  # noqa: FURB136
        return wait_s if wait_s > 0 else 0.0

    def _must_serve(self, now: float) -> bool:
        """Return whether the group cannot wait for a batch and must be served next."""
        must = self._rebalances.rebalance_pending() or now - self._looked > self._patience_s
        if must:
            self._next_look = 0.0
        return must

    def _look_after_loss(self) -> None:
        if self._member.lost():
            self._next_look = 0.0

    def _give_up_all(self) -> None:
        try:
            self._rebalances.give_up(self._reader.held, lost=self._member.lost())
        finally:
            self._rebalances.following = None
            self._commits.end()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("Consumer closed")

    def _check_polls(self) -> None:
        self._check_open()
        if self._rebalances.in_callback:
            raise kafka_exception(STATE, "not allowed within a rebalance callback")

    def _check_in_callback(self) -> None:
        self._check_open()
        if not self._rebalances.in_callback:
            raise kafka_exception(STATE, "partitions are assigned by the group; use subscribe()")


def _end(timeout: float) -> float:
    return inf if timeout < 0 else monotonic() + timeout
