"""What an execution needs from a cluster."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from rackassign.admin.admin_client import AuthorizationError, topic_resource
from rackassign.admin.alter import ReassignmentAdmin
from rackassign.admin.describe import (
    DescribedTopic,
    describe_log_dirs,
    describe_topics,
    describe_topics_on,
    list_brokers,
)
from rackassign.errors import KafkaUnavailableError
from rackassign.model import TopicPartition
from rackassign.reassignment.partition_execution import PartitionStatus, Replicas
from rackassign.text import counted


class CopyProgress(NamedTuple):
    """Bytes that have been copied, of those to be copied."""

    # Bytes on the new replicas, bytes of the leaders, and whether all brokers have reported theirs.
    done: int
    total: int
    complete: bool = True


class ReassignmentCluster(ReassignmentAdmin):
    """Describes a cluster and changes it; configurations and reassignments are changed as by `ReassignmentAdmin`."""

    def __init__(self, admin: KafkaAdminClient) -> None:
        # `admin` is not used by another thread meanwhile.
        super().__init__(admin)
        self._leaders: dict[TopicPartition, int] = {}

    def describe(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionStatus]:
        """Return the state of partitions, without those that the cluster does not know."""
        wanted = list(tps)
        # Reassignments in progress are listed before and after the topics are described: one may complete in between.
        running = self.list_reassignments()
        described = describe_topics(self._admin, {tp.topic for tp in wanted})
        running |= self.list_reassignments()
        refused = [name for name, topic in described.items() if topic.refused]
        if refused:
            raise AuthorizationError("DESCRIBE", topic_resource(refused))
        statuses: dict[TopicPartition, PartitionStatus] = {}
        for tp in wanted:
            topic = described.get(tp.topic)
            if topic is None or topic.problem or tp.partition >= len(topic.partitions):
                continue
            partition = topic.partitions[tp.partition]
            in_sync = frozenset(topic.in_sync[tp.partition])
            moving = running.get(tp)
            statuses[tp] = PartitionStatus(
                tuple(partition.replicas),
                in_sync,
                partition.leader,
                None if moving is None else moving.target,
                frozenset(() if moving is None else moving.adding),
                frozenset(topic.offline[tp.partition]),
            )
            if partition.leader is not None:
                self._leaders[tp] = partition.leader
        return statuses

    def missing(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        wanted = list(tps)
        described = describe_topics(self._admin, {tp.topic for tp in wanted})
        reasons: dict[TopicPartition, str] = {}
        for tp in wanted:
            topic = described.get(tp.topic)
            if topic is None or topic.unknown or topic.problem:
                reasons[tp] = "the topic does not exist" if topic is None or topic.unknown else topic.problem
            elif tp.partition >= len(topic.partitions):
                reasons[tp] = f"the topic has only {counted(len(topic.partitions), 'partition')}"
        return reasons

    def not_deleted(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        """Return the reason for each partition that may exist although one broker does not know it.

        The metadata of a broker may be minutes behind that of another. Any other error of a topic than that it does not
        exist is no reason either to take it for deleted. Brokers that do not respond are left out.
        """
        wanted = list(tps)
        names = sorted({tp.topic for tp in wanted})
        reasons: dict[TopicPartition, str] = {}
        for broker in sorted(self.serving_brokers()) if wanted else ():
            described: Mapping[str, DescribedTopic] = {}
            with suppress(KafkaError):
                described = describe_topics_on(self._admin, broker, names)
            for tp in wanted:
                topic = described.get(tp.topic)
                if topic is None or topic.unknown:
                    continue
                if topic.problem:
                    reasons[tp] = topic.problem
                elif tp.partition < len(topic.partitions):
                    reasons[tp] = "not all brokers report it: their metadata differs"
        return reasons

    def offline_brokers(self) -> frozenset[int]:
        return frozenset(broker.id for broker in list_brokers(self._admin) if broker.fenced)

    def serving_brokers(self) -> frozenset[int]:
        return frozenset(broker.id for broker in list_brokers(self._admin) if not broker.fenced)

    def replica_lists(self, tps: Iterable[TopicPartition], broker: int) -> dict[TopicPartition, Replicas]:
        """Return the replicas of partitions according to a broker, without those that it does not know."""
        wanted = list(tps)
        described = describe_topics_on(self._admin, broker, sorted({tp.topic for tp in wanted}))
        return {
            tp: described[tp.topic].partitions[tp.partition].replicas
            for tp in wanted
            if tp.topic in described and tp.partition < len(described[tp.topic].partitions)
        }

    def ongoing_partitions(self) -> frozenset[TopicPartition]:
        """Return all partitions with a reassignment in progress, including those of other processes."""
        return frozenset(self.list_reassignments())

    def copy_progress(self, adding: Mapping[TopicPartition, Iterable[int]]) -> CopyProgress:
        """Return the progress of the replicas on these brokers; those of brokers that do not report it are missing."""
        leading: dict[int, list[TopicPartition]] = {}
        taking: dict[int, list[TopicPartition]] = {}
        for tp, brokers in adding.items():
            if tp in self._leaders:
                leading.setdefault(self._leaders[tp], []).append(tp)
            for broker in brokers:
                taking.setdefault(broker, []).append(tp)
        led = [self._sizes(broker, tps) for broker, tps in leading.items()]
        copied = [self._sizes(broker, tps) for broker, tps in taking.items()]
        total = {tp: size for sizes in led for tp, size in (sizes or {}).items()}
        arrived = sum(min(size, total.get(tp, 0)) for sizes in copied for tp, size in (sizes or {}).items())
        return CopyProgress(
            arrived,
            sum(total.get(tp, 0) * len(set(brokers)) for tp, brokers in adding.items()),
            total.keys() >= adding.keys() and None not in copied,
        )

    def now(self) -> float:
        """Return the time of a monotonic clock in seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def _sizes(self, broker: int, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int] | None:
        counts: dict[str, int] = {}
        for tp in tps:
            counts[tp.topic] = max(counts.get(tp.topic, 0), tp.partition + 1)
        try:
            found = describe_log_dirs(self._admin, broker, counts)
        except (KafkaError, KafkaUnavailableError):
            # The broker may be down, or the permission may be missing.
            return None
        return {tp: found[tp] for tp in tps if tp in found}
