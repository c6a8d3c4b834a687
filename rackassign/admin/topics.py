"""Requests that create, extend or delete topics through kafka-python's admin client, with workarounds for its pitfalls.

A request that fails because of a lost connection may have been executed. So the state is checked before a request is
repeated: a topic that exists by then with the requested replicas was created by the first attempt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kafka import KafkaAdminClient
from kafka.errors import BrokerResponseError, TopicAlreadyExistsError, UnknownTopicOrPartitionError, for_code

from rackassign.admin.authorization import (
    CLUSTER,
    AuthorizationError,
    check_authorized,
    is_authorization_error,
    topic_resource,
)
from rackassign.admin.cluster import MIN_ISR
from rackassign.admin.cluster import describe_topics as described
from rackassign.admin.raw_requests import DEAD, forget_controller
from rackassign.errors import KafkaUnavailableError

_PATIENCE_S = 30.0
"""Seconds for which a cluster may be without a controller."""

_PAUSE_S = 0.5

_APPLIED_S = 10.0
"""Seconds for which brokers may not report yet what the controller has done."""

_GONE = (0, UnknownTopicOrPartitionError.errno)

T = TypeVar("T")


class RequestRejectedError(KafkaUnavailableError):
    """The cluster rejected a request.

    Args:
        what: Object of the request.
        kind: Name of Kafka's error.
        reason: The broker's error message; may be empty.
    """

    def __init__(self, what: str, kind: str, reason: str) -> None:
        super().__init__(f"{what}: {kind}" + (f": {reason}" if reason else ""))
        self.kind = kind


@dataclass(frozen=True, slots=True)
class TopicValidation:
    """Result of the validation of a topic that does not exist yet.

    Args:
        min_isr: Effective `min.insync.replicas` of the topic; None if the broker does not return it.
    """

    min_isr: int | None


class TopicAdmin:
    """Sends requests to the controller.

    Args:
        admin: Admin client.
    """

    def __init__(self, admin: KafkaAdminClient) -> None:
        self._admin = admin

    def validate(
        self, name: str, configs: Mapping[str, str], lists: Sequence[Sequence[int]] | None = None
    ) -> TopicValidation:
        """Validate a topic without creating it.

        Args:
            name: Name of the topic.
            configs: Its configuration.
            lists: The replicas of each partition; if omitted, one replica on any broker.

        Raises:
            RequestRejectedError: The topic would be rejected.
            AuthorizationError: CREATE is missing, or DESCRIBE_CONFIGS, which `min.insync.replicas` needs.
            KafkaError: As raised by the admin client.
        """
        response = self.send(lambda: self._create(name, configs, lists, validate_only=True))
        _check(name, response)
        configured = response.get("configs") or {}
        value = configured.get(MIN_ISR, {}).get("value") or configs.get(MIN_ISR)
        if value is None:
            # Users with CREATE but without DESCRIBE_CONFIGS get no value.
            check_authorized(response.get("topic_config_error_code"), "DESCRIBE_CONFIGS", topic_resource([name]))
        return TopicValidation(int(value) if value is not None else None)

    def create(self, name: str, configs: Mapping[str, str], lists: Sequence[Sequence[int]]) -> None:
        """Create a topic with these replicas.

        Raises:
            RequestRejectedError: The topic was rejected.
            AuthorizationError: CREATE is missing.
            KafkaError: As raised by the admin client.
        """
        tries = 0

        def ask() -> dict[str, Any]:
            nonlocal tries
            tries += 1
            return self._create(name, configs, lists, validate_only=False)

        response = self.send(ask)
        exists = response["error_code"] == TopicAlreadyExistsError.errno
        if not (exists and tries > 1 and self._exists_as_requested(name, lists)):
            _check(name, response)

    def add(self, name: str, count: int, lists: Sequence[Sequence[int]], *, validate_only: bool = False) -> None:
        """Add partitions to a topic.

        Args:
            name: Name of the topic.
            count: Number of its partitions afterwards.
            lists: The replicas of each new partition.
            validate_only: Whether only to validate the request.

        Raises:
            RequestRejectedError: The request was rejected.
            AuthorizationError: The permission is missing.
            KafkaError: As raised by the admin client.
        """
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
        """Delete topics; those that do not exist are skipped.

        Raises:
            RequestRejectedError: A topic was not deleted; others may have been.
            AuthorizationError: DELETE on one of them is missing.
            KafkaError: As raised by the admin client.
        """
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

    def _exists_as_requested(self, name: str, lists: Sequence[Sequence[int]]) -> bool:
        return self._ends_as_requested(name, len(lists), lists)

    def _ends_as_requested(self, name: str, count: int, lists: Sequence[Sequence[int]]) -> bool:
        """Return whether a topic has so many partitions, and these replicas in the last of them.

        An earlier request may have been executed although its response was lost. The broker that is asked may not have
        applied that yet, so it is asked again for some seconds.
        """
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
        """Return the result of `ask`, calling it again as long as the controller that kafka-python has cached is gone.

        Raises:
            KafkaError: As raised by the admin client.
        """
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return ask()
            except DEAD:
                if time.monotonic() > until:
                    raise
            forget_controller(self._admin)
            time.sleep(_PAUSE_S)


def _check(name: str, response: Mapping[str, Any]) -> None:
    check_authorized(response["error_code"], "CREATE", f"{topic_resource([name])}, or on {CLUSTER}")
    if response["error_code"]:
        error: type[BrokerResponseError] = for_code(response["error_code"])
        raise RequestRejectedError(f"topic {name}", error.__name__, response.get("error_message") or "")
