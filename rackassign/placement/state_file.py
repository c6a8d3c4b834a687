"""The state file: brokers that were seen, and placeholders that wait for a broker.

An unregistered broker takes its rack with it, and the cluster accepts no placeholders at all. So both are stored here,
for one cluster, whose ID is in the file. A file that cannot be read, or belongs to another cluster, is refused and
never overwritten: it may be the only copy of a plan.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rackassign import scenario
from rackassign.errors import ConfigError, InputError
from rackassign.model import Broker, TopicPartition
from rackassign.text import parse_digits, short_repr
from rackassign.util.files import (
    array_field,
    create_folder,
    locked,
    number_field,
    object_field,
    object_fields,
    text_field,
    write_file,
)

FORMAT = "rackassign-registry/1"


@dataclass(frozen=True, slots=True)
class PlacementState:
    """Information about a cluster that the cluster does not report."""

    # Last known rack of each broker that was ever seen, and replica lists with placeholders (negative numbers).
    brokers: Mapping[int, str | None] = field(default_factory=dict)
    plans: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    # Empty if unknown, as in files of earlier versions.
    cluster: str = ""

    def for_cluster(self, cluster: str) -> PlacementState:
        """Return the state for a cluster ID; a state without a cluster is assigned to this one."""
        if self.cluster and cluster and self.cluster != cluster:
            raise ConfigError(
                f"state file: it belongs to cluster {short_repr(self.cluster)}, but this is {short_repr(cluster)};"
                " use another one with --state-file"
            )
        return replace(self, cluster=self.cluster or cluster)

    def with_brokers(self, brokers: Iterable[Broker]) -> PlacementState:
        return replace(self, brokers={**self.brokers, **{broker.id: broker.rack for broker in brokers}})

    def forget(self, broker: int) -> PlacementState:
        return replace(self, brokers={known: rack for known, rack in self.brokers.items() if known != broker})

    def with_placeholders(self, plans: Mapping[TopicPartition, tuple[int, ...]]) -> PlacementState:
        """Return the state with these plans; plans without a placeholder are dropped, as they need not be kept."""
        merged = {**self.plans, **plans}
        return replace(self, plans={tp: row for tp, row in merged.items() if any(b < 0 for b in row)})


def read(file: Path) -> PlacementState:
    """Read a state file; return an empty state if it does not exist."""
    try:
        text = file.read_text("utf-8")
    except FileNotFoundError:
        return PlacementState()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {file}: {error}") from None
    try:
        return _parsed(scenario.parse(text))
    except InputError as error:
        raise ConfigError(f"{file} is not a state file of rackassign: {error}") from None


def _parsed(value: Any) -> PlacementState:  # noqa: ANN401 - it comes from JSON
    fields = object_fields(value, "", {"format", "brokers", "plans"}, {"cluster"})
    if fields["format"] != FORMAT:
        raise InputError("format", f"expected {short_repr(FORMAT)}, got {short_repr(fields['format'])}")
    brokers = object_field(fields["brokers"], "brokers")
    plans: dict[TopicPartition, tuple[int, ...]] = {}
    for topic, rows in object_field(fields["plans"], "plans").items():
        for partition, row in object_field(rows, f"plans.{topic}").items():
            path = f"plans.{topic}.{partition}"
            ids = array_field(row, path)
            plans[TopicPartition(topic, _id(partition, path))] = tuple(number_field(each, path) for each in ids)
    return PlacementState(
        {
            _id(broker, f"brokers.{broker}"): None if rack is None else text_field(rack, f"brokers.{broker}")
            for broker, rack in brokers.items()
        },
        plans,
        text_field(fields.get("cluster", ""), "cluster"),
    )


def _id(text: str, path: str) -> int:
    found = parse_digits(text)
    if found is None:
        raise InputError(path, f"expected a number, got {short_repr(text)}")
    return found


def update(file: Path, change: Callable[[PlacementState], PlacementState]) -> None:
    """Change what is in a state file; processes that do this at the same time wait for each other."""
    # `change` gets what the file has now, which may be newer than what was read before.
    create_folder(file)
    with locked(file, wait=True):
        known = read(file)
        changed = change(known)
        if changed != known:
            write(file, changed)


def write(file: Path, registry: PlacementState) -> None:
    """Replace a state file atomically."""
    plans: dict[str, dict[str, list[int]]] = {}
    for (topic, partition), row in sorted(registry.plans.items()):
        plans.setdefault(topic, {})[str(partition)] = list(row)
    brokers = {str(broker): rack for broker, rack in sorted(registry.brokers.items())}
    value = {"format": FORMAT, "cluster": registry.cluster, "brokers": brokers, "plans": plans}
    write_file(file, json.dumps(value, indent=1))
