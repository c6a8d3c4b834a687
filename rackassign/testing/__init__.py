"""Real multi-rack Kafka clusters for tests.

`LocalCluster` starts brokers as processes of this machine, without Docker or an installed Java. `DockerCluster` starts
equal clusters in containers (extra `docker`). `rackassign.testing.spark` starts a standalone Spark cluster with workers
in racks (extra `spark`). The fixtures in `rackassign.testing.pytest_plugin` provide Kafka clusters to tests.

The package needs an extra: `pip install 'rackassign[testing]'`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from rackassign.testing.cluster import Broker, Cluster
from rackassign.testing.local.cluster import LocalCluster
from rackassign.testing.local.jars import kafka_jars
from rackassign.testing.local.java import Java, find_java
from rackassign.testing.local.versions import KAFKA_VERSION, VERSIONS
from rackassign.testing.paths import cache_dir
from rackassign.testing.topics import create_topic
from rackassign.util.progress import Progress

if TYPE_CHECKING:
    from rackassign.testing.docker.cluster import DockerCluster

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
    "find_java",
    "kafka_jars",
]


def __getattr__(name: str) -> object:
    # Imported on access, so that other users do not pay for the imports of this provider.
    if name == "DockerCluster":
        return import_module("rackassign.testing.docker.cluster").DockerCluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
