"""Real multi-rack Kafka clusters for anyone's tests.

`LocalCluster` starts brokers as processes of this machine, needing neither Docker nor an installed Java;
`DockerCluster` starts the same in containers (extra `docker`);
the fixtures in `rackassign.testing.pytest_plugin` hand one out to tests. Needs the extra:
`pip install 'rackassign[testing]'`.
"""

from __future__ import annotations

from rackassign.testing.cluster import Broker, Cluster
from rackassign.testing.docker import DockerCluster
from rackassign.testing.jars import KAFKA_VERSION, kafka_jars
from rackassign.testing.java import Java, find_java
from rackassign.testing.local import LocalCluster
from rackassign.testing.paths import cache_dir
from rackassign.testing.progress import Progress
from rackassign.testing.topics import create_topic

__all__ = [
    "KAFKA_VERSION",
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
