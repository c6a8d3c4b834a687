"""Reassignment of replicas through kafka-python's admin client, with workarounds for its pitfalls.

Reassignments in progress are queried from the controller, which is authoritative; replica lists and in-sync replicas
are queried from brokers, whose metadata may be outdated (`admin.cluster`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import ElectionNotNeededError, UnknownTopicOrPartitionError, for_code
from kafka.protocol.admin import ElectionType

from rackassign.admin.authorization import CLUSTER, AuthorizationError, is_authorization_error, requires, topic_resource
from rackassign.admin.cluster import default_configs, retry_on_disconnect, topic_configs
from rackassign.admin.raw_requests import EVERY_BROKER, ResourceKind, alter_configs
from rackassign.admin.topics import RequestRejectedError, TopicAdmin
from rackassign.model import TopicPartition
from rackassign.util.text import truncate

_AT_ONCE = 500
"""Number of topics in one request."""


@dataclass(frozen=True, slots=True)
class OngoingReassignment:
    """A partition that is being reassigned.

    Args:
        target: Its replicas after the reassignment, preferred leader first.
        adding: Those of them that are being added.
    """

    target: tuple[int, ...]
    adding: tuple[int, ...]


class ReassignmentAdmin:
    """Sends requests to the controller.

    Args:
        admin: Admin client.
    """

    def __init__(self, admin: KafkaAdminClient) -> None:
        self._admin = admin
        self._controller = TopicAdmin(admin)

    def list_reassignments(self) -> dict[TopicPartition, OngoingReassignment]:
        """Return all reassignments in progress, including those started by other tools.

        Raises:
            AuthorizationError: DESCRIBE on the cluster is missing.
            KafkaError: As raised by the admin client.
        """
        with requires("DESCRIBE", CLUSTER):
            found = self._controller.send(self._admin.list_partition_reassignments)
        return {TopicPartition(*tp): _moving(row) for tp, row in found.items()}

    def alter_reassignments(self, lists: Mapping[TopicPartition, Sequence[int] | None]) -> dict[TopicPartition, str]:
        """Start reassignments of partitions to these replicas; None cancels the one in progress.

        Returns:
            The error of each partition that was rejected. Started reassignments are still in progress.

        Raises:
            AuthorizationError: ALTER on the cluster is missing.
            KafkaError: As raised by the admin client.
        """
        wanted = {
            KafkaPythonPartition(*tp): None if replicas is None else list(replicas) for tp, replicas in lists.items()
        }
        with requires("ALTER", CLUSTER):
            found = self._controller.send(lambda: self._admin.alter_partition_reassignments(wanted))
        # kafka-python keeps the type of the error and drops the broker's message.
        return {TopicPartition(*tp): error.__name__ for tp, error in found.items() if error is not None}

    def elect_preferred_leaders(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        """Elect preferred leaders, and return the errors of partitions that failed.

        Raises:
            AuthorizationError: ALTER on the cluster is missing.
            KafkaError: As raised by the admin client.
        """
        wanted: dict[str, list[int]] = {}
        for tp in sorted(tps):
            wanted.setdefault(tp.topic, []).append(tp.partition)
        if not wanted:
            # kafka-python would elect leaders of all partitions.
            return {}
        with requires("ALTER", CLUSTER):
            response = self._controller.send(
                lambda: self._admin.elect_leaders(ElectionType.PREFERRED, wanted, raise_errors=False)
            )
            if response.error_code:
                raise for_code(response.error_code)
        return {
            TopicPartition(result.topic, row.partition_id): for_code(row.error_code).__name__
            for result in response.replica_election_results
            for row in result.partition_result
            if row.error_code not in {0, ElectionNotNeededError.errno}
        }

    def topic_configs(
        self, topics: Iterable[str], keys: Sequence[str], broker: int | None = None
    ) -> dict[str, dict[str, str]]:
        """Return keys of topics that have a value; topics that were deleted are omitted.

        Args:
            topics: Names of the topics.
            keys: Configuration keys.
            broker: Broker that gets the request; any if omitted.

        Raises:
            AuthorizationError: DESCRIBE_CONFIGS on a topic is missing.
            KafkaError: As raised by the admin client.
        """
        found = topic_configs(self._admin, topics, keys, broker)
        return {topic: {key: value for key, value in values.items() if value} for topic, values in found.items()}

    def cluster_configs(self, keys: Sequence[str], broker: int | None = None) -> dict[str, str]:
        """Return keys of the cluster-wide broker configuration that are set.

        Args:
            keys: Configuration keys.
            broker: Broker that gets the request; any if omitted.

        Raises:
            AuthorizationError: DESCRIBE_CONFIGS on the cluster is missing.
            KafkaError: As raised by the admin client.
        """
        return default_configs(self._admin, keys, broker)

    def alter_topic_configs(self, changes: Mapping[str, Mapping[str, str | None]]) -> None:
        """Set keys of topics, unset those with None; topics that were deleted are skipped.

        Raises:
            AuthorizationError: ALTER_CONFIGS on a topic is missing.
            RequestRejectedError: The change of a topic was rejected; others may have been made.
            KafkaError: As raised by the admin client.
        """
        names = sorted(changes)
        for start in range(0, len(names), _AT_ONCE):
            self._change("topic", {name: changes[name] for name in names[start : start + _AT_ONCE]})

    def alter_cluster_configs(self, changes: Mapping[str, str | None]) -> None:
        """Set keys of the cluster-wide broker configuration, unset those with None.

        An offline broker gets the change when it is online again.

        Raises:
            AuthorizationError: ALTER_CONFIGS on the cluster is missing.
            RequestRejectedError: The change was rejected.
            KafkaError: As raised by the admin client.
        """
        self._change("broker", {EVERY_BROKER: changes})

    def _change(self, kind: ResourceKind, changes: Mapping[str, Mapping[str, str | None]]) -> None:
        """Change configurations, except of topics that were deleted together with their configuration."""
        results = retry_on_disconnect(lambda: alter_configs(self._admin, kind, changes))
        refused = [one for one in results if one.code != UnknownTopicOrPartitionError.errno]
        barred = [one.name for one in refused if is_authorization_error(one.code)]
        if barred:
            raise AuthorizationError("ALTER_CONFIGS", topic_resource(barred) if kind == "topic" else CLUSTER)
        for one in refused:
            what = f"topic {truncate(one.name)}" if kind == "topic" else CLUSTER
            raise RequestRejectedError(what, for_code(one.code).__name__, one.message)


def _moving(row: Mapping[str, Sequence[int]]) -> OngoingReassignment:
    removing = set(row["removing_replicas"])
    return OngoingReassignment(tuple(b for b in row["replicas"] if b not in removing), tuple(row["adding_replicas"]))
