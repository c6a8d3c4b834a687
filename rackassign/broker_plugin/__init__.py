"""The assignor that runs in brokers: where its jar is, and how a broker loads it.

Its source is the Maven project `broker-plugin/` of the repository. Consumer groups of the protocol of KIP-848 are
assigned by their coordinator, and no assignor of Kafka looks at racks. This one does, for members of any client.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

NAME = "rackassign"
"""Its name in reports, whatever name groups know it by."""

UNIFORM_CLASS = "org.rackassign.broker.UniformRackAwareAssignor"
"""Its class that groups know as `uniform`, in place of Kafka's own, as `group.consumer.assignors` takes it."""

CLASS = "org.rackassign.broker.RackAwareAssignor"
"""Its class that groups know as `rackassign`."""

PROPERTY = "group.consumer.assignors"
"""The property of brokers that lists assignors, by name or class, the default first."""

ASSIGNORS = f"{UNIFORM_CLASS},range"
"""A value of `group.consumer.assignors`. The first one is for all groups whose members request none, and Kafka's
`uniform` for those that reach a broker without it. Each name is in it once: with two assignors of one name Kafka 4.1 to
4.3 start, and then load no group."""

_KAFKA = "org.apache.kafka.coordinator.group.assignor."
_NAMES = {
    UNIFORM_CLASS: "uniform",
    CLASS: NAME,
    f"{_KAFKA}UniformAssignor": "uniform",
    f"{_KAFKA}RangeAssignor": "range",
}

OLDEST_KAFKA = "4.0"
"""The oldest Kafka with its interface. That one shows no racks of replicas, so plans are even and keep owners only."""

JAR = "rackassign-broker-plugin.jar"


def name_of(entry: str) -> str:
    """Return the name by which groups know an entry of `group.consumer.assignors`."""
    return _NAMES.get(entry, entry)


def is_own(entry: str) -> bool:
    """Return whether an entry of `group.consumer.assignors` is this assignor."""
    return entry in {UNIFORM_CLASS, CLASS}


def jar_path() -> Path:
    """Return the jar, for the class path of brokers."""
    return Path(str(resources.files(__package__).joinpath(JAR)))
