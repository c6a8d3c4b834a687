"""The assignor that runs in brokers: where its jar is, and how a broker loads it.

Its source is the Maven project `broker-plugin/` of the repository. Consumer groups of the protocol of KIP-848 are
assigned by their coordinator, and no assignor of Kafka looks at racks. This one does, for members of any client.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

NAME = "rackassign"
"""Its name in groups."""

CLASS = "org.rackassign.broker.RackAwareAssignor"
"""Its class, as `group.consumer.assignors` takes it."""

PROPERTY = "group.consumer.assignors"
"""The property of brokers that lists assignors, by name or class, the default first."""

ASSIGNORS = f"{CLASS},uniform"
"""A value of `group.consumer.assignors`. The first one is for all groups whose members request none. Each is in it
once: with two of one name Kafka 4.1 to 4.3 start, and then load no group."""

OLDEST_KAFKA = "4.0"
"""The oldest Kafka with its interface. That one shows no racks of replicas, so plans are even and keep owners only."""

JAR = "rackassign-broker-plugin.jar"


def jar_path() -> Path:
    """Return the jar, for the class path of brokers."""
    return Path(str(resources.files(__package__).joinpath(JAR)))
