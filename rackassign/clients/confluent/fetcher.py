"""The fetching half of the consumer: a librdkafka consumer in no group, and what replaces it by a new one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition

from rackassign import model
from rackassign.clients.confluent.errors import STATE, UNKNOWN_PARTITION, kafka_exception
from rackassign.clients.confluent.statistics import StatsMeter
from rackassign.clients.kafka_python.internals import CommittedOffset

log = logging.getLogger(__name__)

Place = model.TopicPartition
Places = frozenset[model.TopicPartition]


class PartitionFetcher:
    """Reads what it is told to, from where it is told to.

    A partition that is taken waits until it is known where it begins. librdkafka gives out nothing of a partition
    that it has been told to stop reading, also if it has fetched it already.

    Args:
        make: Makes a consumer of librdkafka, which must not be used otherwise where partitions are meant.
        start: Where a partition begins of which nothing is committed.
    """

    def __init__(self, make: Callable[[], confluent_kafka.Consumer], start: int) -> None:
        self._make = make
        self.consumer = make()
        self._start = start
        self.held: Places = frozenset()
        """All that was taken and not dropped."""
        self.waiting: Places = frozenset()
        """Those of them that are not read yet."""
        self._begins: dict[Place, TopicPartition] = {}
        self._begun: dict[Place, TopicPartition] = {}
        self._paused: set[Place] = set()

    def take(self, places: Places) -> None:
        """Take partitions; they wait until `begin`."""
        self.waiting |= places - self.held
        self.held |= places

    def unknown(self) -> Places:
        """Return those that wait for what is committed of them."""
        return self.waiting - set(self._begins)

    def begin(self, committed: Mapping[Place, CommittedOffset] | None) -> None:
        """Read all that wait, from where they were told to begin, or from what is committed.

        Args:
            committed: Of those for which it is unknown; None if it still is, and then they wait on.
        """
        places = self.waiting if committed is not None else self.waiting.intersection(self._begins)
        self.waiting -= places
        known = {place: _begin(place, committed or {}, self._start) for place in sorted(places)}
        begins = [self._begins.pop(place, begin) for place, begin in known.items()]
        if begins:
            self._read(begins)

    def _read(self, begins: list[TopicPartition]) -> None:
        self.consumer.incremental_assign(begins)
        self._begun.update((to_topic_partition(begin), begin) for begin in begins)
        paused = [begin for begin in begins if to_topic_partition(begin) in self._paused]
        if paused:
            self.consumer.pause(paused)
        # librdkafka keeps a pause beyond the assignment it was made in.
        self.consumer.resume([begin for begin in begins if to_topic_partition(begin) not in self._paused])

    def reading(self) -> Places:
        """Return those of which something may come."""
        return self.held - self.waiting - self._paused

    def recreate(self) -> None:
        """Go on with another consumer of librdkafka; everything waits, to be taken up again where it is."""
        fresh = self._make()
        self._stay(self.held - self.waiting)
        old, self.consumer = self.consumer, fresh
        old.close()

    def drop(self, places: Iterable[Place]) -> None:
        """Stop reading partitions."""
        dropped = self.held.intersection(places)
        read = dropped - self.waiting
        self.held -= dropped
        self.waiting -= dropped
        self._paused -= dropped
        for place in dropped:
            self._begins.pop(place, None)
            self._begun.pop(place, None)
        if read:
            self._let_go(read)

    def _stay(self, places: Places) -> None:
        """Have partitions wait that are read, to begin where they are, or where they began."""
        known = {to_topic_partition(position): position for position in self.positions(places)}
        self._begins.update((place, known.get(place, self._begun[place])) for place in places)
        self.waiting |= places

    def _let_go(self, places: Places) -> None:
        try:
            self.consumer.incremental_unassign([TopicPartition(*place) for place in sorted(places)])
        except KafkaException as error:
            # Whatever it is, nothing must be read on that is not held. What is begins anew where it was.
            log.warning("librdkafka does not let go of some partitions, and is told to begin anew: %s", error)
            self._stay(self.held - self.waiting)
            self.consumer.unassign()

    def positions(self, places: Iterable[Place]) -> list[TopicPartition]:
        """Return the next offset of each partition of which something was delivered since it was taken or sought."""
        asked = [TopicPartition(*place) for place in sorted(self.held.intersection(places) - self.waiting)]
        return [position for position in self.consumer.position(asked) if position.offset >= 0] if asked else []

    def begin_at(self, partition: TopicPartition) -> None:
        """Have a partition that waits begin at an offset; a logical one of librdkafka's will do too."""
        if to_topic_partition(partition) in self.waiting and partition.offset != confluent_kafka.OFFSET_INVALID:
            self._begins[to_topic_partition(partition)] = partition

    def seek(self, partition: TopicPartition) -> None:
        """Go on from an offset.

        Raises:
            KafkaException: It is not held.
        """
        place = self._checked(partition)
        if place in self.waiting:
            self.begin_at(partition)
            return
        try:
            self.consumer.seek(partition)
            self._begun[place] = partition
        except KafkaException as error:
            if error.args[0].code() != STATE:
                raise
            # librdkafka seeks nothing that it is only about to begin.
            self.consumer.incremental_unassign([TopicPartition(*place)])
            self._read([partition])

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Deliver nothing of these until they are resumed.

        Raises:
            KafkaException: One is not held; then nothing is paused.
        """
        places = {self._checked(partition) for partition in partitions}
        self._paused |= places
        self.consumer.pause([TopicPartition(*place) for place in sorted(places - self.waiting)])

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Deliver these again.

        Raises:
            KafkaException: One is not held; then nothing is resumed.
        """
        places = {self._checked(partition) for partition in partitions}
        self._paused -= places
        self.consumer.resume([TopicPartition(*place) for place in sorted(places - self.waiting)])

    def _checked(self, partition: TopicPartition) -> Place:
        place = to_topic_partition(partition)
        if place not in self.held:
            raise kafka_exception(UNKNOWN_PARTITION, f"{place.topic}-{place.partition} is not assigned")
        return place


def to_topic_partition(partition: TopicPartition) -> Place:
    """Return the partition that confluent-kafka's speaks of, without the rest."""
    return Place(partition.topic, partition.partition)


def leader_epoch(partition: TopicPartition) -> int:
    """Return the leader epoch; -1 if there is none."""
    epoch: int | None = partition.leader_epoch
    return -1 if epoch is None else epoch


def make_offset(place: Place, offset: int, leader_epoch: int | None) -> TopicPartition:
    """Return a partition with an offset, and with the leader epoch of the record before it if that is known."""
    if leader_epoch is None or leader_epoch < 0:
        return TopicPartition(*place, offset)
    return TopicPartition(*place, offset, leader_epoch=leader_epoch)


def _begin(place: Place, committed: Mapping[Place, CommittedOffset], start: int) -> TopicPartition:
    known = committed.get(place)
    return TopicPartition(*place, start) if known is None else make_offset(place, known.offset, known.leader_epoch)


class ConsumerFactory:
    """Makes one consumer after the other with the same properties; only the newest one's statistics count.

    Args:
        properties: Of librdkafka.
        logger: For what it has to say.
        meter: Told its statistics, and that they begin anew.
        listeners: Told its statistics, too.
    """

    def __init__(
        self,
        properties: Mapping[str, Any],
        logger: Any,  # noqa: ANN401 - as confluent-kafka's
        meter: StatsMeter,
        listeners: Sequence[Callable[[str], object]],
    ) -> None:
        self._properties = properties
        self._more = {} if logger is None else {"logger": logger}
        self._meter = meter
        self._listeners: tuple[Callable[[str], object], ...] = (meter, *listeners)
        self._made = 0

    def __call__(self) -> confluent_kafka.Consumer:
        """Return a new one."""
        number = self._made + 1

        def see(statistics: str) -> None:
            # One that is closed may have a last word.
            if number == self._made:
                for listener in self._listeners:
                    listener(statistics)

        made = confluent_kafka.Consumer({**self._properties, "stats_cb": see}, **self._more)
        self._made = number
        self._meter.begin_anew()
        return made
