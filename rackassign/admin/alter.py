"""Requests that change topics and replicas through kafka-python's admin client, with workarounds for its pitfalls.

A request that fails because of a lost connection may have been executed. So the state is checked before a request is
repeated: a topic that exists by then with the requested replicas was created by the first attempt.

Reassignments in progress are queried from the controller, which is authoritative; replica lists and in-sync replicas
are queried from brokers, whose metadata may be outdated (`admin.describe`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import (
    BrokerResponseError,
    ElectionNotNeededError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.protocol.admin import ElectionType

from rackassign.admin.admin_client import (
    CLUSTER,
    AuthorizationError,
    check_authorized,
    is_authorization_error,
    requires,
    topic_resource,
)
from rackassign.admin.describe import MIN_ISR, default_configs, retry_on_disconnect, topic_configs
from rackassign.admin.describe import describe_topics as described
from rackassign.admin.raw_requests import DEAD, EVERY_BROKER, ResourceKind, alter_configs, forget_controller
from rackassign.errors import KafkaUnavailableError
from rackassign.model import TopicPartition
from rackassign.text import truncate

_PATIENCE_S = 30.0
"""Seconds for which a cluster may be without a controller."""

_PAUSE_S = 0.5

_APPLIED_S = 10.0
"""Seconds for which brokers may not report yet what the controller has done."""

_GONE = (0, UnknownTopicOrPartitionError.errno)

T = TypeVar("T")


class RequestRejectedError(KafkaUnavailableError):
    """The cluster rejected a request."""

    def __init__(self, what: str, kind: str, reason: str) -> None:
        # `kind`: name of Kafka's error. `reason`: the broker's message, which may be empty.
        super().__init__(f"{what}: {kind}" + (f": {reason}" if reason else ""))
        self.kind = kind


@dataclass(frozen=True, slots=True)
class TopicValidation:
    # Effective value for the topic; None if the broker does not return it.
    min_isr: int | None


class TopicAdmin:
    """Sends requests to the controller."""

    def __init__(self, admin: KafkaAdminClient) -> None:
        self._admin = admin

    def validate(
        self, name: str, configs: Mapping[str, str], lists: Sequence[Sequence[int]] | None = None
    ) -> TopicValidation:
        """Validate a topic without creating it; without `lists` it has one replica on any broker."""
        response = self.send(lambda: self._create(name, configs, lists, validate_only=True))
        _check(name, response)
        configured = response.get("configs") or {}
        value = configured.get(MIN_ISR, {}).get("value") or configs.get(MIN_ISR)
        if value is None:
            # Users with CREATE but without DESCRIBE_CONFIGS get no value.
            check_authorized(response.get("topic_config_error_code"), "DESCRIBE_CONFIGS", topic_resource([name]))
        return TopicValidation(int(value) if value is not None else None)

    def create(self, name: str, configs: Mapping[str, str], lists: Sequence[Sequence[int]]) -> None:
        tries = 0

        def ask() -> dict[str, Any]:
            nonlocal tries
            tries += 1
            return self._create(name, configs, lists, validate_only=False)

        response = self.send(ask)
        exists = response["error_code"] == TopicAlreadyExistsError.errno
        if not (exists and tries > 1 and self._ends_as_requested(name, len(lists), lists)):
            _check(name, response)

    def add(self, name: str, count: int, lists: Sequence[Sequence[int]], *, validate_only: bool = False) -> None:
        """Add partitions with these replicas to a topic, which has `count` of them afterwards."""
        wanted = {name: {"count": count, "assignments": [list(row) for row in lists]}}
        tries = 0

        def ask() -> Any:  # noqa: ANN401 - kafka-python is untyped
            nonlocal tries
            tries += 1
            return self._admin.create_partitions(wanted, validate_only=validate_only, raise_errors=False)

        (response,) = self.send(ask).results
        check_authorized(response.error_code, "ALTER", topic_resource([name]))
        if response.error_code and not (
            tries > 1 and not validate_only and self._ends_as_requested(name, count, lists)
        ):
            raise RequestRejectedError(
                f"topic {name}", for_code(response.error_code).__name__, response.error_message or ""
            )

    def delete(self, names: Iterable[str]) -> None:
        """Delete topics; those that do not exist are skipped. After an error, others may have been deleted."""
        wanted = sorted(names)
        answer = self.send(lambda: self._admin.delete_topics(wanted, raise_errors=False))
        failed = {row["name"]: row for row in answer["topics"] if row["error_code"] not in _GONE}
        refused = [name for name, row in failed.items() if is_authorization_error(row["error_code"])]
        if refused:
            raise AuthorizationError("DELETE", topic_resource(refused))
        for name, row in failed.items():
            kind = for_code(row["error_code"]).__name__
            raise RequestRejectedError(f"topic {name}", kind, row.get("error_message") or "")

    def _create(
        self, name: str, configs: Mapping[str, str], lists: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> dict[str, Any]:
        counts = {"num_partitions": 1, "replication_factor": 1}
        assigned = {"assignments": {i: list(row) for i, row in enumerate(lists or ())}}
        wanted = {name: {**(counts if lists is None else assigned), "configs": dict(configs)}}
        # By default kafka-python raises the first error it finds.
        answer = self._admin.create_topics(wanted, validate_only=validate_only, raise_errors=False)
        found: dict[str, Any] = answer["topics"][0]
        return found

    def _ends_as_requested(self, name: str, count: int, lists: Sequence[Sequence[int]]) -> bool:
        """Return whether a topic has so many partitions, and these replicas in the last of them."""
        # An earlier request may have been executed although its response was lost. The broker that is asked may not
        # have applied that yet, so it is asked again for some seconds.
        wanted = [tuple(row) for row in lists]
        until = time.monotonic() + _APPLIED_S
        while True:
            found = described(self._admin, [name])[name].partitions
            if len(found) == count and [p.replicas for p in found[count - len(lists) :]] == wanted:
                return True
            if time.monotonic() > until:
                return False
            time.sleep(_PAUSE_S)

    def send(self, ask: Callable[[], T]) -> T:
        """Return the result of `ask`, called again while the controller that kafka-python has cached is gone."""
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return ask()
            except DEAD:
                if time.monotonic() > until:
                    raise
            except RuntimeError as error:
                # kafka-python's for two responses in a row that a broker is not the controller: one is being elected.
                if "active controller" not in str(error):
                    raise
                if time.monotonic() > until:
                    raise KafkaUnavailableError(f"no broker is the controller: {error}") from error
            forget_controller(self._admin)
            time.sleep(_PAUSE_S)


def _check(name: str, response: Mapping[str, Any]) -> None:
    check_authorized(response["error_code"], "CREATE", f"{topic_resource([name])}, or on {CLUSTER}")
    if response["error_code"]:
        error: type[BrokerResponseError] = for_code(response["error_code"])
        raise RequestRejectedError(f"topic {name}", error.__name__, response.get("error_message") or "")


_AT_ONCE = 500
"""Number of topics in one request."""


@dataclass(frozen=True, slots=True)
class OngoingReassignment:
    """A partition that is being reassigned."""

    # Its replicas after the reassignment, preferred leader first.
    target: tuple[int, ...]
    adding: tuple[int, ...]


class ReassignmentAdmin:
    def __init__(self, admin: KafkaAdminClient) -> None:
        self._admin = admin
        self._controller = TopicAdmin(admin)

    def list_reassignments(self) -> dict[TopicPartition, OngoingReassignment]:
        """Return all reassignments in progress, including those started by other tools."""
        with requires("DESCRIBE", CLUSTER):
            found = self._controller.send(self._admin.list_partition_reassignments)
        return {TopicPartition(*tp): _moving(row) for tp, row in found.items()}

    def alter_reassignments(self, lists: Mapping[TopicPartition, Sequence[int] | None]) -> dict[TopicPartition, str]:
        """Start reassignments to these replicas, or with None cancel one; return the errors of rejected partitions."""
        wanted = {
            KafkaPythonPartition(*tp): None if replicas is None else list(replicas) for tp, replicas in lists.items()
        }
        with requires("ALTER", CLUSTER):
            found = self._controller.send(lambda: self._admin.alter_partition_reassignments(wanted))
        # kafka-python keeps the type of the error and drops the broker's message.
        return {TopicPartition(*tp): error.__name__ for tp, error in found.items() if error is not None}

    def elect_preferred_leaders(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        """Elect preferred leaders, and return the errors of partitions that failed."""
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
        """Return keys of topics that have a value; topics that were deleted are omitted."""
        found = topic_configs(self._admin, topics, keys, broker)
        return {topic: {key: value for key, value in values.items() if value} for topic, values in found.items()}

    def cluster_configs(self, keys: Sequence[str], broker: int | None = None) -> dict[str, str]:
        """Return keys of the cluster-wide broker configuration that are set."""
        return default_configs(self._admin, keys, broker)

    def alter_topic_configs(self, changes: Mapping[str, Mapping[str, str | None]]) -> None:
        """Set keys of topics, unset those with None; topics that were deleted are skipped."""
        names = sorted(changes)
        for start in range(0, len(names), _AT_ONCE):
            self._change("topic", {name: changes[name] for name in names[start : start + _AT_ONCE]})

    def alter_cluster_configs(self, changes: Mapping[str, str | None]) -> None:
        """Set keys of the cluster-wide broker configuration, unset those with None."""
        # An offline broker gets the change when it is online again.
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
