"""Requests that kafka-python's admin client sends wrongly or not at all, with the error code of each answer.

All of this was seen in kafka-python 3.0.12. Requests are sent by `_manager.run` and `_manager.send`, which take a node,
as the admin client's own methods do.

* Describing: the methods of the admin client choose any broker, and lose the errors of `describe_configs` and
  `describe_log_dirs`, so that a refused request looks like an empty answer.
* Altering configs: the admin client refuses the name of the cluster-wide default (a broker with an empty name), refuses
  keys that brokers do not list while they are unset, and returns errors as text without their code.
* Controller: the admin client looks for the controller once (`_controller_id`; with KRaft any live broker will do) and
  never forgets it. When that broker dies, every request to the controller fails at once, for ever. With
  `_controller_id` None the admin client looks for another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from kafka.admin import ACLOperation
from kafka.errors import IncompatibleBrokerVersion, KafkaConnectionError, NodeNotReadyError, UnknownBrokerIdError
from kafka.protocol.admin import (
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    IncrementalAlterConfigsRequest,
)
from kafka.protocol.metadata import MetadataRequest

from rackassign.model import Broker


def list_brokers(admin: Any) -> tuple[Broker, ...]:
    """Return all brokers in order of their ids; those that are fenced only where the brokers tell of them (4.0).

    In 3.0.12 `describe_cluster` raises KeyError('endpoint_type') for the oldest answer to its request (Kafka 2.8 to
    3.6); the metadata behind `_get_cluster_metadata`, which it uses for still older brokers, has what is needed here.

    Raises:
        KafkaError: As the admin client does.
    """
    try:
        found = admin.describe_cluster()["brokers"]
    except KeyError:
        found = admin._manager.run(admin._get_cluster_metadata, [])["brokers"]
    return tuple(sorted(map(_broker, found), key=lambda broker: broker.id))


def cluster_id(admin: Any) -> str:
    """Return the id of a cluster; empty where it does not tell (see `list_brokers` for the KeyError).

    Raises:
        KafkaError: As the admin client does.
    """
    try:
        found = admin.describe_cluster()
    except KeyError:
        found = admin._manager.run(admin._get_cluster_metadata, [])
    return found.get("cluster_id") or ""


def authorized_to_describe_cluster(admin: Any) -> bool | None:
    """Tell whether the user has DESCRIBE on the cluster; None where brokers do not tell (before 2.8).

    Asked for past the host's own method, which loses the answer of brokers before 3.7 (see `list_brokers`).

    Raises:
        KafkaError: As the admin client does.
    """
    try:
        response = _sent(admin, DescribeClusterRequest(include_cluster_authorized_operations=True), None)
    except IncompatibleBrokerVersion:
        return None
    operations = response.authorized_operations
    return None if operations is None else ACLOperation.DESCRIBE in operations


def fetch_metadata(admin: Any, broker: int, names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return topics as one broker knows them: its copy of the metadata may be minutes behind that of another.

    Args:
        admin: To ask with.
        broker: Its id.
        names: Of the topics; all that may be described if left out.

    Raises:
        KafkaError: As the admin client does.
    """
    rows = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    # Brokers make topics that they are asked for, unless they are told not to.
    response = _sent(admin, MetadataRequest(topics=rows, allow_auto_topic_creation=False), broker)
    topics: list[dict[str, Any]] = response.to_dict()["topics"]
    return topics


ResourceKind = Literal["topic", "broker"]

RESOURCES: Mapping[ResourceKind, int] = {"topic": 2, "broker": 4}
"""Their numbers in requests."""

EVERY_BROKER = ""
"""The name by which brokers know the configuration of all of them."""


class ConfigResult(NamedTuple):
    """What a broker tells of the configuration of a topic or a broker.

    Args:
        name: Of the topic, or id of the broker.
        code: Of the error; 0 for none.
        message: To the error.
        values: By key, inherited ones as well; a key may be missing while it is unset.
    """

    name: str
    code: int
    message: str
    values: dict[str, str]


def describe_configs(
    admin: Any, kind: ResourceKind, names: Iterable[str], keys: Sequence[str], broker: int | None = None
) -> list[ConfigResult]:
    """Return some keys of the configuration of topics or brokers.

    Args:
        admin: To ask with.
        kind: Whose configuration.
        names: Of the topics, or ids of the brokers.
        keys: All of them take three times as long.
        broker: That is asked: for the configuration of a broker, the broker itself.

    Raises:
        KafkaError: As the admin client does; what a broker refuses is in the answer.
    """
    resources = [(RESOURCES[kind], name, list(keys)) for name in names]
    response = _sent(admin, DescribeConfigsRequest(resources=resources, include_synonyms=False), broker)
    return [
        ConfigResult(
            found.resource_name,
            found.error_code,
            found.error_message or "",
            {row.name: row.value for row in found.configs if row.value is not None},
        )
        for found in response.results
    ]


class LogDirs(NamedTuple):
    """The directories of a broker.

    Args:
        code: Of the error, if all of it is refused; 0 for none. Brokers before 3.2 have no code, and tell nothing then.
        directories: As the broker tells of them.
    """

    code: int
    directories: list[dict[str, Any]]


def describe_log_dirs(admin: Any, broker: int, wanted: Mapping[str, Sequence[int]]) -> LogDirs:
    """Return the directories of a broker, with some of the partitions there.

    Args:
        admin: To ask with.
        broker: Its id.
        wanted: Ids of partitions, by topic.

    Raises:
        KafkaError: As the admin client does; what the broker refuses is in the answer.
    """
    response = _sent(admin, DescribeLogDirsRequest(topics=[(name, list(ids)) for name, ids in wanted.items()]), broker)
    return LogDirs(getattr(response, "error_code", None) or 0, [found.to_dict() for found in response.results])


def _sent(admin: Any, request: Any, broker: int | None) -> Any:
    async def ask() -> Any:
        return await admin._manager.send(request, node_id=broker)

    return admin._manager.run(ask)


def _broker(found: Mapping[str, Any]) -> Broker:
    number = found["node_id"] if "node_id" in found else found["broker_id"]
    return Broker(number, found.get("rack") or None, fenced=bool(found.get("is_fenced")))


_SET, _DELETE = 0, 1


class Refusal(NamedTuple):
    """What was refused, and why."""

    name: str
    code: int
    message: str


def alter_configs(admin: Any, kind: ResourceKind, changes: Mapping[str, Mapping[str, str | None]]) -> list[Refusal]:
    """Set keys by the name of the topic or broker, unset those with None, and return what was refused.

    Raises:
        KafkaError: As the admin client does.
    """
    resources = [
        (
            RESOURCES[kind],
            name,
            [(key, _DELETE if value is None else _SET, value) for key, value in sorted(keys.items())],
        )
        for name, keys in sorted(changes.items())
    ]

    async def ask() -> Any:
        return await admin._manager.send(IncrementalAlterConfigsRequest(resources=resources, validate_only=False))

    response = admin._manager.run(ask)
    return [
        Refusal(found.resource_name, found.error_code, found.error_message or "")
        for found in response.responses
        if found.error_code
    ]


DEAD = (KafkaConnectionError, NodeNotReadyError, UnknownBrokerIdError)
"""What the host raises when the controller it knows is gone."""


def forget_controller(admin: Any) -> None:
    """Have an admin client look for a controller with its next request; does nothing if the host is another."""
    if hasattr(admin, "_controller_id"):
        admin._controller_id = None
