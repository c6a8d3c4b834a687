"""Admin clients of kafka-python that leave nothing open, and missing ACLs as errors with operation and resource.

kafka-python's own errors name neither: a `ClusterAuthorizationFailedError` may be caused by any of ten missing
operations. So the sender of a request states the required operation, in the terms of Kafka's ACLs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from kafka.errors import (
    ClusterAuthorizationFailedError,
    DelegationTokenAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    for_code,
)

from rackassign.errors import KafkaUnavailableError
from rackassign.text import join_first, truncate

REFUSALS = (
    TopicAuthorizationFailedError,
    GroupAuthorizationFailedError,
    ClusterAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    DelegationTokenAuthorizationFailedError,
)
"""All errors that brokers return if an ACL is missing."""

CLUSTER = "the cluster"

_NAMED = 3


class AuthorizationError(KafkaUnavailableError, KafkaError):  # type: ignore[misc] # kafka-python is untyped
    """A permission is missing.

    It is an error of kafka-python as well, so that code which tolerates a missing response tolerates this, too.
    """

    def __init__(self, operation: str, resource: str) -> None:
        # `operation`: of Kafka's ACLs, with ` or ` between several of which one is sufficient.
        super().__init__(f"not allowed: {operation} on {resource}")
        self.operation = operation
        self.resource = resource

    def __str__(self) -> str:
        # kafka-python's would begin with the name of the class.
        return str(self.args[0])


@contextmanager
def requires(operation: str, resource: str) -> Iterator[None]:
    """State the operation that the requests in the block require; an error that it is missing names it then."""
    try:
        yield
    except REFUSALS:
        raise AuthorizationError(operation, resource) from None


def check_authorized(error: object, operation: str, resource: str) -> None:
    """Check an error code, or an error of kafka-python or its class; None is no error."""
    if is_authorization_error(error):
        raise AuthorizationError(operation, resource)


def is_authorization_error(error: object) -> bool:
    """Return whether an error code, or an error of kafka-python or its class, means that an ACL is missing."""
    kind = for_code(error) if isinstance(error, int) else error
    return issubclass(kind if isinstance(kind, type) else type(kind), REFUSALS)


def topic_resource(names: Iterable[str]) -> str:
    """Return a text for topics: `topic a`, or the first of several and the number of the others."""
    return _named("topic", names)


def group_resource(name: str) -> str:
    return _named("group", [name])


def _named(kind: str, names: Iterable[str]) -> str:
    known = sorted(set(names))
    return f"{kind}{'' if len(known) == 1 else 's'} {join_first([truncate(name) for name in known], _NAMED)}"


AdminT = TypeVar("AdminT")


def connected(kind: Callable[..., AdminT], config: Mapping[str, Any]) -> AdminT:
    # kafka-python (3.0.12) starts the IO thread of an admin client before it connects, and stops the thread in
    # `close()` only. If no broker responds, its constructor raises, and the thread and five file descriptors are left.
    # A process that tries again every minute could open no more files after some hours.
    make = config.get("kafka_client", getattr(kind, "DEFAULT_CONFIG", {}).get("kafka_client"))
    if make is None:
        # A version without this option: what is left of its clients cannot be closed.
        return kind(**config)
    made: list[Any] = []

    def create(**options: Any) -> Any:  # noqa: ANN401 - kafka-python is untyped
        made.append(make(**options))
        return made[-1]

    try:
        return kind(**{**config, "kafka_client": create})
    except BaseException:
        for client in made:
            # The reason why it could not connect is what the caller needs.
            with suppress(Exception):
                client.close()
        raise
