"""Queries of a cluster through kafka-python's admin client, with workarounds for its pitfalls.

Each function queries as few brokers as possible, and those that query one broker send requests to that one alone: in a
call that goes to several brokers, one that has just died discards the responses of the others. A missing permission is
an error that names it, never an incomplete result.
At the end are the replica selectors of brokers, which choose the preferred read replica of a consumer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import (
    InvalidTopicError,
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.protocol.consumer import OffsetSpec

from rackassign.admin import raw_requests
from rackassign.admin.admin_client import (
    CLUSTER,
    AuthorizationError,
    check_authorized,
    is_authorization_error,
    requires,
    topic_resource,
)
from rackassign.model import Broker, Partition, TopicPartition
from rackassign.text import WarnOnce, join_ids

_PATIENCE_MS = 5000
"""Time limit for a leader to move from one broker to another."""

_PAUSE_S = 0.2

T = TypeVar("T")


def retry_on_disconnect(ask: Callable[[], T]) -> T:
    """Send a request that any broker can answer, again if the chosen one has just died: the retry may use another."""
    until = time.monotonic() + _PATIENCE_MS / 1000
    while True:
        try:
            return ask()
        except (KafkaConnectionError, NodeNotReadyError):
            if time.monotonic() > until:
                raise
        time.sleep(_PAUSE_S)


def list_brokers(admin: KafkaAdminClient) -> tuple[Broker, ...]:
    """Return all brokers in order of their IDs, including offline ones if the cluster lists them."""
    with requires("DESCRIBE", CLUSTER):
        return retry_on_disconnect(lambda: raw_requests.list_brokers(admin))


@dataclass(frozen=True, slots=True)
class DescribedTopic:
    # In order of their IDs, and for each the in-sync replicas and those whose broker or disk is offline.
    partitions: tuple[Partition, ...] = ()
    in_sync: tuple[tuple[int, ...], ...] = ()
    offline: tuple[tuple[int, ...], ...] = ()
    internal: bool = False
    # Why it could not be described; empty if it could.
    problem: str = ""
    # Whether the topic does not exist, according to the broker that responded.
    unknown: bool = False
    # Whether DESCRIBE is not allowed; whether the topic exists is unknown then.
    refused: bool = False


def check_operation(admin: KafkaAdminClient, operation: str, names: Iterable[str]) -> None:
    """Check that an operation is allowed on existing topics, as far as brokers report it (2.3 and later)."""
    wanted = sorted(set(names))
    check_described_operation(retry_on_disconnect(lambda: admin.describe_topics(wanted)) if wanted else (), operation)


def check_described_operation(found: Iterable[Mapping[str, Any]], operation: str) -> None:
    """Check that an operation is allowed on topics that the admin client has described; see `check_operation`."""
    allowed = {topic["name"]: topic.get("authorized_operations") for topic in found}
    refused = [name for name, operations in allowed.items() if operations is not None and operation not in operations]
    if refused:
        raise AuthorizationError(operation, topic_resource(refused))


UNKNOWN_TOPIC = (UnknownTopicOrPartitionError.errno, InvalidTopicError.errno)
"""Error codes of a topic that does not exist, according to the broker that responded."""


def describe_topics(admin: KafkaAdminClient, names: Iterable[str]) -> dict[str, DescribedTopic]:
    """Describe topics with one request, including replicas on offline brokers."""
    wanted = sorted(set(names))
    # kafka-python describes all topics if the list is empty.
    found = retry_on_disconnect(lambda: admin.describe_topics(wanted)) if wanted else ()
    return {topic["name"]: _topic(topic) for topic in found}


def _topic(found: Mapping[str, Any]) -> DescribedTopic:
    code = found["error_code"]
    rows: dict[int, Any] = {row["partition_index"]: row for row in found["partitions"]}
    if is_authorization_error(code):
        return DescribedTopic(
            problem=str(AuthorizationError("DESCRIBE", topic_resource([found["name"]]))), refused=True
        )
    if code or sorted(rows) != list(range(len(rows))):
        problem = for_code(code).__name__ if code else "not all of its partitions are listed"
        return DescribedTopic(problem=problem, unknown=code in UNKNOWN_TOPIC)
    # One object for all partitions with equal replicas.
    made: dict[tuple[int, ...], Partition] = {}
    partitions: list[Partition] = []
    for i in range(len(rows)):
        key = (rows[i]["leader_id"], *rows[i]["replica_nodes"])
        if key not in made:
            made[key] = Partition(key[1:], key[0] if key[0] >= 0 else None)
        partitions.append(made[key])
    in_sync, offline = (
        tuple(tuple(rows[i][key]) for i in range(len(rows))) for key in ("isr_nodes", "offline_replicas")
    )
    return DescribedTopic(tuple(partitions), in_sync, offline, internal=found["is_internal"])


def describe_topics_on(
    admin: KafkaAdminClient, broker: int, names: Iterable[str] | None = None
) -> dict[str, DescribedTopic]:
    """Describe topics, or all that may be described, by the metadata of one broker."""
    wanted = None if names is None else sorted(set(names))
    return {topic["name"]: _topic(topic) for topic in raw_requests.fetch_metadata(admin, broker, wanted)}


_AT_ONCE = 500
"""Number of topics whose configuration is queried in one request."""

UNCLEAN_ELECTION = "unclean.leader.election.enable"
"""Whether a replica that is not in sync may become the leader, which loses records."""

MIN_ISR = "min.insync.replicas"


def min_isr(admin: KafkaAdminClient, names: Iterable[str]) -> dict[str, int]:
    """Return the effective `min.insync.replicas` of topics; topics that do not exist are omitted."""
    return {name: int(values[MIN_ISR]) for name, values in topic_configs(admin, names, [MIN_ISR]).items()}


def topic_configs(
    admin: KafkaAdminClient, names: Iterable[str], keys: Sequence[str], broker: int | None = None
) -> dict[str, dict[str, str]]:
    """Return effective configuration values of topics; topics that do not exist are omitted."""
    wanted = sorted(names)
    results: list[raw_requests.ConfigResult] = []
    for start in range(0, len(wanted), _AT_ONCE):
        some = wanted[start : start + _AT_ONCE]
        results += _described_configs(admin, "topic", some, keys, broker)
    refused = [topic.name for topic in results if is_authorization_error(topic.code)]
    if refused:
        raise AuthorizationError("DESCRIBE_CONFIGS", topic_resource(refused))
    return {topic.name: topic.values for topic in results if _is_available(topic, UnknownTopicOrPartitionError.errno)}


def _described_configs(
    admin: KafkaAdminClient,
    kind: raw_requests.ResourceKind,
    names: Sequence[str],
    keys: Sequence[str],
    broker: int | None,
) -> list[raw_requests.ConfigResult]:
    ask = partial(raw_requests.describe_configs, admin, kind, names, keys, broker)
    # A retry would use another broker.
    return retry_on_disconnect(ask) if broker is None else ask()


def broker_configs(admin: KafkaAdminClient, broker: int, keys: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return configuration values of a broker, and the cluster-wide defaults of the same keys."""
    names = [str(broker), raw_requests.EVERY_BROKER]
    found = raw_requests.describe_configs(admin, "broker", names, keys, broker)
    for result in found:
        check_authorized(result.code, "DESCRIBE_CONFIGS", CLUSTER)
    values = {result.name: result.values for result in found if _is_available(result)}
    return values[names[0]], values[names[1]]


def default_configs(admin: KafkaAdminClient, keys: Sequence[str], broker: int | None = None) -> dict[str, str]:
    """Return cluster-wide default configuration values of brokers; keys that are not set are omitted."""
    (defaults,) = _described_configs(admin, "broker", [raw_requests.EVERY_BROKER], keys, broker)
    check_authorized(defaults.code, "DESCRIBE_CONFIGS", CLUSTER)
    return defaults.values if _is_available(defaults) else {}


def cluster_id(admin: KafkaAdminClient) -> str:
    """Return the ID of the cluster; empty if it has none."""
    return retry_on_disconnect(lambda: raw_requests.cluster_id(admin))


def can_describe_cluster(admin: KafkaAdminClient) -> bool:
    """Return whether brokers list all their groups to the user; True if brokers do not report this."""
    return retry_on_disconnect(lambda: raw_requests.authorized_to_describe_cluster(admin)) is not False


def _is_available(found: raw_requests.ConfigResult, *unless: int) -> bool:
    """Return whether a configuration was returned; raise its error, unless that is one of the given codes."""
    if found.code and found.code not in unless:
        raise for_code(found.code)(found.message)
    return not found.code


def list_groups_on(admin: KafkaAdminClient, broker: int) -> dict[str, str]:
    """Return the groups that a broker coordinates, each with its type: `consumer` for both kinds of consumer groups."""
    # Without DESCRIBE on the cluster brokers omit groups that may not be described, without an error.
    with requires("DESCRIBE", CLUSTER):
        found = admin.list_groups(broker_ids=[broker])
    # The group type of KIP-848 states which side assigns; the members of both types are consumers.
    kinds = {group["group_id"]: (group["protocol_type"], group.get("group_type") or "") for group in found}
    return {name: kind if kind not in {"consumer", "classic", ""} else old for name, (old, kind) in kinds.items()}


def describe_log_dirs(admin: KafkaAdminClient, broker: int, wanted: Mapping[str, int]) -> dict[TopicPartition, int]:
    """Return the size in bytes of each replica on a broker."""
    found = raw_requests.describe_log_dirs(admin, broker, {topic: range(count) for topic, count in wanted.items()})
    # Without the permission, brokers before 3.2 return an empty list, as if their disks were empty.
    check_authorized(found.code, "DESCRIBE", CLUSTER)
    sizes: dict[TopicPartition, int] = {}
    for directory in found.directories:
        for topic in directory["topics"]:
            for row in topic["partitions"]:
                # A replica that is being moved to another disk is listed twice.
                if not row["is_future_key"]:
                    sizes[TopicPartition(topic["name"], row["partition_index"])] = row["partition_size"]
    return sizes


def list_offsets(admin: KafkaAdminClient, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Return the log start offset and the end offset of partitions of one leader; a KafkaError if one has none."""
    tps = [KafkaPythonPartition(*tp) for tp in wanted]
    with requires("DESCRIBE", topic_resource(tp.topic for tp in tps)):
        earliest, latest = (
            admin.list_partition_offsets(dict.fromkeys(tps, spec), timeout_ms=_PATIENCE_MS) if tps else {}
            for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
        )
    return {TopicPartition(*tp): (earliest[tp].offset, latest[tp].offset) for tp in tps}


RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SELECTOR = "replica.selector.class"


def replica_selector(admin: KafkaAdminClient, broker: int) -> str | None:
    """Return a broker's `replica.selector.class`; None if it has none and its partitions are read from leaders."""
    own, _ = broker_configs(admin, broker, [SELECTOR])
    return own.get(SELECTOR) or None


def replica_selectors(admin: KafkaAdminClient) -> dict[int, str | None]:
    """Return the `replica.selector.class` of each broker that returns it; fenced brokers are omitted."""
    selectors: dict[int, str | None] = {}
    for broker in list_brokers(admin):
        if not broker.fenced:
            with suppress(KafkaError):
                selectors[broker.id] = replica_selector(admin, broker.id)
    return selectors


def warn_of_selectors(selectors: Mapping[int, str | None], once: WarnOnce) -> None:
    """Warn if brokers have no selector at all; a custom one may be rack-aware."""
    without = sorted(broker for broker, selector in selectors.items() if not selector)
    if without:
        once.warn(
            "selectors",
            "brokers %s have no %s, so consumers read their partitions from the leader, local or not: set %s",
            *(join_ids(without), SELECTOR, RACK_AWARE),
        )
