"""`rackassign state`: where the state of a group is and how large, its local files, and how it begins again."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from kafka.errors import KafkaError
from rich.console import Console
from rich.table import Table

from rackassign.admin.describe import describe_topics, list_offsets
from rackassign.admin.groups import GroupAdmin
from rackassign.cli import ExitCode
from rackassign.cli.connection import Bootstrap, ClientConfig, admin_client, client_config
from rackassign.cli.terminal import Output, check_output, examples, plain_console, plain_line, plain_lines, warn
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.monitoring import (
    GroupState,
    MemberDescription,
    PartitionState,
    StateCopy,
    describe_group,
    describe_state,
    lag_of,
    read_changelog_sizes,
    with_default_changelogs,
)
from rackassign.monitoring.report import UNKNOWN, format_bytes
from rackassign.stateful import local_files
from rackassign.stateful.local_files import LocalFile, by_partition, list_local_files
from rackassign.stateful.reset import KafkaResetCluster, ResetRequest, execute_reset, plan_reset
from rackassign.text import counted, name_error

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

    from rackassign.model import TopicPartition
    from rackassign.stateful.local_files import CleanResult
    from rackassign.stateful.reset import ResetPlan


app = typer.Typer(help="The state of groups of StatefulConsumer.", rich_markup_mode=None)


_SERVER = "--bootstrap-server localhost:9092"


@dataclass(frozen=True, slots=True)
class StateSizes:
    """How large the changelogs of a group are, and its files on this host."""

    # End offsets of changelogs; unknown ones are missing.
    ends: Mapping[TopicPartition, int]
    # Bytes of changelogs; unknown ones are missing.
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
        not_assigned: list[tuple[str, LocalFile]] = []
        for folder, files in self.files.items():
            mine, foreign = by_partition(files, {tp.topic for tp in tps})
            not_assigned += [(folder, file) for file in foreign]
            for tp, some in mine.items():
                place = known.setdefault(tp, []) if tp in tps else not_assigned
                place += [(folder, file) for file in some]
        return known, not_assigned


@app.command(
    epilog=examples(
        f"state describe {_SERVER} --group billing",
        f"state describe {_SERVER} --group billing --state-dir /var/lib/billing",
    )
)
def describe(
    *,
    bootstrap: Bootstrap,
    group: Annotated[str, typer.Option(help="Consumer group ID.")],
    state_dir: Annotated[
        list[str] | None,
        typer.Option("--state-dir", help="state_dir of a member on this host, whose files are measured. Repeatable."),
    ] = None,
    client_config: ClientConfig = "",
    output: Output = "table",
) -> int:
    """Show which member has which partition and which copies. Exit 1: a partition has no owner."""
    check_output(output, "table", "json")
    if not group:
        raise ConfigError("group: expected the name of a group")

    files = {folder: list_local_files(Path(folder)) for folder in dict.fromkeys(state_dir or ())}
    with admin_client(bootstrap, client_config) as admin:
        groups = GroupAdmin(admin)
        described = describe_group(groups, group)
        group_state = describe_state(described, () if described.members else groups.committed_offsets(group))
        group_state = with_default_changelogs(group_state, lambda names: _partitions(admin, names))
        changelogs = [each.changelog for each in group_state.partitions if each.changelog is not None]
        ends, logs = _ends(admin, changelogs), read_changelog_sizes(admin, changelogs)
    if logs.problem:
        warn(f"sizes of changelogs are unknown: {logs.problem}")
    sizes = StateSizes(ends, logs.bytes, files)
    if output == "json":
        sys.stdout.write(json.dumps(state_as_json(group_state, sizes)) + "\n")
    else:
        show_state(group_state, sizes, plain_console())
    return ExitCode.NO if any(each.active is None for each in group_state.partitions) else ExitCode.DONE


def _partitions(admin: KafkaAdminClient, names: Iterable[str]) -> dict[str, int]:

    return {name: len(topic.partitions) for name, topic in describe_topics(admin, names).items()}


def _ends(admin: KafkaAdminClient, changelogs: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the end offsets of changelogs; those that cannot be read are reported and left out."""
    by_topic: dict[str, list[TopicPartition]] = {}
    for tp in changelogs:
        by_topic.setdefault(tp.topic, []).append(tp)

    def ends_of(topic: str, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        try:
            return {tp: end for tp, (_, end) in list_offsets(admin, tps).items()}
        except KafkaError as error:
            warn(f"the end of changelog {topic} is unknown: {name_error(error)}")
            return {}

    return {tp: end for topic, tps in sorted(by_topic.items()) for tp, end in ends_of(topic, tps).items()}


def show_state(found: GroupState, sizes: StateSizes, console: Console) -> None:
    """Print where the state of a group is."""
    files, not_assigned = sizes.assigned(found)
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
    for line in _summary(found, sizes, not_assigned):
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
    return f"{folder}: {format_bytes(file.bytes)}"


def _position(copy: StateCopy) -> str:
    return UNKNOWN if copy.position is None else f"{copy.position:,}"


def _named(member: MemberDescription, found: GroupState) -> str:
    tags = ", ".join(f"{key}={value}" for key, value in sorted(found.tags[member.id].items()))
    return f"{member.client_id} on {member.host}" + (f" [{tags}]" if tags else "")


def state_as_json(found: GroupState, sizes: StateSizes) -> dict[str, Any]:
    """Return where the state of a group is, for programs."""
    files, not_assigned = sizes.assigned(found)

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
        "other_local_files": [_file_as_json(*file) for file in not_assigned],
    }


def _file_as_json(folder: str, file: LocalFile) -> dict[str, Any]:
    return {
        "state_dir": folder,
        "file": file.name,
        "bytes": file.bytes,
        "changelog_id": file.changelog_id,
    }


@app.command(
    epilog=examples("state clean --state-dir /var/lib/count", "state clean --state-dir /var/lib/count --execute")
)
def clean(
    *,
    state_dir: Annotated[str, typer.Option("--state-dir", help="state_dir of a member that does not run.")],
    older_than: Annotated[
        float, typer.Option("--older-than", min=0, help="Age in hours from which on a file is not needed.")
    ] = 12.0,
    execute: Annotated[
        bool, typer.Option("--execute", help="Delete the files; otherwise they are only listed.")
    ] = False,
    output: Output = "table",
) -> int:
    """List local files of state that no member needs, and delete them. Exit 1: some could not be deleted."""
    check_output(output, "table", "json")
    if not state_dir:
        # An empty name is the current folder: a variable of a script that is not set.
        raise ConfigError("--state-dir: expected a folder, got an empty name")
    removed = local_files.clean(Path(state_dir), older_than, execute=execute)
    for name, reason in removed.failures.items():
        warn(f"{name} cannot be deleted: {reason}")
    if output == "json":
        sys.stdout.write(json.dumps(_cleaned_as_json(state_dir, removed, executed=execute)) + "\n")
    else:
        _show_cleaned(state_dir, removed, executed=execute)
    return ExitCode.NO if removed.failures else ExitCode.DONE


def _show_cleaned(state_dir: str, found: CleanResult, *, executed: bool) -> None:

    console = plain_console()
    if found.unneeded:
        table = Table()
        for column in ("file", "size", "why it is not needed"):
            table.add_column(column, overflow="fold")
        for each in found.unneeded:
            table.add_row(plain_line(each.file.name), format_bytes(each.file.bytes), each.reason)
        console.print(table)
    files = counted(len(found.unneeded), "file")
    if not found.unneeded:
        done = "no file to delete"
    elif executed:
        done = f"{files} deleted, {format_bytes(found.freed)} freed"
        if found.failures:
            done = f"{format_bytes(found.freed)} freed, {counted(len(found.failures), 'file')} could not be deleted"
    else:
        done = f"{files} to delete, {format_bytes(found.bytes)}: --execute deletes them"
    console.print(plain_line(f"{state_dir}: {done}; {found.kept} kept"), soft_wrap=True)


def _cleaned_as_json(state_dir: str, found: CleanResult, *, executed: bool) -> dict[str, Any]:
    return {
        "state_dir": state_dir,
        "executed": executed,
        "files": [
            {
                "file": each.file.name,
                "topic": each.file.topic,
                "partition": each.file.partition,
                "bytes": each.file.bytes,
                "reason": each.reason,
                "deleted": executed and not found.failures.keys() & each.file.sizes.keys(),
            }
            for each in found.unneeded
        ],
        "kept": found.kept,
        "bytes": found.bytes,
        "freed_bytes": found.freed,
    }


_THEN = (
    "At their next start, members build the state from the beginning of the input (with"
    " auto_offset_reset=earliest, the default). They discard their local files themselves, since the new changelog has"
    " another topic ID."
)


@app.command(
    epilog=examples(
        "state reset --bootstrap-server localhost:9092 --group count",
        "state reset --bootstrap-server localhost:9092 --group count --execute",
    )
)
def reset(
    *,
    bootstrap: Bootstrap,
    group: Annotated[str, typer.Option(help="Consumer group ID of StatefulConsumer members, all of them stopped.")],
    topic: Annotated[
        list[str] | None,
        typer.Option(help="Input topic; repeatable. By default all of which the group has committed offsets."),
    ] = None,
    changelog: Annotated[
        list[str] | None,
        typer.Option(help="Changelog of the group; repeatable. GROUP-TOPIC-changelog by default."),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Delete; otherwise only what would be deleted is shown.")
    ] = False,
    config_file: ClientConfig = "",
    output: Output = "table",
) -> int:
    """Delete the changelogs and committed offsets of a group, so that its state is built again from the input."""
    check_output(output, "table", "json")
    if not group:
        raise ConfigError("group: expected the name of a group")

    request = ResetRequest(group, tuple(topic or ()), tuple(changelog or ()))
    with admin_client(bootstrap, config_file) as admin:
        cluster = KafkaResetCluster(admin, client_config(bootstrap, config_file))
        plan = plan_reset(cluster, request)
        for problem in plan.warnings:
            warn(problem)
        if execute:
            execute_reset(cluster, plan)
    if output == "json":
        sys.stdout.write(json.dumps(_reset_as_json(plan, executed=execute)) + "\n")
    else:
        _show_reset(plan, executed=execute)
    return ExitCode.DONE


def _show_reset(plan: ResetPlan, *, executed: bool) -> None:
    console = plain_console()
    table = Table()
    for column in ("deleted" if executed else "to delete", "partitions", "records at most"):
        table.add_column(column, overflow="fold", justify="left" if "delete" in column else "right")
    for each in plan.changelogs:
        table.add_row(plain_line(f"changelog {each.name}"), str(each.partitions), f"{each.records:,}")
    for name, ids in _by_topic(plan).items():
        table.add_row(plain_line(f"committed offsets of {name}"), str(len(ids)), "-")
    console.print(table)
    what = f"{counted(len(plan.changelogs), 'changelog')} and {counted(len(plan.offsets), 'committed offset')}"
    done = f"deleted {what}. {_THEN}" if executed else f"--execute deletes {what}. {_THEN}"
    console.print(plain_line(f"{plan.group}: {done}"), soft_wrap=True)


def _by_topic(plan: ResetPlan) -> Mapping[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, partition in sorted(plan.offsets):
        found.setdefault(name, []).append(partition)
    return found


def _reset_as_json(plan: ResetPlan, *, executed: bool) -> dict[str, Any]:
    return {
        "group": plan.group,
        "executed": executed,
        "changelogs": [
            {"topic": each.name, "partitions": each.partitions, "records_at_most": each.records}
            for each in plan.changelogs
        ],
        "committed_offsets": _by_topic(plan),
        "warnings": list(plan.warnings),
    }
