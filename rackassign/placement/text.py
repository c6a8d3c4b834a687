"""Replica lists as `kafka-topics --replica-assignment` takes them: `5:4,3:2,1:0`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rackassign.errors import InputError
from rackassign.util.text import shown


def read_replica_lists(text: str) -> dict[int, list[int]]:
    """Return broker ids by partition: partitions are set apart by commas, brokers by colons.

    Raises:
        InputError: What should be an id is none, a broker is listed twice, or the lists differ in length.
    """
    lists: dict[int, list[int]] = {}
    for partition, part in enumerate(text.split(",")):
        brokers = [_broker(entry, partition) for entry in part.split(":")]
        twice = sorted({broker for broker in brokers if brokers.count(broker) > 1})
        if twice:
            entries = ",".join(map(str, twice))
            raise InputError("", f"Partition replica lists may not contain duplicate entries: {entries}")
        lists[partition] = brokers
        if len(brokers) != len(lists[0]):
            raise InputError("", f"Partition {partition} has different replication factor: {brokers}")
    return lists


def write_replica_lists(lists: Iterable[Sequence[int]]) -> str:
    """Return what reads as these lists, for partitions from 0."""
    return ",".join(":".join(map(str, replicas)) for replicas in lists)


def _broker(entry: str, partition: int) -> int:
    entry = entry.strip()
    if not (entry.isascii() and entry.isdecimal()):
        raise InputError("", f"partition {partition}: expected a broker id, got {shown(entry)}")
    return int(entry)
