"""`rackassign inspect`: how much groups read across racks, what that costs, and what to do about it."""

from __future__ import annotations

import json
import sys
from math import floor
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rackassign.cli.connection import Bootstrap, ClientConfig, admin_client
from rackassign.cli.exit_codes import ExitCode
from rackassign.cli.shared_options import (
    INTERVAL_S,
    All,
    CloudOption,
    Groups,
    Interval,
    PriceOption,
    RackMapFile,
    Sort,
    check_interval,
    read_rack_map,
    sort_key,
    wanted_groups,
    warnings,
)
from rackassign.cli.terminal import (
    HtmlFile,
    Output,
    check_output,
    check_writable,
    plain_line,
    progress_display,
    warn,
    write_text,
)
from rackassign.errors import ConfigError, KafkaUnavailableError

if TYPE_CHECKING:
    from rackassign.monitoring import ClusterReport, GroupAnalysis, Price

_WHOLE = 100

_WIDE = 10_000
"""Columns of a table that is not to be fitted into the terminal."""


def inspect(
    *,
    bootstrap: Bootstrap,
    group: Groups = None,
    all_: All = False,
    rack_map: RackMapFile = "",
    price: PriceOption = None,
    cloud: CloudOption = None,
    interval: Interval = INTERVAL_S,
    fail_under: Annotated[
        str | None,
        typer.Option("--fail-under", help="Exit 1 if a group has a smaller share of local partitions, such as 95%."),
    ] = None,
    html: HtmlFile = "",
    sort: Sort = "",
    wide: Annotated[bool, typer.Option("--wide", help="Show all columns, and whole names.")] = False,
    client_config: ClientConfig = "",
    output: Output = "table",
) -> int:
    """Report cross-rack reads of consumer groups, their cost and the changes that gain most."""
    check_output(output, "table", "json")
    least = _share(fail_under)
    check_interval(interval)
    names = wanted_groups(group, all_=all_)
    racks = read_rack_map(rack_map)
    # Programs want the order that does not change from one report to the next.
    by = sort_key(sort or ("name" if output == "json" else "money"))
    check_writable("html", html)
    from rackassign.monitoring import GroupCollector, Price, as_json  # noqa: PLC0415 - imports a client
    from rackassign.monitoring.report import hidden_topics  # noqa: PLC0415 - the same

    cost = Price.from_options(price, cloud)
    with admin_client(bootstrap, client_config) as admin, progress_display() as progress:
        survey = GroupCollector(admin, racks).report(names, interval_s=interval, report_progress=progress.on_progress)
    survey = survey.sorted_by(by)
    for line in warnings(survey, racks):
        warn(line)
    if html:
        from rackassign.monitoring.html_page import page  # noqa: PLC0415 - imports a template engine

        write_text("html", html, page(survey, cost))
    if output == "json":
        sys.stdout.write(json.dumps(as_json(survey, cost)) + "\n")
    else:
        _show(survey, cost, Console(highlight=False, width=_WIDE if wide else None), wide=wide)
    if names is not None and len(survey.inspections) < len(names):
        raise KafkaUnavailableError(
            f"{len(names) - len(survey.inspections)} of {len(names)} groups are not to be seen now"
        )
    below = [inspected for inspected in survey.inspections if _below(inspected, least)]
    for inspected in below:
        warn(_shortfall(inspected, fail_under or ""))
    if below:
        return ExitCode.NO
    unseen = any(odd.unseen for odd in survey.skipped) or any(map(hidden_topics, survey.inspections))
    if least is not None and unseen:
        raise KafkaUnavailableError("not all groups and topics could be described, so --fail-under cannot be evaluated")
    return ExitCode.DONE


def _show(survey: ClusterReport, price: Price, console: Console, *, wide: bool) -> None:
    from rackassign.cli.render.inspection import actions, detail, overview, totals  # noqa: PLC0415 - imports a client

    if survey.inspections:
        console.print(overview(survey, price, width=console.width, wide=wide))
    if len(survey.inspections) == 1:
        console.print(detail(survey.inspections[0], survey, price))
    to_do = actions(survey, price, width=console.width)
    if to_do is not None:
        console.print(to_do)
    console.print(plain_line(totals(survey, price)), soft_wrap=True)


def _below(inspected: GroupAnalysis, least: float | None) -> bool:
    return least is not None and inspected.local_share is not None and inspected.local_share < least


def _shortfall(inspected: GroupAnalysis, least: str) -> str:
    """Return how far a group is below `--fail-under`, with the partitions that may be local or not."""
    from rackassign.monitoring.report import format_percent  # noqa: PLC0415 - imports a client

    counts = inspected.partitions
    share = _WHOLE * counts.local / counts.total
    if round(share, 1) >= float(least.removesuffix("%")):
        # A share that is too small must not look like the limit.
        share = floor(10 * share) / 10 or share
    line = f"{inspected.snapshot.live.name}: {format_percent(share, _WHOLE)} of its partitions are local"
    if counts.unknown:
        line += f", and of {format_percent(counts.unknown, counts.total)} it is unknown"
    return f"{line}; --fail-under is {least.removesuffix('%')} %"


def _share(text: str | None) -> float | None:
    """Return a share, 0 to 1, of a text like 95% or 95; None for none.

    Raises:
        ConfigError: It is no percentage, or a number up to 1 without a sign: 0.95 can be meant as 95 %.
    """
    if text is None:
        return None
    number = text.removesuffix("%")
    try:
        percent = float(number)
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= _WHOLE:
        raise ConfigError(f"fail-under: expected a percentage like 95%, got {text!r}")
    if 0 < percent <= 1 and number == text:
        raise ConfigError(f"fail-under: {text} is ambiguous: give {percent * _WHOLE:g}% or {percent:g}%")
    return percent / _WHOLE
