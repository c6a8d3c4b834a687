"""kafka-python's admin client, imported only when something is asked of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def admin_client(client_config: Mapping[str, Any], timeout_s: float) -> Iterator[Any]:
    """Lend an admin client, closed afterwards.

    Args:
        client_config: Where the brokers are, and how to come in.
        timeout_s: Seconds for the first contact and for each request.

    Raises:
        KafkaError: No broker answers in time.
    """
    from kafka import KafkaAdminClient  # noqa: PLC0415 - a cluster may be started without a client at hand

    client = KafkaAdminClient(
        **client_config,
        client_id="rackassign-testing",
        request_timeout_ms=max(1, int(timeout_s * 1000)),
        bootstrap_timeout_ms=max(1, int(timeout_s * 1000)),
    )
    try:
        yield client
    finally:
        client.close()
