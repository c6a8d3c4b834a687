"""`rackassign detect-rack`: the rack of this machine and its source."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from rackassign.cli.exit_codes import ExitCode
from rackassign.cli.terminal import Output, check_output, plain_line
from rackassign.rack_sources import detect_all


def detect_rack_command(
    *,
    zone_name: Annotated[
        bool, typer.Option("--zone-name", help="Report the zone name instead of the zone ID (EC2).")
    ] = False,
    output: Output = "table",
) -> int:
    """Detect the rack of this machine and its source. Exit 1: no source knows it."""
    check_output(output, "table", "json")
    findings = detect_all(zone="name" if zone_name else "id")
    chosen = next((finding for finding in findings if finding.rack is not None), None)
    if output == "json":
        sources = [{"source": f.source, "rack": f.rack, "note": f.note} for f in findings]
        answer = {"rack": chosen and chosen.rack, "source": chosen and chosen.source, "sources": sources}
        sys.stdout.write(json.dumps(answer) + "\n")
    else:
        table = Table()
        for column in ("source", "rack", "note"):
            table.add_column(column, overflow="fold")
        for finding in findings:
            style = "bold" if finding is chosen else None
            table.add_row(finding.source, plain_line(finding.rack or "-"), plain_line(finding.note), style=style)
        console = Console(highlight=False)
        console.print(table)
        console.print(plain_line(f"rack {chosen.rack}, from {chosen.source}" if chosen else "no rack found"))
    return ExitCode.DONE if chosen else ExitCode.NO
