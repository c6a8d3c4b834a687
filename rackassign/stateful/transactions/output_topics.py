"""The topics of `output` as brokers know them, checked before a member joins its group."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from rackassign.admin.admin_client import check_authorized, connected, topic_resource
from rackassign.admin.describe import UNKNOWN_TOPIC, check_described_operation, retry_on_disconnect
from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.util.text import truncate


def check_output_topics(connection: Mapping[str, Any], topics: Sequence[str], changelogs: Collection[str]) -> None:
    """Check that the topics of `output` exist and may be written to. Does nothing without topics.

    Without this check a missing permission would be known only when the first record has been processed.

    Args:
        connection: Connection properties of an admin client.
        topics: The topics.
        changelogs: Names of the changelogs of the group.

    Raises:
        ConfigError: A topic does not exist, or is one of the changelogs.
        AuthorizationError: WRITE on a topic is missing, as far as brokers report it (2.3 and later).
        KafkaUnavailableError: Kafka does not respond.
    """
    for topic in topics:
        if topic in changelogs:
            # Records that are not changes would be restored as state.
            raise ConfigError(f"topic {truncate(topic)} of output is a changelog of this group; choose another one")
    if not topics:
        return
    try:
        with closing(connected(KafkaAdminClient, connection)) as admin:
            described = retry_on_disconnect(lambda: admin.describe_topics(list(topics)))
    except (KafkaError, OSError) as error:
        raise KafkaUnavailableError(f"the topics of output are not known: {error}") from None
    for found in described:
        # WRITE includes DESCRIBE.
        check_authorized(found["error_code"], "WRITE", topic_resource([found["name"]]))
        if found["error_code"] in UNKNOWN_TOPIC:
            raise ConfigError(f"topic {truncate(found['name'])} of output does not exist")
    check_described_operation(described, "WRITE")
