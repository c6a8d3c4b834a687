"""What an admin client of kafka-python tells of a cluster, without its traps.

Each function asks as few brokers as it can, and those that ask one broker ask that one alone: in a call that goes to
several, one that has just died takes the answers of the others with it. A permission that is missing is an error that
names it, never an answer with less in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from kafka import KafkaAdminClient
from kafka import TopicPartition as HostPartition
from kafka.errors import (
    InvalidTopicError,
    KafkaConnectionError,
    NodeNotReadyError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.protocol.consumer import OffsetSpec

from rackassign.admin import raw_requests
from rackassign.admin.authorization import (
    CLUSTER,
    AuthorizationError,
    check_authorized,
    is_authorization_error,
    requires,
    topic_resource,
)
from rackassign.model import Broker, Partition, TopicPartition

_PATIENCE_MS = 5000
"""How long a leader may be on its way from one broker to another."""

_PAUSE_S = 0.2

T = TypeVar("T")


def retry_on_disconnect(ask: Callable[[], T]) -> T:
    """Ask what any broker can answer, again if the one that was asked has just died: the host may choose another.

    Raises:
        KafkaError: As the admin client does, of connections when time is up.
    """
    until = time.monotonic() + _PATIENCE_MS / 1000
    while True:
        try:
            return ask()
        except (KafkaConnectionError, NodeNotReadyError):
            if time.monotonic() > until:
                raise
        time.sleep(_PAUSE_S)


def list_brokers(admin: KafkaAdminClient) -> tuple[Broker, ...]:
    """Return all brokers in order of their ids, those that are down as far as the cluster tells of them.

    Raises:
        KafkaError: As the admin client does.
    """
    with requires("DESCRIBE", CLUSTER):
        return retry_on_disconnect(lambda: raw_requests.list_brokers(admin))


@dataclass(frozen=True, slots=True)
class DescribedTopic:
    """A topic, as the cluster tells of it.

    Args:
        partitions: In order of their ids.
        in_sync: The in-sync replicas of each.
        offline: Replicas of each whose broker or disk is down.
        internal: Whether it is one of Kafka's own.
        problem: Why it is not described; empty if it is.
        unknown: Whether there is no such topic, as far as the broker that was asked knows.
        refused: Whether it may not be described; whether it exists is not told then.
    """

    partitions: tuple[Partition, ...] = ()
    in_sync: tuple[tuple[int, ...], ...] = ()
    offline: tuple[tuple[int, ...], ...] = ()
    internal: bool = False
    problem: str = ""
    unknown: bool = False
    refused: bool = False


_UNKNOWN = (UnknownTopicOrPartitionError.errno, InvalidTopicError.errno)


def describe_topics(admin: KafkaAdminClient, names: Iterable[str]) -> dict[str, DescribedTopic]:
    """Describe topics with one request, replicas on brokers that are down included.

    Raises:
        KafkaError: As the admin client does.
    """
    wanted = sorted(set(names))
    # To the host an empty list is all topics.
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
        return DescribedTopic(problem=problem, unknown=code in _UNKNOWN)
    # One for all partitions that have the same replicas.
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
    """Describe topics as one broker knows them.

    Args:
        admin: To ask with.
        broker: Its id.
        names: Of the topics; all that may be described if left out.

    Raises:
        KafkaError: As the admin client does.
    """
    wanted = None if names is None else sorted(set(names))
    return {topic["name"]: _topic(topic) for topic in raw_requests.fetch_metadata(admin, broker, wanted)}


_AT_ONCE = 500
"""Topics whose configuration is asked for in one request."""

MIN_ISR = "min.insync.replicas"


def min_isr(admin: KafkaAdminClient, names: Iterable[str]) -> dict[str, int]:
    """Return `min.insync.replicas` of topics, as it is in force; those that do not exist are left out.

    Raises:
        NotAllowedError: One of them may not be asked.
        KafkaError: As the admin client does.
    """
    return {name: int(values[MIN_ISR]) for name, values in topic_configs(admin, names, [MIN_ISR]).items()}


def topic_configs(admin: KafkaAdminClient, names: Iterable[str], keys: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return some keys of the configuration of topics, as they are in force; topics that do not exist are left out.

    Raises:
        NotAllowedError: One of them may not be asked.
        KafkaError: As the admin client does.
    """
    wanted = sorted(names)
    found: list[raw_requests.ConfigResult] = []
    for start in range(0, len(wanted), _AT_ONCE):
        some = wanted[start : start + _AT_ONCE]
        found += retry_on_disconnect(partial(raw_requests.describe_configs, admin, "topic", some, keys))
    refused = [topic.name for topic in found if is_authorization_error(topic.code)]
    if refused:
        raise AuthorizationError("DESCRIBE_CONFIGS", topic_resource(refused))
    return {topic.name: topic.values for topic in found if _is_told(topic, UnknownTopicOrPartitionError.errno)}


def broker_configs(admin: KafkaAdminClient, broker: int, keys: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return some keys of a broker's configuration, and of what counts for all brokers that do not say otherwise.

    Raises:
        NotAllowedError: It may not be asked.
        KafkaError: As the admin client does.
    """
    names = [str(broker), raw_requests.EVERY_BROKER]
    found = raw_requests.describe_configs(admin, "broker", names, keys, broker)
    for told in found:
        check_authorized(told.code, "DESCRIBE_CONFIGS", CLUSTER)
    values = {told.name: told.values for told in found if _is_told(told)}
    return values[names[0]], values[names[1]]


def default_configs(admin: KafkaAdminClient, keys: Sequence[str]) -> dict[str, str]:
    """Return some keys of what counts for all brokers that do not say otherwise; keys that are not set are left out.

    Raises:
        NotAllowedError: It may not be asked.
        KafkaError: As the admin client does.
    """
    (found,) = retry_on_disconnect(
        partial(raw_requests.describe_configs, admin, "broker", [raw_requests.EVERY_BROKER], keys)
    )
    check_authorized(found.code, "DESCRIBE_CONFIGS", CLUSTER)
    return found.values if _is_told(found) else {}


def cluster_id(admin: KafkaAdminClient) -> str:
    """Return the id of the cluster; empty where it does not tell.

    Raises:
        KafkaError: As the admin client does.
    """
    return retry_on_disconnect(lambda: raw_requests.cluster_id(admin))


def can_describe_cluster(admin: KafkaAdminClient) -> bool:
    """Tell whether brokers list all their groups to the user; those that do not tell are taken to.

    Raises:
        KafkaError: As the admin client does.
    """
    return retry_on_disconnect(lambda: raw_requests.authorized_to_describe_cluster(admin)) is not False


def _is_told(found: raw_requests.ConfigResult, *unless: int) -> bool:
    """Tell whether a configuration was told; raise why it was not, unless that is one of these errors."""
    if found.code and found.code not in unless:
        raise for_code(found.code)(found.message)
    return not found.code


def list_groups_on(admin: KafkaAdminClient, broker: int) -> dict[str, str]:
    """Return the groups that a broker coordinates, each with its type: `consumer` for consumers, new and old.

    Without DESCRIBE on the cluster brokers leave out those that may not be described, and do not say so.

    Raises:
        KafkaError: As the admin client does.
    """
    with requires("DESCRIBE", CLUSTER):
        found = admin.list_groups(broker_ids=[broker])
    # The type of KIP-848 says who assigns, and both kinds have members that are consumers.
    kinds = {group["group_id"]: (group["protocol_type"], group.get("group_type") or "") for group in found}
    return {name: kind if kind not in {"consumer", "classic", ""} else old for name, (old, kind) in kinds.items()}


def describe_log_dirs(admin: KafkaAdminClient, broker: int, wanted: Mapping[str, int]) -> dict[TopicPartition, int]:
    """Return the bytes of each replica on a broker, of those that it has.

    Args:
        admin: To ask with.
        broker: Its id.
        wanted: Topics, each with the number of its partitions.

    Raises:
        NotAllowedError: It may not be asked. Brokers before 3.2 tell nothing then, as if their disks were empty.
        KafkaError: As the admin client does.
    """
    found = raw_requests.describe_log_dirs(admin, broker, {topic: range(count) for topic, count in wanted.items()})
    check_authorized(found.code, "DESCRIBE", CLUSTER)
    sizes: dict[TopicPartition, int] = {}
    for directory in found.directories:
        for topic in directory["topics"]:
            for row in topic["partitions"]:
                # One that is on its way to another disk is there twice.
                if not row["is_future_key"]:
                    sizes[TopicPartition(topic["name"], row["partition_index"])] = row["partition_size"]
    return sizes


def list_offsets(admin: KafkaAdminClient, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Return the first offset and the one behind the last of each partition; all should have the same leader.

    Raises:
        KafkaError: As the admin client does, and if one of the partitions has no leader now.
    """
    places = [HostPartition(*place) for place in wanted]
    with requires("DESCRIBE", topic_resource(place.topic for place in places)):
        earliest, latest = (
            admin.list_partition_offsets(dict.fromkeys(places, spec), timeout_ms=_PATIENCE_MS) if places else {}
            for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
        )
    return {TopicPartition(*place): (earliest[place].offset, latest[place].offset) for place in places}
