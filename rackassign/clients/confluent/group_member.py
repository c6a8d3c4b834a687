"""The member of the group: a consumer of kafka-python that never reads."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from kafka import KafkaConsumer, OffsetAndMetadata
from kafka import TopicPartition as HostPartition
from kafka.errors import KafkaError as HostError

from rackassign.clients.confluent.errors import INVALID_ARG, kafka_exception, to_confluent_error, translate_errors
from rackassign.clients.confluent.topic_metadata import PendingTopics
from rackassign.clients.kafka_python import RackAwareConsumer, internals
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.racks import BrokerRackCache
from rackassign.util.log_once import WarnOnce

log = logging.getLogger(__name__)

_METADATA_MS = 200

Offsets = Mapping[TopicPartition, tuple[int, str, int]]
"""For each partition the next offset to be read, what the user adds to it, and the leader epoch; -1 if not known."""


class _Begun:
    """Makes the client of a consumer, and can end it if the consumer comes to nothing: its thread runs by then."""

    def __init__(self) -> None:
        self._made: Any = None

    def __call__(self, **config: Any) -> Any:  # noqa: ANN401 - the host's
        """Return a client, as the host would."""
        self._made = KafkaConsumer.DEFAULT_CONFIG["kafka_client"](**config)
        return self._made

    def close(self) -> None:
        """End it, if there is one."""
        if self._made is not None:
            self._made.close()


class GroupMember:
    """A place in a group; for the thread that polls, but for commits.

    Args:
        arguments: For `rackassign.clients.kafka_python.RackAwareConsumer`.
        racks: Told where brokers are.

    Raises:
        ConfigError: An argument cannot work, or the installed kafka-python.
        KafkaException: No broker answers.
    """

    def __init__(self, arguments: Mapping[str, Any], racks: BrokerRackCache) -> None:
        begun = _Begun()
        try:
            with translate_errors():
                self._consumer = RackAwareConsumer(**arguments, kafka_client=begun)
        except (AssertionError, TypeError, ValueError) as error:
            begun.close()
            # The host checks some of its arguments so.
            raise ConfigError(f"kafka-python: {error}") from error
        except BaseException:
            begun.close()
            raise
        try:
            self._seat = internals.GroupOnlyMember(self._consumer)
        except BaseException:
            self._consumer.close()
            raise
        cluster = internals.cluster_of(self._consumer)
        self._cluster = cluster
        self._awaited = PendingTopics(self._knows)
        self._creates_topics = bool(arguments.get("allow_auto_create_topics"))
        if cluster is not None:

            def refreshed() -> None:
                racks.update(internals.brokers(cluster))
                self._awaited.refreshed()

            refreshed()
            internals.on_refresh(cluster, refreshed, WarnOnce(log), key=self)
        self._by_pattern: bool | None = None

    @property
    def id(self) -> str:
        """Its id in the group; empty before it has one."""
        return str(self._consumer.group_metadata().member_id)

    def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribe to topics; those that begin with ^ are regular expressions."""
        pattern = pattern_of(topics)
        try:
            with translate_errors():
                self._consumer.subscribe(*([()] if pattern else [list(topics)]), pattern=pattern)
        except (TypeError, ValueError, re.error) as error:
            raise kafka_exception(INVALID_ARG, str(error)) from error
        self._by_pattern = pattern is not None
        self._awaited.begin(() if pattern else topics)

    def needs_rejoin_for(self, topics: Sequence[str]) -> bool:
        """Tell whether the host takes these only after it has left: it does not go from names to patterns or back."""
        return self._by_pattern is not None and self._by_pattern is not (pattern_of(topics) is not None)

    def leave(self) -> None:
        """Leave the group and subscribe to nothing."""
        with translate_errors():
            self._consumer.unsubscribe()
        self._by_pattern = None
        self._awaited.begin(())

    def poll(self, wait_s: float) -> None:
        """Do what a member has to do; while nothing is owned and a join goes on, wait for it.

        Raises:
            GiveUpFirst: Partitions must be given up before the next join.
            KafkaException: The group cannot be joined; or a topic does not exist, which is said once.
        """
        if self._by_pattern is None or self._awaited.wait():
            return
        self._check_topics()
        try:
            with translate_errors():
                # For a pattern the host waits for metadata before each join, and does not join without.
                self._seat.poll(max(1000 * wait_s, _METADATA_MS if self._by_pattern else 0))
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            # The next look tries again, as librdkafka would.
            log.info("%s", error.args[0].str())

    def _check_topics(self) -> None:
        missing = self._awaited.take_missing()
        if missing is None:
            return
        if missing in getattr(self._cluster, "unauthorized_topics", ()):
            raise kafka_exception(KafkaError.TOPIC_AUTHORIZATION_FAILED, f"{missing}: this client may not see it")
        if not self._creates_topics:
            raise kafka_exception(KafkaError.UNKNOWN_TOPIC_OR_PART, f"{missing}: there is no such topic, or not yet")

    def _knows(self, topic: str) -> bool:
        return self._cluster is None or self._cluster.partitions_for_topic(topic) is not None

    def acknowledge_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """Say that partitions are given up, as `poll` asked for."""
        self._seat.acknowledge_revocation(partitions)

    def take_new_assignment(self) -> internals.MemberAssignment | None:
        """Return what was given since the last call; None if nothing was."""
        return self._seat.take_new_assignment()

    def lost(self) -> bool:
        """Tell whether it is out of the group."""
        return self._seat.lost()

    def rebalance_pending(self) -> bool:
        """Tell whether a rebalance is under way, or wanted by the next `poll`."""
        return self._by_pattern is not None and self._seat.rebalance_pending()

    def committed(
        self, partitions: Iterable[TopicPartition], wait_s: float
    ) -> Mapping[TopicPartition, internals.CommittedOffset] | None:
        """Return what is committed of partitions, as far as anything is; None if that is not known yet.

        Raises:
            KafkaException: The coordinator refuses to say.
        """
        with translate_errors():
            return self._seat.committed(partitions, 1000 * wait_s)

    def end_offsets(self, partitions: Iterable[TopicPartition], wait_s: float) -> Mapping[TopicPartition, int]:
        """Return the next offset to be written of each partition; nothing if that is not known in time."""
        asked = [HostPartition(*place) for place in partitions]
        try:
            found = self._consumer.end_offsets(asked, timeout_ms=1000 * wait_s)
        except HostError as error:
            log.debug("%s: %s", type(error).__name__, error)
            return {}
        return {TopicPartition(*place): end for place, end in found.items()}

    def commit(self, offsets: Offsets, wait_s: float) -> None:
        """Commit by the member's generation.

        Raises:
            KafkaException: It is over, or the coordinator does not answer in time.
        """
        with translate_errors():
            self._consumer.commit(_for_host(offsets), timeout_ms=1000 * wait_s)

    def commit_async(self, offsets: Offsets, done: Callable[[KafkaError | None], object]) -> None:
        """Commit with the member's generation; a later `poll` or `run_commit_callbacks` reports the result."""

        def answered(_offsets: object, answer: object) -> None:
            done(to_confluent_error(answer) if isinstance(answer, HostError) else None)

        with translate_errors():
            self._consumer.commit_async(_for_host(offsets), callback=answered)

    def run_commit_callbacks(self) -> None:
        """Have it said what has come of commits so far.

        Raises:
            KafkaException: Another has taken the place of this member; nothing more will be said.
        """
        with translate_errors():
            self._seat.run_commit_callbacks()

    def close(self, wait_s: float) -> None:
        """Leave the group, and end."""
        with translate_errors():
            self._consumer.close(autocommit=False, timeout_ms=1000 * wait_s)


def pattern_of(topics: Sequence[str]) -> str | None:
    """Return one regular expression for all topics; None if none of them is one."""
    if not any(topic.startswith("^") for topic in topics):
        return None
    # The host looks for a match at the beginning of a name, and librdkafka anywhere; for what begins with ^ it is one.
    return "|".join(f"(?:{topic})" if topic.startswith("^") else f"(?:{re.escape(topic)}$)" for topic in topics)


def _for_host(offsets: Offsets) -> dict[Any, Any]:
    return {
        HostPartition(*place): OffsetAndMetadata(offset, text, epoch)
        for place, (offset, text, epoch) in offsets.items()
    }
