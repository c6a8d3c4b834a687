"""The data that a coordinator and tasks exchange: the endpoint of the coordinator, and splits as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rackassign.errors import InputError
from rackassign.model import TopicPartition
from rackassign.spark.pull.server import check_reachable
from rackassign.spark.splits import OffsetRange, Split


@dataclass(frozen=True, slots=True)
class CoordinatorEndpoint:
    """The endpoint at which tasks request the splits of a batch.

    Args:
        host: The address of the coordinator.
        port: The port of the coordinator.
        token: The token of the query.
        batch: The number of the batch.

    Raises:
        ConfigError: The host is an address that other machines cannot reach.
    """

    host: str
    port: int
    token: str
    batch: int

    def __post_init__(self) -> None:
        check_reachable(self.host)

    @property
    def address(self) -> str:
        """The address as HOST:PORT, for messages."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __repr__(self) -> str:
        return f"CoordinatorEndpoint({self.address}, batch {self.batch})"


def encode_split(split: Split) -> dict[str, Any]:
    """Return a split as values that JSON can represent."""
    place = split.range.place
    return {
        "topic": place.topic,
        "partition": place.partition,
        "start": split.range.start,
        "end": split.range.end,
        "racks": list(split.racks),
        "size": split.size,
        "fetch": split.fetch_bytes,
    }


def decode_split(said: Mapping[str, Any]) -> Split:
    """Return the split that `encode_split` has encoded.

    Raises:
        InputError: A value is missing or invalid.
    """
    try:
        place = TopicPartition(str(said["topic"]), int(said["partition"]))
        wanted = OffsetRange(place, int(said["start"]), int(said["end"]))
        return Split(wanted, tuple(said["racks"]), int(said["size"]), int(said["fetch"]))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError("split", f"not what a coordinator says: {error}") from None
