"""What the room asks brokers through kafka-python, imported only when something is asked."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_ATTEMPT_S = 10.0


@contextmanager
def admin_client(bootstrap: str | Sequence[str], timeout_s: float) -> Iterator[Any]:
    """Lend an admin client, closed afterwards.

    Args:
        bootstrap: As `bootstrap_servers`.
        timeout_s: Seconds for the first contact and for each request.

    Raises:
        KafkaError: No broker answers in time.
    """
    from kafka import KafkaAdminClient  # noqa: PLC0415 - a cluster may be started without a client at hand

    client = KafkaAdminClient(
        bootstrap_servers=bootstrap if isinstance(bootstrap, str) else list(bootstrap),
        client_id="rackassign-testing",
        request_timeout_ms=max(1, int(timeout_s * 1000)),
        bootstrap_timeout_ms=max(1, int(timeout_s * 1000)),
    )
    try:
        yield client
    finally:
        client.close()


def unready_brokers(wanted: Sequence[tuple[int, str]], deadline: float) -> dict[int, str]:
    """Return which brokers are not registered and unfenced, with a word why; empty if all are.

    Args:
        wanted: Ids and `host:port` of the brokers that should be up.
        deadline: On the monotonic clock; one look takes 10 s at most, and no longer than that.
    """
    from kafka.errors import KafkaConfigurationError, KafkaError  # noqa: PLC0415 - as above

    if not wanted:
        return {}
    timeout_s = max(0.5, min(_ATTEMPT_S, deadline - time.monotonic()))
    try:
        with admin_client([address for _, address in wanted], timeout_s) as client:
            described = client.describe_cluster()["brokers"]
    except KafkaConfigurationError:
        raise
    except KafkaError as error:
        return {broker: f"cannot be asked ({type(error).__name__}: {error})" for broker, _ in wanted}
    fenced = {int(broker["broker_id"]): bool(broker["is_fenced"]) for broker in described}
    return {
        broker: "is fenced" if broker in fenced else "is not registered"
        for broker, _ in wanted
        if fenced.get(broker, True)
    }
