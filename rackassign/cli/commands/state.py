"""`rackassign state describe`: where the state of a group is, and how large it is."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rackassign.cli.connection import Bootstrap, ClientConfig, admin_client
from rackassign.cli.exit_codes import ExitCode
from rackassign.cli.terminal import Output, check_output, examples, plain_console, warn
from rackassign.errors import ConfigError
from rackassign.text import name_error

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

    from rackassign.model import TopicPartition

app = typer.Typer(help="The state of groups of StatefulConsumer.", rich_markup_mode=None)

_SERVER = "--bootstrap-server localhost:9092"


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
    # Imports a client, which other commands do without.
    from rackassign.admin.groups import GroupAdmin  # noqa: PLC0415
    from rackassign.cli.render.state import StateSizes, as_json, show  # noqa: PLC0415
    from rackassign.monitoring import (  # noqa: PLC0415
        describe_group,
        describe_state,
        read_changelog_sizes,
        with_default_changelogs,
    )
    from rackassign.stateful.local_files import list_local_files  # noqa: PLC0415

    files = {folder: list_local_files(Path(folder)) for folder in dict.fromkeys(state_dir or ())}
    with admin_client(bootstrap, client_config) as admin:
        groups = GroupAdmin(admin)
        described = describe_group(groups, group)
        found = describe_state(described, () if described.members else groups.committed_offsets(group))
        found = with_default_changelogs(found, lambda names: _partitions(admin, names))
        changelogs = [each.changelog for each in found.partitions if each.changelog is not None]
        ends, logs = _ends(admin, changelogs), read_changelog_sizes(admin, changelogs)
    if logs.problem:
        warn(f"sizes of changelogs are unknown: {logs.problem}")
    sizes = StateSizes(ends, logs.bytes, files)
    if output == "json":
        sys.stdout.write(json.dumps(as_json(found, sizes)) + "\n")
    else:
        show(found, sizes, plain_console())
    return ExitCode.NO if any(each.active is None for each in found.partitions) else ExitCode.DONE


def _partitions(admin: KafkaAdminClient, names: Iterable[str]) -> dict[str, int]:
    from rackassign.admin.describe import describe_topics  # noqa: PLC0415 - imports a client

    return {name: len(topic.partitions) for name, topic in describe_topics(admin, names).items()}


def _ends(admin: KafkaAdminClient, changelogs: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the end offsets of changelogs; those that cannot be read are reported and left out."""
    from kafka.errors import KafkaError  # noqa: PLC0415 - imports a client

    from rackassign.admin.describe import list_offsets  # noqa: PLC0415 - the same

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
