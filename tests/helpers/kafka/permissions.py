"""Users and ACLs of a secured cluster, which all of it knows before a test uses them.

Both are metadata: each broker, and the controller, has them once it has read them from the log, in their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ResourcePattern,
    ResourceType,
    UserScramCredentialUpsertion,
)
from kafka.errors import KafkaError
from kafka.protocol.admin import DescribeAclsRequest

from rackassign.admin.raw_requests import send
from rackassign.testing import Cluster
from rackassign.testing._security import MECHANISM, PASSWORD
from rackassign.testing.harness import wait_until
from tests.helpers.machine_speed import scaled_ms

CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Of the plain listener, by which the users are made.
    "super.users": "User:ANONYMOUS",
}
"""Configuration of brokers."""

Permission = tuple[str, str, str]
"""Operation, kind of resource, its name."""

_LAST = "the-last"


def access(cluster: Cluster, user: str) -> dict[str, Any]:
    """Return the client configuration of a user."""
    return {**cluster.client_config("SECURE"), "sasl_plain_username": user}


def acl(user: str, permission: Permission) -> ACL:
    """Return what allows a user something."""
    operation, kind, name = permission
    return ACL(
        principal=f"User:{user}",
        host="*",
        operation=ACLOperation[operation],
        permission_type=ACLPermissionType.ALLOW,
        resource_pattern=ResourcePattern(ResourceType[kind], name),
    )


def make_users(cluster: Cluster, users: Iterable[str], acls: Sequence[ACL]) -> None:
    """Make users with permissions, and wait until all brokers and the controller know them."""
    with closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap)) as admin:
        names = [*users, _LAST]
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion(n, MECHANISM, PASSWORD) for n in names])
        give(cluster, admin, [*acls, acl(_LAST, ("CREATE", "CLUSTER", "kafka-cluster"))])
    # What was granted last is known to the controller too: so is all that was granted before.
    wait_until(lambda: _may_create(cluster, _LAST), "the controller knows it")


def give(cluster: Cluster, admin: KafkaAdminClient, acls: Sequence[ACL]) -> None:
    """Give permissions that are new, and wait until all brokers know them."""
    wait_until(lambda: len(set(_counts(cluster, admin))) == 1, "brokers that agree who may do what")
    before = max(_counts(cluster, admin))
    admin.create_acls(list(acls))
    wait_until(lambda: set(_counts(cluster, admin)) == {before + len(acls)}, "all brokers know who may do what")


def _counts(cluster: Cluster, admin: Any) -> list[int]:
    """Return how many ACLs each broker knows."""
    request = DescribeAclsRequest(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=ACLOperation.ANY,
        permission_type=ACLPermissionType.ANY,
    )
    found = [send(admin, request, broker.id) for broker in cluster.brokers]
    return [sum(len(row.acls) for row in answer.resources) for answer in found]


def _may_create(cluster: Cluster, user: str) -> bool:
    try:
        with closing(KafkaAdminClient(**access(cluster, user), bootstrap_timeout_ms=scaled_ms(2000))) as admin:
            admin.create_topics({"x": {"num_partitions": 1, "replication_factor": 1}}, validate_only=True)
    except KafkaError:
        return False
    return True
