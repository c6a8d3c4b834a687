"""What the cluster's ACLs do not allow, told by the operation and the resource that are missing.

The host's own errors name neither: a `ClusterAuthorizationFailedError` may be for want of any of ten operations. So who
sends a request says what it takes, in the words of Kafka's ACLs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

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
from rackassign.util.text import truncate

REFUSALS = (
    TopicAuthorizationFailedError,
    GroupAuthorizationFailedError,
    ClusterAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    DelegationTokenAuthorizationFailedError,
)
"""All errors by which brokers tell that an ACL is missing."""

CLUSTER = "the cluster"

_NAMED = 3


class AuthorizationError(KafkaUnavailableError, KafkaError):  # type: ignore[misc] # the host is untyped
    """A permission is missing.

    It is an error of the host as well: who goes on without an answer that a broker does not give, goes on without this.

    Args:
        operation: As Kafka's ACLs call it; ` or ` between several that would do.
        resource: What it is missing on.
    """

    def __init__(self, operation: str, resource: str) -> None:
        super().__init__(f"not allowed: {operation} on {resource}")
        self.operation = operation
        self.resource = resource

    def __str__(self) -> str:
        # The host's would put the name of the class in front.
        return str(self.args[0])


@contextmanager
def requires(operation: str, resource: str) -> Iterator[None]:
    """Say what the requests in the block take.

    Raises:
        NotAllowedError: In place of what the host raises when brokers refuse; all other errors pass.
    """
    try:
        yield
    except REFUSALS:
        raise AuthorizationError(operation, resource) from None


def check_authorized(error: object, operation: str, resource: str) -> None:
    """Check what an answer says: a code, or the host's error or its class; None is no error.

    Raises:
        NotAllowedError: It is a refusal.
    """
    if is_authorization_error(error):
        raise AuthorizationError(operation, resource)


def is_authorization_error(error: object) -> bool:
    """Tell whether a code, or an error of the host or its class, says that an ACL is missing."""
    found = for_code(error) if isinstance(error, int) else error
    return issubclass(found if isinstance(found, type) else type(found), REFUSALS)


def topic_resource(names: Iterable[str]) -> str:
    """Name topics that something is missing on: `topic a`, or the first of several and how many more there are."""
    return _named("topic", names)


def group_resource(name: str) -> str:
    """Name a group that something is missing on."""
    return _named("group", [name])


def _named(kind: str, names: Iterable[str]) -> str:
    known = sorted(set(names))
    more = len(known) - _NAMED
    text = ", ".join(map(truncate, known[:_NAMED])) + (f" and {more} more" if more > 0 else "")
    return f"{kind}{'' if len(known) == 1 else 's'} {text}"
