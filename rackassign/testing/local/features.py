"""Feature levels of a cluster, which stay as they are while the brokers get a newer version of Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rackassign.errors import ClusterError
from rackassign.testing.topics import admin_client

_KEPT = frozenset({"kraft.version"})
"""Features that a cluster of `LocalCluster` cannot raise: its list of controllers is part of the configuration."""


_TIMEOUT_S = 180.0


def raise_features(client_config: Mapping[str, Any]) -> dict[str, int]:
    """Raise every feature of a cluster to the highest level that its brokers support.

    Args:
        client_config: Arguments for a client of the cluster. All brokers must have the same version.

    Returns:
        The level of each feature afterwards, such as that of `metadata.version`.

    Raises:
        ClusterError: The controller refuses a level, for instance because a broker does not support it.
    """
    with admin_client(client_config, _TIMEOUT_S) as admin:
        described = admin.describe_features()
        levels = {name: known["finalized"][1] for name, known in described.items() if "finalized" in known}
        supported = {name: known["supported"][1] for name, known in described.items() if "supported" in known}
        raised = {n: most for n, most in supported.items() if most > levels.get(n, 0) and n not in _KEPT}
        if raised:
            _update(admin, raised)
    return levels | raised


def _update(admin: Any, levels: Mapping[str, int]) -> None:  # noqa: ANN401 - kafka-python is untyped
    from kafka.errors import KafkaError  # noqa: PLC0415 - a cluster can be started without an installed client

    try:
        results = admin.update_features(levels)
    except KafkaError as error:
        raise ClusterError(f"the features cannot be raised: {error}") from error
    # Brokers before 4.0 return an error for each feature.
    refused = [f"{name}: {result}" for name, result in results.items() if result != "OK"]
    if refused:
        raise ClusterError(f"the features cannot be raised: {'; '.join(refused)}")
