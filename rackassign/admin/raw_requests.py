"""Requests that kafka-python's admin client sends wrongly or not at all, with the error code of each response.

All of this applies to kafka-python 3.0.12. Requests are sent with `_manager.run` and `_manager.send`, which take a
node, as the admin client's own methods do.

* Describing: the methods of the admin client choose any broker, and lose the errors of `describe_configs` and
  `describe_log_dirs`, so that a rejected request looks like an empty response.
* Altering configs: the admin client rejects the name of the cluster-wide default (a broker with an empty name), rejects
  keys that brokers do not list while they are unset, and returns errors as text without their code.
* Controller: the admin client looks the controller up once (`_controller_id`; with KRaft any live broker is suitable)
  and never forgets it. When that broker dies, every request to the controller fails at once, forever. With
  `_controller_id` None the admin client looks it up again.

`GroupCoordinators` sends requests to the coordinators of groups, again while coordinators move. To send a request that
kafka-python (3.0.12) has no method for, `_find_coordinator_id`, `_manager.run` and `_manager.send` of an admin client
are used. `_manager.cluster._coordinators` is used to forget a coordinator that has moved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from kafka import errors
from kafka.admin import ACLOperation
from kafka.errors import IncompatibleBrokerVersion, KafkaConnectionError, NodeNotReadyError, UnknownBrokerIdError
from kafka.protocol.admin import (
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    IncrementalAlterConfigsRequest,
)
from kafka.protocol.metadata import CoordinatorType, MetadataRequest

from rackassign.errors import ConfigError
from rackassign.model import Broker
from rackassign.text import with_version


def list_brokers(admin: Any) -> tuple[Broker, ...]:
    """Return all brokers in order of their IDs; fenced ones only if the brokers report them (4.0)."""
    # In 3.0.12 `describe_cluster` raises KeyError('endpoint_type') for the oldest response to its request (Kafka 2.8 to
    # 3.6); the metadata behind `_get_cluster_metadata`, which it uses for still older brokers, is sufficient here.
    try:
        found = admin.describe_cluster()["brokers"]
    except KeyError:
        found = admin._manager.run(admin._get_cluster_metadata, [])["brokers"]
    return tuple(sorted(map(_broker, found), key=lambda broker: broker.id))


def broker_addresses(admin: Any) -> list[tuple[int, str, int]]:
    """Return ID, host and port of each broker."""
    found = admin.describe_cluster()["brokers"]
    return [(_broker(broker).id, broker["host"], broker["port"]) for broker in found if broker["port"] > 0]


def cluster_id(admin: Any) -> str:
    """Return the ID of a cluster; empty if it has none (see `list_brokers` for the KeyError)."""
    try:
        found = admin.describe_cluster()
    except KeyError:
        found = admin._manager.run(admin._get_cluster_metadata, [])
    return found.get("cluster_id") or ""


def authorized_to_describe_cluster(admin: Any) -> bool | None:
    """Return whether the user has DESCRIBE on the cluster; None if brokers do not report it (before 2.8)."""
    # kafka-python's own method loses the response of brokers before 3.7 (see `list_brokers`).
    try:
        response = send(admin, DescribeClusterRequest(include_cluster_authorized_operations=True))
    except IncompatibleBrokerVersion:
        return None
    operations = response.authorized_operations
    return None if operations is None else ACLOperation.DESCRIBE in operations


def fetch_metadata(admin: Any, broker: int, names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return topics, or all that may be described, by the metadata of one broker; others may be minutes ahead."""
    rows = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    # By default brokers create the topics in the request.
    response = send(admin, MetadataRequest(topics=rows, allow_auto_topic_creation=False), broker)
    topics: list[dict[str, Any]] = response.to_dict()["topics"]
    return topics


ResourceKind = Literal["topic", "broker"]

RESOURCES: Mapping[ResourceKind, int] = {"topic": 2, "broker": 4}
"""Codes of resource types in requests."""

EVERY_BROKER = ""
"""Resource name of the cluster-wide broker configuration."""


class ConfigResult(NamedTuple):
    """The configuration of a topic or a broker, or an error; the code is 0 for none."""

    name: str
    code: int
    message: str
    # Values by key, including inherited ones; a key may be missing while it is unset.
    values: dict[str, str]


def describe_configs(
    admin: Any, kind: ResourceKind, names: Iterable[str], keys: Sequence[str], broker: int | None = None
) -> list[ConfigResult]:
    """Return configuration values of topics or brokers; for those of a broker, `broker` has to be that one."""
    resources = [(RESOURCES[kind], name, list(keys)) for name in names]
    response = send(admin, DescribeConfigsRequest(resources=resources, include_synonyms=False), broker)
    return [
        ConfigResult(
            result.resource_name,
            result.error_code,
            result.error_message or "",
            {row.name: row.value for row in result.configs if row.value is not None},
        )
        for result in response.results
    ]


class LogDirs(NamedTuple):
    # Error code if the whole request is rejected, otherwise 0. Brokers before 3.2 have none, and return nothing then.
    code: int
    directories: list[dict[str, Any]]


def describe_log_dirs(admin: Any, broker: int, wanted: Mapping[str, Sequence[int]]) -> LogDirs:
    """Return the log directories of a broker, with some of the partitions there."""
    response = send(admin, DescribeLogDirsRequest(topics=[(name, list(ids)) for name, ids in wanted.items()]), broker)
    return LogDirs(getattr(response, "error_code", None) or 0, [found.to_dict() for found in response.results])


def send(admin: Any, request: Any, broker: int | None = None) -> Any:
    async def ask() -> Any:
        cluster = admin._manager.cluster
        if broker is not None and cluster.broker_metadata(broker) is None:
            # It has started since the client has read its metadata, which it does every five minutes.
            await cluster.refresh_metadata()
        return await admin._manager.send(request, node_id=broker)

    return admin._manager.run(ask)


def _broker(found: Mapping[str, Any]) -> Broker:
    number = found["node_id"] if "node_id" in found else found["broker_id"]
    return Broker(number, found.get("rack") or None, fenced=bool(found.get("is_fenced")))


_SET, _DELETE = 0, 1


class Refusal(NamedTuple):
    """A rejected change, and the reason."""

    name: str
    code: int
    message: str


def alter_configs(admin: Any, kind: ResourceKind, changes: Mapping[str, Mapping[str, str | None]]) -> list[Refusal]:
    """Set keys by the name of the topic or broker, unset those with None, and return the rejected changes."""
    resources = [
        (
            RESOURCES[kind],
            name,
            [(key, _DELETE if value is None else _SET, value) for key, value in sorted(keys.items())],
        )
        for name, keys in sorted(changes.items())
    ]
    response = send(admin, IncrementalAlterConfigsRequest(resources=resources, validate_only=False))
    return [
        Refusal(result.resource_name, result.error_code, result.error_message or "")
        for result in response.responses
        if result.error_code
    ]


DEAD = (KafkaConnectionError, NodeNotReadyError, UnknownBrokerIdError)
"""Errors of kafka-python if the controller it has cached is gone."""


def forget_controller(admin: Any) -> None:
    """Make an admin client look up the controller for its next request; do nothing if kafka-python has changed."""
    if hasattr(admin, "_controller_id"):
        admin._controller_id = None


_NEEDED = ("_find_coordinator_id", "_manager.run", "_manager.send", "_manager.cluster._coordinators")

_MOVED = (
    errors.NotCoordinatorError,
    errors.CoordinatorNotAvailableError,
    errors.CoordinatorLoadInProgressError,
    # kafka-python caches the first coordinator forever, dead or alive.
    errors.KafkaConnectionError,
    errors.NodeNotReadyError,
    # A broker that hangs is replaced as coordinator, too. Its connections stay open, so that only time shows it.
    errors.RequestTimedOutError,
    errors.KafkaTimeoutError,
)

_PATIENCE_S = 10.0
"""Time limit for coordinators to move from one broker to another, for all groups together."""

_TRIES = 2
"""Minimum number of attempts: the first may go to a broker that is no longer the coordinator."""

_PAUSE_S = 0.1


class GroupCoordinators:
    """Sends requests about groups to their coordinators.

    While coordinators move, requests are sent again for up to ten seconds. This limit is shared: with a broker down,
    each of a hundred groups would take ten seconds. It begins again after ten seconds without a failure.
    """

    def __init__(
        self,
        admin: Any,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        # Nothing else uses the admin client meanwhile.
        try:
            attrgetter(*_NEEDED)(admin)
        except AttributeError as error:
            raise ConfigError(f"{with_version('kafka-python')} differs, groups cannot be described: {error}") from None
        self._admin = admin
        self._clock = clock
        self._sleep = sleep
        self._first_failure: float | None = None
        self._last_failure = 0.0

    def forget(self, group: str) -> None:
        """Look up the coordinator for the next request about a group, which kafka-python otherwise does only once."""
        self._admin._manager.cluster._coordinators.pop((CoordinatorType.GROUP, group), None)

    def coordinator(self, group: str) -> int:
        """Return the node ID of the coordinator of a group, as the last request about it found it."""
        return int(self._admin._manager.run(self._admin._find_coordinator_id, group))

    def ask(self, group: str, request: Any) -> Any:
        """Send a request about one group to its coordinator; return the response, which may contain any error."""
        tries = 0
        while True:
            tries += 1
            try:
                response = self._admin._manager.run(self._send, group, request)
                answer = getattr(response, "groups", None) or [response]
                if errors.for_code(answer[0].error_code) not in _MOVED or self._give_up(tries):
                    return response
            except _MOVED:
                if self._give_up(tries):
                    raise
            self.forget(group)
            self._sleep(_PAUSE_S)

    def _give_up(self, tries: int) -> bool:
        """Note a failure, and return whether the time limit is used up."""
        now = self._clock()
        if self._first_failure is None or now > self._last_failure + _PATIENCE_S:
            self._first_failure = now
        self._last_failure = now
        return tries >= _TRIES and now > self._first_failure + _PATIENCE_S

    async def _send(self, group: str, request: Any) -> Any:
        coordinator = await self._admin._find_coordinator_id(group)
        return await self._admin._manager.send(request, node_id=coordinator)
