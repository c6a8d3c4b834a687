"""Taking records from librdkafka so that an exception loses none, and detection of partitions that it does not read.

**Stalled.** Occasionally, after a change of leaders, librdkafka stops reading a partition although its state is active.
This was seen in two of a dozen runs of the chaos tests, with 2.16, when a follower that was read became the leader; its
issues 3399 and 4492 are similar. There is no error, and the partition looks like one without new records. Unassigning
and assigning it again does not help, so the consumer of librdkafka is replaced.

Two conditions together identify such a partition: by the statistics nothing more was fetched although all fetched
records are delivered, and by the member's request the end offset is further. Both must hold twice in a row, since
neither is of the current moment. Without statistics nothing is detected.

librdkafka reports to a queue that is emptied when the application polls. So one that works for long between two polls
gets reports that are older than the last request; only those that come after one more poll are a sign. And while the
queue of fetched records, which all partitions share, is more than half full, librdkafka may fetch nothing on purpose:
then no partition is taken for stalled.

**Stray.** A partition that is unassigned while librdkafka asks for its first offset is fetched all the same once that
response comes (seen with 2.16: "outdated offset response: (re)starting offset query timer", in the state "stopped"). No
record of it is delivered, but its bytes cross the network and fill memory, up to `queued.max.messages.kbytes`. The
statistics show such a partition as active for two reports in a row although it is not assigned. The consumer of
librdkafka is replaced then, too: assigning and unassigning it once more would need the same request again.

**Exceptions.** confluent-kafka frees what a call has taken if the handler of a signal has raised meanwhile (Ctrl-C),
with or without a wait. For librdkafka these records are delivered, so the next commit would skip them. Seen with
2.16.1. The handler may also raise between that call and the user's code. Exceptions of callbacks do not get so far
(`UserCallbacks`).

So it is known at any time up to where every partition has been returned to the user. If a call ends with an exception,
the partitions that have moved beyond that are begun there again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic

from confluent_kafka import KafkaException, Message
from confluent_kafka import TopicPartition as ConfluentPartition

from rackassign.clients.confluent._config import QueueLimits
from rackassign.clients.confluent._fetcher import PartitionFetcher, UserCallbacks, make_offset
from rackassign.model import TopicPartition
from rackassign.text import WarnOnce
from rackassign.util.librdkafka_statistics import ClientStatistics, PartitionStatistics

log = logging.getLogger(__name__)

_ACTIVE = "active"

QUIET_S = 5.0
"""Seconds without fetched records after which the end offset is requested, and again after the same time."""

_SURE_REPORTS = 2
"""Records can be on their way when the first report is made."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """Statistics of a partition, and their age."""

    offset: int
    state: str
    # When the offset was first seen, and when it was last seen.
    since: float
    at: float
    # Number of the look at which the end offset was further; None if it was not.
    behind: int | None = None
    # Number of later reports that were certainly made after that look.
    confirmed: int = 0


class StallDetector:
    """Detects such partitions; for the polling thread."""

    def __init__(self, limits: QueueLimits, clock: Callable[[], float] = monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._once = WarnOnce(log)
        self._seen: dict[TopicPartition, _Seen] = {}
        self._tried: dict[TopicPartition, int] = {}
        self._active: dict[TopicPartition, tuple[float, float]] = {}
        """First and last time at which a partition was reported as being fetched."""
        self._looks = 0
        self._next_look = 0.0

    def __call__(self, statistics: str) -> None:
        """Process librdkafka's statistics; never raises."""
        try:
            for topic, reported in ClientStatistics.from_json(statistics).partitions():
                self._see(TopicPartition(topic, reported.partition), reported)
        except Exception:  # noqa: BLE001 - it would come out of the user's poll()
            self._once.warn("statistics", "librdkafka's statistics cannot be read", exc_info=True)

    def _see(self, tp: TopicPartition, reported: PartitionStatistics) -> None:
        now, offset = self._clock(), reported.next_offset
        if reported.fetch_state == _ACTIVE:
            self._active[tp] = (self._active.get(tp, (now, now))[0], now)
        else:
            self._active.pop(tp, None)
        last = self._seen.get(tp)
        if 0 <= reported.delivered_offset < offset or self._limits.near(reported.queued_records, reported.queued_bytes):
            # There are records left to deliver, of this partition or of others.
            self._seen.pop(tp, None)
        elif last is None or last.offset != offset:
            self._seen[tp] = _Seen(offset, reported.fetch_state, now, now)
        else:
            # What was reported before that look came with the poll after it.
            late = last.behind is None or last.behind == self._looks
            confirmed = last.confirmed if late else last.confirmed + 1
            self._seen[tp] = replace(last, state=reported.fetch_state, at=now, confirmed=confirmed)

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        """Restart detection for partitions that were taken, dropped or sought."""
        for tp in tps:
            self._seen.pop(tp, None)
            self._active.pop(tp, None)

    def restart(self) -> None:
        """Restart detection for all partitions: the next statistics are those of another client."""
        self._seen.clear()
        self._active.clear()

    def strays(self, held: frozenset[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions that have been fetched for a while without being assigned."""
        strays = [
            tp for tp in sorted(self._active.keys() - held) if self._active[tp][1] - self._active[tp][0] >= QUIET_S
        ]
        for tp in strays:
            log.warning(
                "librdkafka still fetches %s-%d, which is not assigned to this member; its consumer is replaced", *tp
            )
        return strays

    def suspects(self, among: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions whose end offsets should be requested now; to be called at each look at the group."""
        self._looks += 1
        now = self._clock()
        if now < self._next_look:
            return []
        self._next_look = now + QUIET_S
        return [tp for tp in among if (seen := self._seen.get(tp)) is not None and seen.at - seen.since >= QUIET_S]

    def stalled(self, ends: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Return the partitions that are behind their ends for the second time, with nothing fetched in between.

        None of them is returned twice for the same offset, since a replacement that did not help will not help again.
        """
        stalled: list[TopicPartition] = []
        for tp, end in ends.items():
            statistics = self._seen.get(tp)
            if statistics is None or end <= max(statistics.offset, 0) or self._tried.get(tp) == statistics.offset:
                continue
            if statistics.behind is None:
                self._seen[tp] = replace(statistics, behind=self._looks)
            elif statistics.confirmed >= _SURE_REPORTS:
                log.warning(
                    "librdkafka reads nothing of %s-%d from offset %d on, though its end offset is %d (its state: %s);"
                    " its consumer is replaced",
                    *(tp.topic, tp.partition, statistics.offset, end, statistics.state),
                )
                self._tried[tp] = statistics.offset
                stalled.append(tp)
        return stalled


class Delivery:
    """Takes records from librdkafka; for the polling thread.

    A call of the user is `begin`, then any number of `poll` or `consume`, and `put_back` if it ends with an exception.
    """

    def __init__(
        self,
        reader: PartitionFetcher,
        stalls: StallDetector,
        callbacks: UserCallbacks,
        lost: Callable[[], bool],
    ) -> None:
        self._reader = reader
        self._stalls = stalls
        # Raises what a callback has raised, if there are no records to return.
        self._callbacks = callbacks
        # While it returns true no record is returned, as others own the partitions.
        self._lost = lost
        self._taken: Sequence[Message] | None = ()
        """What the current call has taken, or the one before it; None if it is too much to be kept."""
        self._noted: Mapping[TopicPartition, ConfluentPartition] | None = None
        """Where partitions continued when librdkafka was asked for it; None if it is to be asked again."""
        self._since: dict[tuple[str | None, int | None], int] = {}
        """Where partitions continue of which records have been returned since."""
        self._revision = -1

    def begin(self) -> None:
        """Note that what was taken before has been returned."""
        taken = self._taken
        if taken is None:
            self._noted = None
        else:
            for message in taken:
                offset = message.offset()
                if offset is not None and message.error() is None:
                    self._since[message.topic(), message.partition()] = offset + 1
        # Only now, since a signal may end this, too; then it is done once more.
        self._taken = ()

    def poll(self, wait_s: float) -> Message | None:
        self._callbacks.raise_error()
        if self._noted is None or self._revision != self._reader.revision:
            self._note()
        message = self._reader.consumer.poll(wait_s)
        if message is None:
            self._callbacks.raise_error()
            return None
        self._taken = (message,)
        self._callbacks.run()
        return next(iter(self._standing([message])), None) if self._lost() else message

    def consume(self, taken: list[Message], most: int, wait_s: float) -> list[Message]:
        """Return the messages taken before and more of them: as many as requested, or those after so many seconds."""
        if not taken:
            self._callbacks.raise_error()
            if self._noted is None or self._revision != self._reader.revision:
                self._note()
        messages = taken + self._reader.consumer.consume(most - len(taken), wait_s)
        # One request takes less time than so many records. The user may change the list that is returned.
        self._taken = None if self._noted is None or len(messages) > len(self._noted) else tuple(messages)
        if messages:
            self._callbacks.run()
        else:
            self._callbacks.raise_error()
        return self._standing(messages) if self._lost() else messages

    def put_back(self) -> None:
        """Read again what the current call has taken: it was not returned."""
        self._taken = ()
        if self._noted is None or self._revision != self._reader.revision:
            # Nothing was taken since partitions have changed.
            return
        since = {
            TopicPartition(topic, partition): make_offset(TopicPartition(topic, partition), offset, None)
            for (topic, partition), offset in self._since.items()
            if topic is not None and partition is not None
        }
        try:
            self._stalls.forget(self._reader.put_back({**self._noted, **since}))
        except (KafkaException, RuntimeError) as error:
            # The latter if a callback has closed the consumer.
            log.warning("an exception ended a poll, and records that it had taken may be skipped: %s", error)

    def _note(self) -> None:
        revision = self._reader.revision
        # In this order, as a signal may end it anywhere.
        noted = self._reader.next_offsets()
        self._since = {}
        self._noted = noted
        self._revision = revision

    @staticmethod
    def _standing(messages: list[Message]) -> list[Message]:
        return [message for message in messages if message.error() is not None]
