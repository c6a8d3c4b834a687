"""A cluster that is played, with the manners of Kafka 4.3 that a repair has to know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from kafka.errors import KafkaConnectionError

from rackassign.model import TopicPartition
from rackassign.reassignment.kafka_cluster import CopyProgress, ReassignmentCluster
from rackassign.reassignment.partition_execution import PartitionStatus, Replicas
from rackassign.reassignment.throttle import FOLLOWING, LEADING, MOST_BYTES


class CrashError(BaseException):
    """The program was killed."""


@dataclass
class FakePartition:
    """A partition; of one that is being reassigned, `replicas` has also what will be removed."""

    replicas: Replicas
    in_sync: set[int]
    target: Replicas | None = None
    adding: set[int] = field(default_factory=set)
    led_by: int | None = None


def _set(kept: dict[str, str], keys: Mapping[str, str | None]) -> None:
    for key, value in keys.items():
        kept.pop(key, None)
        if value is not None:
            kept[key] = value


class FakeReassignmentCluster(ReassignmentCluster):
    """Plays brokers and a controller; time passes only while somebody rests."""

    def __init__(self, lists: Mapping[TopicPartition, Replicas], brokers: Iterable[int], seed: int = 0) -> None:
        # Without an admin client: what is not replaced here fails.
        self.chance = Random(seed)
        self.brokers = set(brokers)
        self.away: set[int] = set()
        self.lists_offline = True
        """Whether brokers that are away are listed; before Kafka 4.0 they are not."""
        self.never_in_sync: set[int] = set()
        self.partitions = {place: FakePartition(row, set(row), led_by=row[0]) for place, row in lists.items()}
        self.shown: dict[TopicPartition, tuple[Replicas, frozenset[int]]] = {}
        self.topics: dict[str, dict[str, str]] = {}
        self.defaults: dict[str, str] = {}
        self.shown_configs: tuple[dict[str, dict[str, str]], dict[str, str]] = ({}, {})
        """What the broker that is asked knows of configurations, which is as old as the last rest."""
        self.unknown: set[TopicPartition] = set()
        """Partitions that the broker does not know which describes topics."""
        self.late: dict[int, float] = {}
        """Brokers that apply what the controller has accepted only at this time."""
        self.clock = 0.0
        self.calls = 0
        self.crash_at = self.stop_at = -1
        self.most_running = self.unthrottled = 0
        self.on_reassign: Callable[[Iterable[TopicPartition]], None] = lambda _: None
        self.events: list[tuple[float, Callable[[], None]]] = []
        self._show(1.0)

    def lists(self) -> dict[TopicPartition, Replicas]:
        """Return the list of each partition that is at rest."""
        return {place: part.replicas for place, part in self.partitions.items() if part.target is None}

    def kill(self, broker: int) -> None:
        """Take a broker away."""
        self.away.add(broker)
        for part in self.partitions.values():
            # The last one stays in the list, as nobody may lead without it.
            part.in_sync = part.in_sync - {broker} or part.in_sync

    def stop(self) -> bool:
        """Return whether Ctrl-C was pressed."""
        return 0 <= self.stop_at <= self.calls

    def describe(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionStatus]:
        self._call()
        return {place: self._seen(place) for place in places if place in self.partitions and place not in self.unknown}

    def missing(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        self._call()
        topics = {place.topic for place in self.partitions}
        why = {True: "the topic has no such partition", False: "there is no such topic"}
        return {place: why[place.topic in topics] for place in places if place not in self.partitions}

    def not_deleted(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        self._call()
        return {place: "not all brokers report it" for place in places if place in self.partitions}

    def offline_brokers(self) -> frozenset[int]:
        self._call()
        return frozenset(self.away if self.lists_offline else ())

    def serving_brokers(self) -> frozenset[int]:
        self._call()
        return frozenset(self.brokers - self.away)

    def replica_lists(self, places: Iterable[TopicPartition], broker: int) -> dict[TopicPartition, Replicas]:
        self._call()
        if self._is_late(broker):
            return {}
        return {place: self.shown[place][0] for place in places if place in self.partitions}

    def _is_late(self, broker: int | None) -> bool:
        return broker is not None and self.clock < self.late.get(broker, 0.0)

    def ongoing_partitions(self) -> frozenset[TopicPartition]:
        self._call()
        return frozenset(place for place, part in self.partitions.items() if part.target is not None)

    def alter_reassignments(self, lists: Mapping[TopicPartition, Sequence[int] | None]) -> dict[TopicPartition, str]:
        self._call()
        self.on_reassign(lists)
        refused = {place: why for place, row in lists.items() if (why := self._begin(place, row))}
        running = {place: part for place, part in self.partitions.items() if part.target is not None}
        self.most_running = max(self.most_running, len(running))
        self.unthrottled += sum(not self._is_throttled(place, part) for place, part in running.items())
        # Once more: a program may be killed after the controller has heard it.
        self._call()
        return refused

    def _is_throttled(self, place: TopicPartition, part: FakePartition) -> bool:
        listed = [self.topics.get(place.topic, {}).get(key, "").split(",") for key in (LEADING, FOLLOWING)]
        return bool(self.defaults) and all(
            "*" in entries or f"{place.partition}:{broker}" in entries for entries in listed for broker in part.adding
        )

    def elect_preferred_leaders(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        self._call()
        for place in places:
            self.partitions[place].led_by = self.partitions[place].replicas[0]
        return {}

    def copy_progress(self, adding: Mapping[TopicPartition, Iterable[int]]) -> CopyProgress:
        self._call()
        wanted = [(place, broker) for place, brokers in adding.items() for broker in brokers]
        return CopyProgress(sum(broker in self.partitions[place].in_sync for place, broker in wanted), len(wanted))

    def topic_configs(
        self, topics: Iterable[str], keys: Sequence[str], broker: int | None = None
    ) -> dict[str, dict[str, str]]:
        self._call()
        shown = {} if self._is_late(broker) else self.shown_configs[0]
        return {t: {key: value for key, value in shown.get(t, {}).items() if key in keys} for t in topics}

    def cluster_configs(self, keys: Sequence[str], broker: int | None = None) -> dict[str, str]:
        self._call()
        if self._is_late(broker):
            return dict.fromkeys(keys, "1")
        _, shown = self.shown_configs
        return {key: value for key, value in shown.items() if key in keys}

    def alter_topic_configs(self, changes: Mapping[str, Mapping[str, str | None]]) -> None:
        self._call()
        for topic, keys in changes.items():
            if any(len(value or "") > MOST_BYTES for value in keys.values()):
                # Brokers close the connection.
                raise KafkaConnectionError(topic)
            _set(self.topics.setdefault(topic, {}), keys)
        self._call()

    def alter_cluster_configs(self, changes: Mapping[str, str | None]) -> None:
        self._call()
        _set(self.defaults, changes)
        self._call()

    def now(self) -> float:
        return self.clock

    def sleep(self, seconds: float) -> None:
        self._call()
        self.clock += seconds
        assert self.clock < 10_000, "it never ends"
        for at, event in list(self.events):
            if self.clock >= at:
                self.events.remove((at, event))
                event()
        for part in self.partitions.values():
            self._copy(part)
        self._show(0.6)

    def _call(self) -> None:
        self.calls += 1
        # Who was killed does nothing any more, whatever it had meant to do at its end.
        if 0 <= self.crash_at <= self.calls:
            raise CrashError

    def _leader(self, part: FakePartition) -> int | None:
        able = [broker for broker in part.replicas if broker in part.in_sync and broker not in self.away]
        if part.led_by not in able:
            part.led_by = next(iter(able), None)
        return part.led_by

    def _seen(self, place: TopicPartition) -> PartitionStatus:
        part = self.partitions[place]
        replicas, in_sync = self.shown[place]
        return PartitionStatus(
            *(replicas, in_sync, self._leader(part), part.target),
            adding=frozenset(part.adding - part.in_sync),
            offline=frozenset(self.away.intersection(replicas)),
        )

    def _show(self, likely: float) -> None:
        for place, part in self.partitions.items():
            if self.chance.random() < likely:
                self.shown[place] = (part.replicas, frozenset(part.in_sync))
        self.show_configs()

    def show_configs(self) -> None:
        """Have all brokers know the configurations of now."""
        self.shown_configs = ({topic: dict(keys) for topic, keys in self.topics.items()}, dict(self.defaults))

    def _begin(self, place: TopicPartition, row: Sequence[int] | None) -> str:
        part = self.partitions.get(place)
        if part is None:
            return "UnknownTopicOrPartitionError"
        if row is None:
            return self._cancel(part)
        if not set(row) <= self.brokers:
            return "InvalidReplicationAssignmentError"
        goal = tuple(row)
        assert part.target in {None, goal}, "what runs was given another target"
        if part.target is None:
            part.adding = set(goal) - set(part.replicas)
            part.replicas = (*goal, *(broker for broker in part.replicas if broker not in goal))
            part.target = goal
            self._finish(part)
        return ""

    @staticmethod
    def _cancel(part: FakePartition) -> str:
        if part.target is None:
            return "NoReassignmentInProgressError"
        rest = [broker for broker in part.replicas if broker not in part.adding]
        # The order is lost.
        part.replicas, part.target = (*rest[1:], rest[0]), None
        part.in_sync -= part.adding
        part.adding = set()
        return ""

    def _copy(self, part: FakePartition) -> None:
        if self._leader(part) is not None:
            able = [broker for broker in part.replicas if broker not in self.away | self.never_in_sync]
            part.in_sync |= {broker for broker in able if self.chance.random() < 0.4}
        self._finish(part)

    @staticmethod
    def _finish(part: FakePartition) -> None:
        if part.target is None:
            return
        needed = part.adding or (set(part.target) if set(part.target) != set(part.replicas) else set())
        if needed <= part.in_sync:
            part.replicas, part.target, part.adding = part.target, None, set()
            part.in_sync &= set(part.replicas)
