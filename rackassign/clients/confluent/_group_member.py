"""The member of the group: a consumer of kafka-python that never reads; its errors are those of confluent-kafka.

A new subscription waits for topics that are not in the metadata yet.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from time import monotonic
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from kafka import OffsetAndMetadata
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import KafkaError as KafkaPythonError

from rackassign.clients.confluent.internals import INVALID_ARG, kafka_exception, to_confluent_error, translate_errors
from rackassign.clients.kafka_python import RackAwareConsumer, internals
from rackassign.clients.kafka_python.internals.group_member import CommittedOffset, GroupOnlyMember
from rackassign.errors import ConfigError
from rackassign.model import TOPIC_NAME, TopicPartition
from rackassign.racks import BrokerRackCache
from rackassign.text import WarnOnce, short_repr

log = logging.getLogger(__name__)

_SURE_S = 1.0
"""A topic does not exist if it is missing in metadata that are this much newer than the subscription."""

_SURE_REFRESHES = 2
"""The first refresh may be the response to a request from before the subscription, which may take long: kafka-python
has one request in flight at a time, so the second one was sent later."""

_PATIENCE_S = 5.0
"""Time limit for waiting for metadata."""


class PendingTopics:
    """Determines whether to wait for metadata before a join, and which topics do not exist.

    A member that joins before its topics are in the metadata is assigned nothing, and has to rejoin at once.
    `refreshed` is for kafka-python's IO thread, everything else for the polling thread.
    """

    def __init__(self, known: Callable[[str], bool], clock: Callable[[], float] = monotonic) -> None:
        self._known = known
        self._clock = clock
        self._unknown: frozenset[str] = frozenset()
        self._begun = 0.0
        self._refreshed = -inf
        self._refreshes = 0
        self._requested = False

    def begin(self, topics: Iterable[str]) -> None:
        """Wait for these topics instead of those before."""
        self._unknown = frozenset(topics)
        self._begun = self._clock()
        self._refreshes = 0
        self._requested = False

    def refreshed(self) -> None:
        self._refreshed = self._clock()
        self._refreshes += 1

    def take_request(self) -> bool:
        """Return whether new metadata have to be requested; true once, after the first refresh.

        If that was a response from before the subscription, kafka-python (3.0.12) has dropped the request that came
        with the subscription, and would make the next one after `metadata_max_age_ms`.
        """
        self._look()
        if self._requested or not self._unknown or self._refreshes == 0:
            return False
        self._requested = True
        return True

    def wait(self) -> bool:
        self._look()
        return bool(self._unknown) and not self._sure() and self._clock() - self._begun < _PATIENCE_S

    def take_missing(self) -> str | None:
        """Return a topic that does not exist, each once; None if there is none."""
        self._look()
        if not self._unknown or not self._sure():
            return None
        missing = min(self._unknown)
        self._unknown -= {missing}
        return missing

    def _look(self) -> None:
        self._unknown = frozenset(topic for topic in self._unknown if not self._known(topic))

    def _sure(self) -> bool:
        return self._refreshes >= _SURE_REFRESHES and self._refreshed - self._begun >= _SURE_S


_METADATA_MS = 200

Offsets = Mapping[TopicPartition, tuple[int, str, int]]
"""For each partition the next offset to read, the user's metadata, and the leader epoch; -1 if not known."""


class GroupMember(GroupOnlyMember):
    """A membership in a group; for the polling thread, except for commits."""

    def __init__(self, arguments: Mapping[str, Any], racks: BrokerRackCache) -> None:
        try:
            with translate_errors():
                self._consumer = RackAwareConsumer(**arguments)
        except (AssertionError, TypeError, ValueError) as error:
            # kafka-python checks some of its arguments with assertions.
            raise ConfigError(f"kafka-python: {error}") from error
        try:
            super().__init__(self._consumer)
        except BaseException:
            self._consumer.close()
            raise
        cluster = internals.cluster_of(self._consumer)
        self._cluster = cluster
        self._awaited = PendingTopics(self._is_known)
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
        """Its member ID; empty before it has one."""
        return str(self._consumer.group_metadata().member_id)

    @staticmethod
    def check_topics(topics: Sequence[str]) -> None:
        """Check topics before anything is given up for them."""
        for topic in topics:
            if topic.startswith("^") and (found := _POSIX_CLASS.search(topic)):
                # For Python it is a set of these letters, so that topics would be lost without an error.
                reason = f"{found[0]} is a class of POSIX, which Python does not have: write [0-9], for example"
                raise kafka_exception(INVALID_ARG, f"{short_repr(topic)}: {reason}")
            if not topic.startswith("^") and not TOPIC_NAME.fullmatch(topic):
                raise kafka_exception(INVALID_ARG, f"{short_repr(topic)} is not the name of a topic")
        try:
            re.compile(pattern_of(topics) or "")
        except re.error as error:
            raise kafka_exception(INVALID_ARG, f"{short_repr(list(topics))}: {error}") from error

    def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribe to topics; names that begin with ^ are regular expressions."""
        pattern = pattern_of(topics)
        try:
            with translate_errors():
                self._consumer.subscribe(*([()] if pattern else [list(topics)]), pattern=pattern)
        except (TypeError, ValueError) as error:
            raise kafka_exception(INVALID_ARG, str(error)) from error
        self._by_pattern = pattern is not None
        self._awaited.begin(() if pattern else topics)

    def needs_rejoin_for(self, topics: Sequence[str]) -> bool:
        """Return whether kafka-python must leave first: it cannot change from names to patterns or back."""
        return self._by_pattern is not None and self._by_pattern is not (pattern_of(topics) is not None)

    @translate_errors()
    def leave(self) -> None:
        self._consumer.unsubscribe()
        self._by_pattern = None
        self._awaited.begin(())

    def poll(self, wait_s: float) -> None:
        """Run the group's protocol; while nothing is owned and a join is under way, wait for it."""
        # Raises `RevocationRequired` before the next join, and once for a topic that does not exist.
        if self._by_pattern is None:
            return
        if self._awaited.take_request() and self._cluster is not None:
            internals.request_update(self._cluster)
        if self._awaited.wait():
            return
        self._check_topics()
        try:
            with translate_errors():
                # For a pattern kafka-python waits for metadata before each join, and does not join without.
                super().poll(max(1000 * wait_s, _METADATA_MS if self._by_pattern else 0))
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            # The next call tries again, as librdkafka would.
            log.info("%s", error.args[0].str())

    def _check_topics(self) -> None:
        missing = self._awaited.take_missing()
        if missing is None:
            return
        if missing in getattr(self._cluster, "unauthorized_topics", ()):
            raise kafka_exception(KafkaError.TOPIC_AUTHORIZATION_FAILED, f"{missing}: not authorized to read the topic")
        if not self._creates_topics:
            raise kafka_exception(KafkaError.UNKNOWN_TOPIC_OR_PART, f"{missing}: the topic does not exist (yet)")

    def _is_known(self, topic: str) -> bool:
        return self._cluster is None or self._cluster.partitions_for_topic(topic) is not None

    def rebalance_pending(self) -> bool:
        return self._by_pattern is not None and super().rebalance_pending()

    @translate_errors()
    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float
    ) -> Mapping[TopicPartition, CommittedOffset] | None:
        return super().committed(partitions, timeout_ms)

    def end_offsets(self, partitions: Iterable[TopicPartition], wait_s: float) -> Mapping[TopicPartition, int]:
        """Return the end offset of each partition with a leader; nothing if they are not known in time."""
        known = internals.partitions_with_leader(self._consumer, partitions)
        try:
            found = self._consumer.end_offsets([KafkaPythonPartition(*tp) for tp in known], timeout_ms=1000 * wait_s)
        except (KafkaPythonError, KeyError) as error:
            # A partition can lose its leader in between: the KeyError of `partitions_with_leader`.
            log.debug("%s: %s", type(error).__name__, error)
            return {}
        return {TopicPartition(*tp): end for tp, end in found.items()}

    @translate_errors()
    def commit(self, offsets: Offsets, wait_s: float) -> None:
        self._consumer.commit(_for_kafka_python(offsets), timeout_ms=1000 * wait_s)

    @translate_errors()
    def commit_async(self, offsets: Offsets, done: Callable[[KafkaError | None], object]) -> None:
        """Commit with the member's generation; a later `poll` or `run_commit_callbacks` reports the result."""

        def answered(_offsets: object, answer: object) -> None:
            done(to_confluent_error(answer) if isinstance(answer, KafkaPythonError) else None)

        self._consumer.commit_async(_for_kafka_python(offsets), callback=answered)

    @translate_errors()
    def run_commit_callbacks(self) -> None:
        super().run_commit_callbacks()

    @translate_errors()
    def close(self, wait_s: float) -> None:
        self._consumer.close(autocommit=False, timeout_ms=1000 * wait_s)


_POSIX_CLASS = re.compile(r"\[:\^?\w+:\]")


def pattern_of(topics: Sequence[str]) -> str | None:
    """Return one regular expression for all topics; None if none of them is one."""
    if not any(topic.startswith("^") for topic in topics):
        return None
    # kafka-python matches at the beginning of a name, and librdkafka anywhere: `^a|b` also matches `xb`.
    return "|".join(f".*?(?:{topic})" if topic.startswith("^") else f"(?:{re.escape(topic)}$)" for topic in topics)


def _for_kafka_python(offsets: Offsets) -> dict[Any, Any]:
    return {
        KafkaPythonPartition(*tp): OffsetAndMetadata(offset, text, epoch)
        for tp, (offset, text, epoch) in offsets.items()
    }
