"""`rackassign doctor`: what keeps a group from rack awareness, or from working at all, and what to do."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from rackassign.cli.connection import Bootstrap, ClientConfig, admin_client
from rackassign.cli.output import check_output, plain_text
from rackassign.errors import ConfigError

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

    from rackassign.monitoring import Finding, GroupDescription, MemberDescription, MigrationStep, RecoveryResult

HEALTHY, FINDINGS = 0, 1

WATCH_S = 10.0


def doctor(
    *,
    bootstrap: Bootstrap,
    group: Annotated[str, typer.Option(help="Consumer group ID.")],
    fix: Annotated[
        bool, typer.Option("--fix", help="Recover a group that is stuck inside the broker by removing members.")
    ] = False,
    client_config: ClientConfig = "",
    observe_seconds: Annotated[
        float,
        typer.Option(
            "--observe-seconds", min=0, help="Seconds to observe a group that is not stable or may not stay so."
        ),
    ] = WATCH_S,
    output: Annotated[str, typer.Option(help="Output format: table or json.")] = "table",
) -> int:
    """Find what keeps a group from being rack-aware, or from working. Exit 1: problems found."""
    check_output(output, "table", "json")
    if not group:
        raise ConfigError("group: expected the name of a group")
    with admin_client(bootstrap, client_config) as admin:
        examined = _Examined(admin, group, observe_seconds, fix=fix)
    if output == "json":
        sys.stdout.write(json.dumps(examined.as_json()) + "\n")
    else:
        examined.show(Console(highlight=False, soft_wrap=True))
    return FINDINGS if examined.findings else HEALTHY


class _Examined:
    """A group that was looked at, and freed if it was wedged and that is wanted.

    Args:
        admin: To look with.
        name: Of the group.
        observe_seconds: How long at most, each time.
        fix: Whether to free it.
    """

    def __init__(self, admin: KafkaAdminClient, name: str, observe_seconds: float, *, fix: bool) -> None:
        # Imports a client, which other commands do without.
        from rackassign import monitoring  # noqa: PLC0415
        from rackassign.admin.groups import GroupAdmin  # noqa: PLC0415

        calls = GroupAdmin(admin)

        def announce() -> None:
            sys.stderr.write(f"Watching {name} for {observe_seconds:g} s at most\n")

        def look() -> tuple[monitoring.GroupObservation, bool | None]:
            seen = monitoring.watch(
                calls, name, observe_seconds, suspicious=monitoring.may_not_settle, waiting=announce
            )
            return seen, seen.preparing and monitoring.is_wedged(calls, name)

        seen, wedged = look()
        self.freed: RecoveryResult = monitoring.RecoveryResult()
        if wedged and fix:
            self.freed = monitoring.recover(admin, calls, name)
            seen, wedged = look()
        self.group: GroupDescription = seen.group
        self.step: MigrationStep = monitoring.migration_step(seen.group)
        self.findings: Sequence[Finding] = monitoring.findings(seen, monitoring.describe_brokers(admin), wedged=wedged)

    def as_json(self) -> dict[str, Any]:
        """Return all of it for programs."""
        culprit = self.freed.culprit
        return {
            "group": self.group.name,
            "type": self.group.kind,
            "state": self.group.state,
            "strategy": self.group.strategy or None,
            "members": [_named(m) | {"rack": m.rack} for m in self.group.members],
            "migration": {"now": self.step.now, "next": self.step.next or None, "unseen": self.step.unseen or None},
            "findings": [
                {
                    "kind": f.kind,
                    "problem": f.problem,
                    "advice": f.advice,
                    "members": [_named(m) for m in f.members],
                    "brokers": list(f.brokers),
                }
                for f in self.findings
            ],
            "removed": [_named(m) for m in self.freed.removed],
            "culprit": culprit and _named(culprit),
        }

    def show(self, console: Console) -> None:
        """Print it for people."""
        for line in _of_the_fix(self.freed):
            console.print(plain_text(line))
        if self.findings:
            table = Table()
            for column in ("what", "who", "what to do"):
                table.add_column(column, overflow="fold")
            for finding in self.findings:
                who = [f"broker {number}" for number in finding.brokers] + [_shown(m) for m in finding.members]
                table.add_row(
                    plain_text(finding.problem),
                    plain_text("\n".join(who)),
                    plain_text(finding.advice),
                    end_section=True,
                )
            console.print(table, soft_wrap=False)
        console.print(plain_text(self._summary()))
        if self.findings and self.step.next:
            console.print(plain_text(f"next: {self.step.next}"))

    def _summary(self) -> str:
        members = self.group.members
        racks = ", ".join(sorted({m.rack for m in members if m.rack})) or "none"
        count = "1 member" if len(members) == 1 else f"{len(members)} members"
        verdict = f"{len(self.findings)} found" if self.findings else "healthy"
        unseen = f" (not to be seen: {self.step.unseen})" if self.step.unseen else ""
        return f"{self.group.name}: {verdict}: {count}, racks {racks}; {self.step.now}{unseen}"


def _of_the_fix(freed: RecoveryResult) -> list[str]:
    if not freed.removed:
        return []
    lines = [f"removed {_shown(member)}" for member in freed.removed]
    if freed.culprit is None:
        return [*lines, "the group did not go on: several members are broken, or one joins again at once; stop it"]
    return [*lines, f"the group went on without {_shown(freed.culprit)}: fix that client before it joins again"]


def _named(member: MemberDescription) -> dict[str, Any]:
    return {
        "id": member.id,
        "client_id": member.client_id,
        "host": member.host,
        "instance_id": member.instance_id,
    }


def _shown(member: MemberDescription) -> str:
    return f"{member.client_id} on {member.host} ({member.id})"
