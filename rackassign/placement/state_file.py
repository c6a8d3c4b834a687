"""Brokers that were seen, and placeholders that wait for one: two small files beside each other on this machine.

A broker that was unregistered takes its rack with it, and a placeholder cannot be told to the cluster at all. So both
are written down here, of one cluster, whose id is in the file. A file that cannot be read, or is of another cluster, is
refused and never overwritten: it may be all there is of a plan.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rackassign import scenario
from rackassign.errors import ConfigError, InputError
from rackassign.model import Broker, TopicPartition
from rackassign.placement import json_fields
from rackassign.util.text import short_repr

FORMAT = "rackassign-registry/1"


@dataclass(frozen=True, slots=True)
class PlacementState:
    """What is known of a cluster beside what it tells.

    Args:
        brokers: The last known rack of each broker that was ever seen, by id.
        plans: Where the replicas of a partition are to be, placeholders (negative numbers) among them.
        cluster: Its id; empty where that is not known, as in files from before it was written down.
    """

    brokers: Mapping[int, str | None] = field(default_factory=dict)
    plans: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    cluster: str = ""

    def for_cluster(self, cluster: str) -> PlacementState:
        """Return the registry as that of a cluster, by its id; one that is of none yet is of this one from now on.

        Raises:
            ConfigError: It is of another one.
        """
        if self.cluster and cluster and self.cluster != cluster:
            raise ConfigError(
                f"state: the file is of cluster {short_repr(self.cluster)}, and this is {short_repr(cluster)};"
                " name another with --state-file"
            )
        return replace(self, cluster=self.cluster or cluster)

    def with_brokers(self, brokers: Iterable[Broker]) -> PlacementState:
        """Return the registry with these brokers in it, as they are now."""
        return replace(self, brokers={**self.brokers, **{broker.id: broker.rack for broker in brokers}})

    def forget(self, broker: int) -> PlacementState:
        """Return the registry without a broker that will not come back."""
        return replace(self, brokers={known: rack for known, rack in self.brokers.items() if known != broker})

    def with_placeholders(self, plans: Mapping[TopicPartition, tuple[int, ...]]) -> PlacementState:
        """Return the registry with these plans; those without a placeholder need not be kept, and are dropped."""
        merged = {**self.plans, **plans}
        return replace(self, plans={place: row for place, row in merged.items() if any(b < 0 for b in row)})


def read(file: Path) -> PlacementState:
    """Read a registry; an empty one if there is no such file.

    Raises:
        ConfigError: It is there and cannot be read.
    """
    try:
        text = file.read_text("utf-8")
    except FileNotFoundError:
        return PlacementState()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {file}: {error}") from None
    try:
        return _parsed(scenario.parse(text))
    except InputError as error:
        raise ConfigError(f"{file} is not a registry of rackassign: {error}") from None


def _parsed(value: Any) -> PlacementState:  # noqa: ANN401 - it comes from JSON
    found = json_fields.fields(value, "", {"format", "brokers", "plans"}, {"cluster"})
    if found["format"] != FORMAT:
        raise InputError("format", f"expected {short_repr(FORMAT)}, got {short_repr(found['format'])}")
    brokers = json_fields.mapping(found["brokers"], "brokers")
    plans: dict[TopicPartition, tuple[int, ...]] = {}
    for topic, rows in json_fields.mapping(found["plans"], "plans").items():
        for partition, row in json_fields.mapping(rows, f"plans.{topic}").items():
            path = f"plans.{topic}.{partition}"
            ids = json_fields.array(row, path)
            plans[TopicPartition(topic, _id(partition, path))] = tuple(json_fields.number(each, path) for each in ids)
    return PlacementState(
        {
            _id(broker, f"brokers.{broker}"): None if rack is None else json_fields.text(rack, f"brokers.{broker}")
            for broker, rack in brokers.items()
        },
        plans,
        json_fields.text(found.get("cluster", ""), "cluster"),
    )


def _id(text: str, path: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise InputError(path, f"expected a number, got {short_repr(text)}")
    return int(text)


def write(file: Path, registry: PlacementState) -> None:
    """Write a registry in place of what is there, all of it or nothing.

    Raises:
        ConfigError: It cannot be written.
    """
    plans: dict[str, dict[str, list[int]]] = {}
    for (topic, partition), row in sorted(registry.plans.items()):
        plans.setdefault(topic, {})[str(partition)] = list(row)
    brokers = {str(broker): rack for broker, rack in sorted(registry.brokers.items())}
    value = {"format": FORMAT, "cluster": registry.cluster, "brokers": brokers, "plans": plans}
    write_file(file, json.dumps(value, indent=1))


def write_file(file: Path, text: str) -> None:
    """Write a file so that whoever reads it, and after whatever crash, finds the old text or the new one.

    Raises:
        ConfigError: It cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as to:
                to.write(text)
                to.flush()
                os.fsync(to.fileno())
            Path(name).replace(file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}") from None
