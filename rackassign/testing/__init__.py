"""Real multi-rack Kafka clusters for tests.

`LocalCluster` starts brokers as processes of this machine, without Docker or an installed Java. `DockerCluster` starts
equal clusters in containers (extra `docker`). `rackassign.testing.spark` starts a standalone Spark cluster with workers
in racks (extra `spark`). The fixtures of `rackassign.testing.pytest_plugin` provide Kafka clusters to tests; pytest
finds them by itself.

The package needs an extra: `pip install 'rackassign[testing]'`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rackassign.testing._broker_config import KAFKA_VERSION, VERSIONS, resolve_version
    from rackassign.testing._cluster import Broker, Cluster
    from rackassign.testing._docker_cluster import DockerCluster, find_image
    from rackassign.testing._jars import kafka_jars
    from rackassign.testing._local_cluster import LocalCluster
    from rackassign.testing._machine import cache_dir
    from rackassign.testing._runtime import Java, find_java
    from rackassign.testing._topics import create_topic
    from rackassign.util.callbacks import Progress

__all__ = [
    "KAFKA_VERSION",
    "VERSIONS",
    "Broker",
    "Cluster",
    "DockerCluster",
    "Java",
    "LocalCluster",
    "Progress",
    "cache_dir",
    "create_topic",
    "find_image",
    "find_java",
    "kafka_jars",
    "resolve_version",
]

_MODULES = {
    "KAFKA_VERSION": "testing._broker_config",
    "VERSIONS": "testing._broker_config",
    "Broker": "testing._cluster",
    "Cluster": "testing._cluster",
    "DockerCluster": "testing._docker_cluster",
    "Java": "testing._runtime",
    "LocalCluster": "testing._local_cluster",
    "Progress": "util.callbacks",
    "cache_dir": "testing._machine",
    "create_topic": "testing._topics",
    "find_image": "testing._docker_cluster",
    "find_java": "testing._runtime",
    "kafka_jars": "testing._jars",
    "resolve_version": "testing._broker_config",
}


def __getattr__(name: str) -> object:
    # Imported on access. pytest loads the plugin in this package wherever it is installed, and a run without clusters
    # must not pay for a client; nor any user for the other provider.
    if name in _MODULES:
        return getattr(import_module(f"rackassign.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
