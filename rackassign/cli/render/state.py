"""The table and the JSON of `state describe`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from rackassign.cli.terminal import plain_line, plain_lines
from rackassign.model import TopicPartition
from rackassign.monitoring import GroupState, MemberDescription, PartitionState, StateCopy, lag_of
from rackassign.monitoring.report import UNKNOWN, format_bytes
from rackassign.stateful.local_files import LocalFile, by_partition
from rackassign.text import counted


@dataclass(frozen=True, slots=True)
class StateSizes:
    """How large the changelogs of a group are, and its files on this host.

    Args:
        ends: End offsets of changelogs; unknown ones are missing.
        bytes: Bytes of changelogs; unknown ones are missing.
        files: Local files, by directory.
    """

    ends: Mapping[TopicPartition, int]
    bytes: Mapping[TopicPartition, int]
    files: Mapping[str, Sequence[LocalFile]] = field(default_factory=dict)

    def changelog_bytes(self, each: PartitionState) -> int | None:
        """Return the size of a partition's changelog; None if it is unknown."""
        return None if each.changelog is None else self.bytes.get(each.changelog)

    def assigned(
        self, found: GroupState
    ) -> tuple[dict[TopicPartition, list[tuple[str, LocalFile]]], list[tuple[str, LocalFile]]]:
        """Return the local files of each partition with their directories, and those of no partition of the group."""
        tps = {each.tp for each in found.partitions}
        known: dict[TopicPartition, list[tuple[str, LocalFile]]] = {}
        others: list[tuple[str, LocalFile]] = []
        for folder, files in self.files.items():
            mine, foreign = by_partition(files, {tp.topic for tp in tps})
            others += [(folder, file) for file in foreign]
            for tp, some in mine.items():
                place = known.setdefault(tp, []) if tp in tps else others
                place += [(folder, file) for file in some]
        return known, others


def show(found: GroupState, sizes: StateSizes, console: Console) -> None:
    """Print where the state of a group is."""
    files, others = sizes.assigned(found)
    table = Table()
    for column in ("partition", "active", "copies (position at the last rebalance)", "changelog"):
        table.add_column(column, overflow="fold", justify="right" if column == "changelog" else "left")
    if sizes.files:
        table.add_column("local files", overflow="fold")
    for each in found.partitions:
        copies = [f"{_named(copy.member, found)} ({_position(copy)})" for copy in each.copies]
        active = "none" if each.active is None else _named(each.active, found)
        log = sizes.changelog_bytes(each)
        local = [plain_lines(_file(*file) for file in files.get(each.tp, ()))] if sizes.files else []
        table.add_row(
            plain_line(f"{each.tp.topic}-{each.tp.partition}"),
            plain_line(active),
            plain_lines(copies),
            UNKNOWN if log is None else format_bytes(log),
            *local,
        )
    console.print(table)
    for line in _summary(found, sizes, others):
        console.print(plain_line(line), soft_wrap=True)


def _summary(found: GroupState, sizes: StateSizes, others: Sequence[tuple[str, LocalFile]]) -> list[str]:
    members, copies = len(found.group.members), sum(len(each.copies) for each in found.partitions)
    whole = f"{counted(len(found.partitions), 'partition')} on {counted(members, 'member')}, {copies} copies"
    lines = [f"{found.group.name}: {whole}; copies have read on since they reported their positions"]
    lines += [
        f"{folder}: {counted(len(files), 'local file')}, {format_bytes(sum(file.bytes for file in files))}"
        for folder, files in sizes.files.items()
    ]
    if others:
        bytes_ = format_bytes(sum(file.bytes for _, file in others))
        lines.append(f"{counted(len(others), 'local file')}, {bytes_}, of partitions that the group does not have now")
    return lines


def _file(folder: str, file: LocalFile) -> str:
    return f"{folder}: {format_bytes(file.bytes)}{' damaged, set aside' if file.damaged else ''}"


def _position(copy: StateCopy) -> str:
    return UNKNOWN if copy.position is None else f"{copy.position:,}"


def _named(member: MemberDescription, found: GroupState) -> str:
    tags = ", ".join(f"{key}={value}" for key, value in sorted(found.tags[member.id].items()))
    return f"{member.client_id} on {member.host}" + (f" [{tags}]" if tags else "")


def as_json(found: GroupState, sizes: StateSizes) -> dict[str, Any]:
    """Return where the state of a group is, for programs."""
    files, others = sizes.assigned(found)

    def copy(each: StateCopy, changelog: TopicPartition | None) -> dict[str, Any]:
        return {"member": each.member.id, "position": each.position, "lag_at_most": lag_of(each, changelog, sizes.ends)}

    return {
        "group": found.group.name,
        "members": [
            {"id": m.id, "client_id": m.client_id, "host": m.host, "tags": dict(found.tags[m.id])}
            for m in found.group.members
        ],
        "partitions": [
            {
                "topic": each.tp.topic,
                "partition": each.tp.partition,
                "active": None if each.active is None else each.active.id,
                "changelog": None if each.changelog is None else each.changelog.topic,
                "changelog_bytes": sizes.changelog_bytes(each),
                "copies": [copy(one, each.changelog) for one in each.copies],
                "local_files": [_file_as_json(*file) for file in files.get(each.tp, ())],
            }
            for each in found.partitions
        ],
        "other_local_files": [_file_as_json(*file) for file in others],
    }


def _file_as_json(folder: str, file: LocalFile) -> dict[str, Any]:
    return {
        "state_dir": folder,
        "file": file.name,
        "bytes": file.bytes,
        "damaged": file.damaged,
        "changelog_id": file.changelog_id,
    }
