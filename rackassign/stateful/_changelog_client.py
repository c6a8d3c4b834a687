"""The client of changelogs: it reads them with kafka-python.

The settings of a member's clients are derived here from those that the user gives for the consumer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from difflib import get_close_matches
from typing import Any, NamedTuple

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import InvalidTimestampError, KafkaError

from rackassign.clients.kafka_python.patches import FETCH_PATCHES
from rackassign.clients.kafka_python.patches.patch import install
from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.model import TopicPartition
from rackassign.stateful._changelog import ChangelogRecord, is_change, is_of_earlier_format
from rackassign.stateful._changelog_topics import (
    Changelog,
    check_changelog_names,
    ensure_changelog_topics,
    topic_ids,
)
from rackassign.stateful._output import ProducerRecord
from rackassign.stateful._statistics import StateCounts
from rackassign.stateful._stores import PROGRESS
from rackassign.text import WarnOnce, short_repr

log = logging.getLogger(__name__)

_CONSUMER_SETTINGS = frozenset(KafkaConsumer.DEFAULT_CONFIG)
_PRODUCER_DEFAULTS: Mapping[str, Any] = KafkaProducer.DEFAULT_CONFIG
_ADMIN_SETTINGS = frozenset(KafkaAdminClient.DEFAULT_CONFIG)

_OWN = frozenset(
    {"metric_reporters", "metrics_num_samples", "metrics_sample_window_ms", "max_in_flight_requests_per_connection"}
)
"""Settings of the group's consumer alone, although other clients have them: reporters would see all metrics four times,
and an idempotent producer has a limit of its own."""


_LINGER_MS = 1000
"""More than `linger_ms` of the producers."""


class ClientSettings(NamedTuple):
    """The settings of each client: the consumer in the group, and the clients of changelogs."""

    consumer: dict[str, Any]
    reader: dict[str, Any]
    producer: dict[str, Any]
    admin: dict[str, Any]


def client_settings(config: Mapping[str, Any]) -> ClientSettings:
    # Whatever belongs to a connection (addresses, security, proxy, versions, timeouts) goes to each client that has the
    # setting. The rest configures the consumer alone.
    known = _CONSUMER_SETTINGS
    for name in config:
        if name not in known:
            close = get_close_matches(name, known, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError(f"{short_repr(name)} is no setting of KafkaConsumer{hint}")
    shared = {name for name in known if name in _ADMIN_SETTINGS and name in _PRODUCER_DEFAULTS}
    shared |= {name for name in known if name.startswith(("ssl_", "sasl_"))}
    connection = {name: value for name, value in config.items() if name in shared - _OWN}
    producing = {name: value for name, value in connection.items() if name in _PRODUCER_DEFAULTS}
    if isinstance(request_ms := producing.get("request_timeout_ms"), (int, float)):
        # kafka-python demands that a record has the time for one request, and the user cannot set this for a consumer.
        least_ms = request_ms + _LINGER_MS
        producing["delivery_timeout_ms"] = max(_PRODUCER_DEFAULTS["delivery_timeout_ms"], least_ms)
    return ClientSettings(
        dict(config),
        dict(connection),
        producing,
        {name: value for name, value in connection.items() if name in _ADMIN_SETTINGS},
    )


_GROW_S = 10.0
_KNOWN_S = 20.0
_READ_MS = 200
_POSITIONS_S = 0.1
"""How long to wait for positions, of all partitions: the client waits with each for any that it has put back."""

_OFFSETS_MS = 5000
"""How long to wait for offsets: meanwhile no task of the member goes on."""

_AT_ONCE = 5000

_HELD_S, _HELD_READS = 5.0, 20
"""How long, and for how many reads, the last record of a commit is waited for: a log may have been cut before it."""

_LARGEST_COMMIT = 25_000
"""More records than a commit has, unless one call of `process` has changed more keys."""


WRONG_CLOCK = (
    "brokers refuse the time of a record: the clock of this machine, or a timestamp_ms that was given, differs from"
    " their clocks by more than the topic allows (message.timestamp.after.max.ms, message.timestamp.before.max.ms): set"
    " the clock, or message.timestamp.type=LogAppendTime of the topic"
)


def is_clock_error(error: KafkaError) -> bool:
    """Return whether brokers have refused the time of a record."""
    text = f"{type(error).__name__}: {error}"
    # Of several records, kafka-python (3.0.12) raises InvalidRecordError with the text of the broker.
    return InvalidTimestampError.__name__ in text or ("Timestamp" in text and "out of range" in text)


class ChangelogMissingError(KafkaUnavailableError):
    """A changelog does not exist any more."""


class ChangelogBatch(NamedTuple):
    """Records that were read from a changelog, in order and without foreign ones."""

    changes: list[ChangelogRecord]
    # Offset of the first record; without one, the position before or, if that is less, the new one.
    start: int
    end: int


class _Held(NamedTuple):
    """The first records of a commit whose last one is not read yet: a copy is as of a commit."""

    changes: list[ChangelogRecord]
    # Offset from which the client continues, the time at which they were read, and empty reads since.
    end: int
    since: float
    empty: int = 0


class ChangelogClient:
    def __init__(
        self,
        name: Callable[[str], str],
        topics: Iterable[tuple[str, ...]],
        config: Mapping[str, Any],
        rack: str | None,
        counts: StateCounts,
    ) -> None:
        self._counts = counts
        # The input topics of each kind of task, of which the first one names it.
        copartitioned = list(topics)
        wanted = {each[0]: name(each[0]) for each in copartitioned}
        self._wanted = {each: wanted[each[0]] for each in copartitioned}
        check_changelog_names(self._wanted)
        self._name = wanted.__getitem__
        self._topics = {changelog: topic for topic, changelog in wanted.items()}
        self._settings = client_settings(config)
        self._reading = {
            **self._settings.reader,
            "client_rack": rack or "",
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "max_poll_records": _AT_ONCE,
            "isolation_level": "read_committed",
        }
        self._once = WarnOnce(log)
        self.ids: Mapping[str, str] = {}
        """Topic ID of the changelog of each kind of task."""
        self.sizes: Mapping[str, int] = {}
        """Partitions of the changelog of each kind of task."""
        self.deletes_ms = 0
        """How long changelogs keep the records of deletions at least, in milliseconds."""
        self.largest_bytes = 0
        """Size of a key and a value that all changelogs take."""
        self._describe(self._ensured())
        self._grown_at = float("-inf")
        self._positions: dict[Any, int] = {}
        self._held: dict[Any, _Held] = {}
        with ExitStack() as begun:
            self._reader = self._new_reader()
            begun.callback(self._reader.close)
            # Its ends are those of what is written, whether it is committed or not.
            # With its default a leader that stands still would be asked for 30 s, though there is another one.
            request_ms = min(_OFFSETS_MS, self._settings.reader.get("request_timeout_ms", _OFFSETS_MS))
            self._ends = self._new_reader(isolation_level="read_uncommitted", request_timeout_ms=request_ms)
            begun.callback(self._ends.close)
            self._await(wanted.values())
            begun.pop_all()

    def _describe(self, found: Mapping[str, Changelog]) -> None:
        self.ids = {topic: found[changelog].id for changelog, topic in self._topics.items()}
        self.sizes = {topic: found[changelog].partitions for changelog, topic in self._topics.items()}
        self.deletes_ms = min(each.deletes_ms for each in found.values())
        self.largest_bytes = min(each.largest_bytes for each in found.values())

    def _ensured(self) -> dict[str, Changelog]:
        """Create and extend changelogs; log a warning for each that is too small."""
        found = ensure_changelog_topics(self._settings.admin, self._wanted)
        for changelog in found.values():
            if changelog.problem:
                self._once.warn("small", "%s", changelog.problem, about=changelog.problem)
        return found

    def grow(self) -> None:
        """Extend the changelogs of topics with new partitions, if this member may; tried every few seconds."""
        if time.monotonic() - self._grown_at < _GROW_S:
            return
        self._grown_at = time.monotonic()
        found = self._ensured()
        sizes = {topics[0]: found[changelog].partitions for topics, changelog in self._wanted.items()}
        if sizes == self.sizes:
            return
        # kafka-python (3.0.12) knows new partitions of a known topic only after `metadata_max_age_ms`.
        reader = former = self._new_reader()
        try:
            if all(len(reader.partitions_for_topic(self._name(topic)) or ()) >= size for topic, size in sizes.items()):
                former = self._use(reader)
                self.sizes = sizes
            else:
                self._grown_at -= _GROW_S - 1
        except KafkaError as error:
            raise KafkaUnavailableError(f"extended changelogs have no metadata yet: {error}") from None
        finally:
            former.close()

    def refresh_topic_ids(self) -> None:
        """Find out whether changelogs are other topics than before, and use those, which are created if missing."""
        ids = topic_ids(self._settings.admin, sorted(self._topics))
        if ids == {changelog: self.ids[topic] for changelog, topic in self._topics.items()}:
            return
        changelogs = self._ensured()
        try:
            reader = self._new_reader()
        except KafkaError as error:
            raise KafkaUnavailableError(f"changelogs that were made again cannot be used yet: {error}") from None
        self._use(reader).close()
        self._describe(changelogs)
        self._await(self._topics)

    def _use(self, reader: KafkaConsumer) -> KafkaConsumer:
        """Use another reader, which knows nothing of what topics were before; return the former one, to be closed."""
        former, self._reader, self._positions = self._reader, reader, {}
        return former

    def _new_reader(self, **settings: Any) -> KafkaConsumer:  # noqa: ANN401 - kafka-python is untyped
        """Return a consumer with follower fetching that survives broker failures."""
        reader = KafkaConsumer(**{**self._reading, **settings})
        install(reader, FETCH_PATCHES, self._once)
        return reader

    def _await(self, changelogs: Iterable[str]) -> None:
        """Wait until the reader has metadata of all changelogs: its broker may get that of a new one later."""
        deadline = time.monotonic() + _KNOWN_S
        for changelog in changelogs:
            while not self._is_known(changelog):
                if time.monotonic() >= deadline:
                    raise KafkaUnavailableError(f"brokers have no metadata of {changelog}, which was created")
                time.sleep(_READ_MS / 1000)

    def _is_known(self, changelog: str) -> bool:
        try:
            return bool(self._reader.partitions_for_topic(changelog))
        except KafkaError as error:
            if not error.retriable:
                raise
            # kafka-python sends the request to one broker, which may be gone or stand still, and to another next time.
            return False

    def encode(self, tp: TopicPartition, changes: Mapping[bytes, bytes | None]) -> list[ProducerRecord]:
        """Return changes as records of the changelog, and count them."""
        name, counts = self._name(tp.topic), self._counts
        counts.changelog_records += len(changes)
        counts.changelog_bytes += sum(len(key) + len(value or b"") for key, value in changes.items())
        return [ProducerRecord(name, value, key, tp.partition) for key, value in changes.items()]

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from now on, each from the position of its state, however that was reached."""
        wanted = {
            KafkaPythonPartition(self._name(topic), partition): at for (topic, partition), at in positions.items()
        }
        # If this is interrupted, the next call sets everything.
        before, self._positions = self._positions, {}
        self._held = {log_tp: held for log_tp, held in self._held.items() if log_tp in before}
        if set(wanted) != set(before):
            # It keeps the positions of those that it has.
            self._reader.assign(list(wanted))
        for log_tp, at in wanted.items():
            # Not compared with the client's position: if it has put that back, `read` has to find it there.
            if before.get(log_tp) != at:
                self._held.pop(log_tp, None)
                self._reader.seek(log_tp, at)
        self._positions = wanted

    def read(self, timeout_ms: int = 0) -> dict[TopicPartition, ChangelogBatch]:
        """Return the new records of the assigned partitions."""
        # A batch that starts before the position of its partition is of a log that has lost records since: it was cut,
        # or it is another one. The client notices that while it fetches, and has its new position some calls later.
        if not self._positions:
            return {}
        before, self._positions = self._positions, {}
        # If this fails, records may be lost that the client has returned: `assign` sets all positions then.
        found, self._positions = self._batches(before, self._reader.poll(timeout_ms=timeout_ms))
        return found

    def _batches(
        self, positions: Mapping[Any, int], polled: Mapping[Any, Sequence[Any]]
    ) -> tuple[dict[TopicPartition, ChangelogBatch], dict[Any, int]]:
        batches: dict[TopicPartition, ChangelogBatch] = {}
        then, until = dict(positions), time.monotonic() + _POSITIONS_S
        for log_tp, start in positions.items():
            left_ms = max(0.0, until - time.monotonic()) * 1000
            records, end = polled.get(log_tp, ()), self._reader.position(log_tp, timeout_ms=left_ms)
            held = self._held.pop(log_tp, None) or _Held([], start, time.monotonic())
            if end is None:
                # The client puts it back, and its leader has not responded yet.
                end = records[-1].offset + 1 if records else held.end
            first = min(start, end, *(record.offset for record in records[:1]))
            changes = held.changes + self._changes(records)
            whole = next((number for number in range(len(changes), 0, -1) if changes[number - 1].key == PROGRESS), 0)
            waited = time.monotonic() > held.since + _HELD_S and held.empty > _HELD_READS
            if first == start and whole < len(changes) <= _LARGEST_COMMIT and not waited:
                since, empty = (time.monotonic(), 0) if records else (held.since, held.empty + 1)
                self._held[log_tp] = _Held(changes[whole:], end, since, empty)
                changes, end = changes[:whole], changes[whole - 1].offset + 1 if whole else start
            # The end is also behind what is not returned: records that compaction has removed, the end of a
            # transaction, and all of one that was aborted.
            if end != start or first < start:
                tp = TopicPartition(self._topics[log_tp.topic], log_tp.partition)
                batches[tp] = ChangelogBatch(changes, first, end)
                then[log_tp] = end
        return batches, then

    def _changes(self, records: Iterable[Any]) -> list[ChangelogRecord]:
        """Return the changes among records of a changelog."""
        found = []
        for record in records:
            if is_change(record):
                found.append(ChangelogRecord(record.key, record.value, record.offset))
            elif is_of_earlier_format(record):
                raise ConfigError(
                    f"{record.topic} was written by a version before transactions, which is not read any more: stop all"
                    " members and reset the group (rackassign state reset), then the state is rebuilt from the input"
                )
        return found

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._topics)

    def has(self, task: TopicPartition) -> bool:
        return task.partition < self.sizes.get(task.topic, 0)

    def tps(self) -> Iterator[TopicPartition]:
        return (TopicPartition(topic, partition) for topic, size in self.sizes.items() for partition in range(size))

    def offset_range(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the offsets at which changelogs begin and end, with what is not committed yet."""
        log_tps = {KafkaPythonPartition(self._name(tp.topic), tp.partition): tp for tp in tps}
        if not log_tps:
            return {}
        try:
            begins = self._ends.beginning_offsets(list(log_tps), timeout_ms=_OFFSETS_MS)
            ends = self._ends.end_offsets(list(log_tps), timeout_ms=_OFFSETS_MS)
        except (KafkaError, KeyError) as error:
            # kafka-python (3.0.12) raises KeyError for a partition whose leader has not responded.
            self._check_exists(next(iter(log_tps)).topic)
            raise KafkaUnavailableError(f"the end offsets of changelogs are not available: {error}") from None
        return {tp: (begins[log_tp], ends[log_tp]) for log_tp, tp in log_tps.items()}

    def _check_exists(self, log: str) -> None:
        """Find a topic that was deleted: kafka-python waits for it until the timeout."""
        with suppress(KafkaError):
            if log not in self._reader.topics():
                raise ChangelogMissingError(f"topic {log} no longer exists")

    def close(self) -> None:
        try:
            self._reader.close()
        finally:
            self._ends.close()
