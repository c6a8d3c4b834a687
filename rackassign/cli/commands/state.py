"""`rackassign state describe`: where the state of a group is, and what its copies lack."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from rackassign.cli.connection import Bootstrap, ClientConfig, admin_client
from rackassign.cli.epilog import examples
from rackassign.cli.exit_codes import ExitCode
from rackassign.cli.output import Output, check_output, plain_console, plain_line, plain_lines, warn
from rackassign.errors import ConfigError
from rackassign.util.text import counted, name_error

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

    from rackassign.model import TopicPartition
    from rackassign.monitoring import GroupState, MemberDescription, StateCopy

app = typer.Typer(help="The state of groups of StatefulConsumer.", rich_markup_mode=None)


@app.callback()
def _state() -> None:
    """Keep `describe` a command of its own: a single one would take the place of `state`."""


@app.command(epilog=examples("state describe --bootstrap-server localhost:9092 --group billing"))
def describe(
    *,
    bootstrap: Bootstrap,
    group: Annotated[str, typer.Option(help="Consumer group ID.")],
    client_config: ClientConfig = "",
    output: Output = "table",
) -> int:
    """Show which member has which partition and which copies, and what these lack. Exit 1: a partition has no owner."""
    check_output(output, "table", "json")
    if not group:
        raise ConfigError("group: expected the name of a group")
    # Imports a client, which other commands do without.
    from rackassign.admin.groups import GroupAdmin  # noqa: PLC0415
    from rackassign.monitoring import describe_group, describe_state  # noqa: PLC0415

    with admin_client(bootstrap, client_config) as admin:
        found = describe_state(describe_group(GroupAdmin(admin), group))
        ends = _ends(admin, [each.changelog for each in found.partitions if each.changelog is not None])
    if output == "json":
        sys.stdout.write(json.dumps(_as_json(found, ends)) + "\n")
    else:
        _show(found, ends)
    return ExitCode.NO if any(each.active is None for each in found.partitions) else ExitCode.DONE


def _ends(admin: KafkaAdminClient, changelogs: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the end offsets of changelogs; those that cannot be read are reported and left out."""
    from kafka.errors import KafkaError  # noqa: PLC0415 - imports a client

    from rackassign.admin.cluster import list_offsets  # noqa: PLC0415 - the same

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


def _show(found: GroupState, ends: Mapping[TopicPartition, int]) -> None:
    from rackassign.monitoring import lag_of  # noqa: PLC0415 - imports a client

    console = plain_console()
    table = Table()
    for column in ("partition", "active", "copies (lag in records)"):
        table.add_column(column, overflow="fold")
    for each in found.partitions:
        copies = [f"{_named(copy.member, found)} ({_lag(lag_of(copy, each.changelog, ends))})" for copy in each.copies]
        active = "none" if each.active is None else _named(each.active, found)
        table.add_row(plain_line(f"{each.tp.topic}-{each.tp.partition}"), plain_line(active), plain_lines(copies))
    console.print(table)
    members, copies_ = len(found.group.members), sum(len(each.copies) for each in found.partitions)
    console.print(
        plain_line(
            f"{found.group.name}: {counted(len(found.partitions), 'partition')} on {counted(members, 'member')},"
            f" {copies_} copies; lags are as of the last rebalance, so copies lack no more than that"
        ),
        soft_wrap=True,
    )


def _lag(lag: int | None) -> str:
    return "?" if lag is None else f"{lag:,}"


def _named(member: MemberDescription, found: GroupState) -> str:
    tags = ", ".join(f"{key}={value}" for key, value in sorted(found.tags[member.id].items()))
    return f"{member.client_id} on {member.host}" + (f" [{tags}]" if tags else "")


def _as_json(found: GroupState, ends: Mapping[TopicPartition, int]) -> dict[str, Any]:
    from rackassign.monitoring import lag_of  # noqa: PLC0415 - imports a client

    def copy(each: StateCopy, changelog: TopicPartition | None) -> dict[str, Any]:
        return {"member": each.member.id, "position": each.position, "lag_at_most": lag_of(each, changelog, ends)}

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
                "copies": [copy(one, each.changelog) for one in each.copies],
            }
            for each in found.partitions
        ],
    }
