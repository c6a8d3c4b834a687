"""Create topics with given replica lists, and wait until they are ready."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rackassign.errors import ClusterError, ConfigError
from rackassign.text import describe_error

_POLL_INTERVAL_S = 0.05


def create_topic(
    bootstrap: str,
    name: str,
    replica_assignments: Sequence[Sequence[int]],
    *,
    config: Mapping[str, str] | None = None,
    timeout_s: float = 60.0,
) -> None:
    """Create a topic with its replicas on the given brokers, and wait until it is ready.

    A topic is ready if every partition is led by its first replica, all replicas are in sync, and all running brokers
    know the topic: a client may ask any of them. If a broker was fenced for a moment while the topic was created,
    another replica leads, also later: the election of the preferred leader is requested then.

    Args:
        bootstrap: `bootstrap_servers` of the cluster.
        name: Name of the topic, which must not exist.
        replica_assignments: For each partition, by number, the IDs of its brokers, with the leader first.
        config: Topic configuration.
        timeout_s: Seconds for the creation and the wait together.

    Raises:
        ConfigError: A partition has no replicas, or there are no partitions.
        ClusterError: The brokers refuse the request, or the timeout has expired; the message then names the partitions
            that are not ready.
    """
    if not replica_assignments or not all(replica_assignments):
        raise ConfigError(
            f"replica_assignments: expected at least one broker for each partition, got {replica_assignments!r}"
        )
    from kafka.errors import KafkaConfigurationError, KafkaError  # noqa: PLC0415 - imported only when used

    expected = {number: list(replicas) for number, replicas in enumerate(replica_assignments)}
    deadline = time.monotonic() + timeout_s
    try:
        with admin_client({"bootstrap_servers": bootstrap}, timeout_s) as client:
            client.create_topics({name: {"assignments": expected, "configs": dict(config or {})}})
            _await_in_sync(client, name, expected, deadline)
            _await_known(client, name, expected, deadline)
    except KafkaConfigurationError:
        raise
    except KafkaError as error:
        raise ClusterError(f"topic {name!r} cannot be created: {describe_error(error)}") from error


def _await_in_sync(client: Any, name: str, expected: Mapping[int, list[int]], deadline: float) -> None:  # noqa: ANN401
    while True:
        described = client.describe_topics([name])
        partitions = described[0]["partitions"] if described else ()
        unready = _unready(partitions, expected)
        if not unready:
            return
        if time.monotonic() >= deadline:
            raise ClusterError(f"topic {name!r} is not in sync within the timeout: {'; '.join(unready)}")
        _elect_first(client, name, partitions, expected)
        # Brokers send no notifications, so their metadata can only be polled.
        time.sleep(_POLL_INTERVAL_S)


def _elect_first(
    client: Any,  # noqa: ANN401
    name: str,
    partitions: Iterable[Mapping[str, Any]],
    expected: Mapping[int, list[int]],
) -> None:
    """Request the election of the first replica where another one leads and all are in sync."""
    from rackassign.admin.alter import ReassignmentAdmin  # noqa: PLC0415
    from rackassign.model import TopicPartition  # noqa: PLC0415

    by_partition = {int(partition["partition_index"]): partition for partition in partitions}
    led_by_others = [
        TopicPartition(name, number)
        for number, replicas in expected.items()
        if number in by_partition
        and by_partition[number]["leader_id"] not in {-1, replicas[0]}
        and set(by_partition[number]["isr_nodes"]) == set(replicas)
    ]
    # A refusal is temporary: the next look repeats the request.
    ReassignmentAdmin(client).elect_preferred_leaders(led_by_others)


def _await_known(client: Any, name: str, expected: Mapping[int, list[int]], deadline: float) -> None:  # noqa: ANN401
    # Imported only when used, as kafka-python is.
    from rackassign.admin.describe import describe_topics_on, list_brokers  # noqa: PLC0415
    from rackassign.admin.raw_requests import DEAD  # noqa: PLC0415

    for broker in [broker for broker in list_brokers(client) if not broker.fenced]:
        while True:
            try:
                partitions = describe_topics_on(client, broker.id, [name])[name].partitions
            except DEAD:
                # It has just ended, and is not fenced yet.
                break
            if [partition.leader for partition in partitions] == [replicas[0] for replicas in expected.values()]:
                break
            if time.monotonic() >= deadline:
                raise ClusterError(f"topic {name!r} is not known to broker {broker.id} within the timeout")
            time.sleep(_POLL_INTERVAL_S)


def _unready(partitions: Iterable[Mapping[str, Any]], expected: Mapping[int, list[int]]) -> list[str]:
    found = {int(partition["partition_index"]): partition for partition in partitions}
    problems: list[str] = []
    for number, replicas in expected.items():
        partition = found.get(number)
        if partition is None:
            problems.append(f"partition {number} is not in the metadata")
        elif partition["leader_id"] != replicas[0] or set(partition["isr_nodes"]) != set(replicas):
            problems.append(
                f"partition {number}: expected leader {replicas[0]} and in-sync replicas {sorted(replicas)}, "
                f"got leader {partition['leader_id']} and {sorted(partition['isr_nodes'])}"
            )
    return problems


@contextmanager
def admin_client(client_config: Mapping[str, Any], timeout_s: float) -> Iterator[Any]:
    """Yield an admin client, with a limit in seconds for its bootstrap and for each request; close it afterwards."""
    from kafka import KafkaAdminClient  # noqa: PLC0415 - a cluster can be started without an installed client

    from rackassign.admin.admin_client import connected  # noqa: PLC0415 - as kafka-python

    timeout_ms = max(1, int(timeout_s * 1000))
    own = {"client_id": "rackassign-testing", "request_timeout_ms": timeout_ms, "bootstrap_timeout_ms": timeout_ms}
    client = connected(KafkaAdminClient, {**client_config, **own})
    try:
        yield client
    finally:
        client.close()
