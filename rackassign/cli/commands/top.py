"""`rackassign top`: what crosses racks, live in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, RenderableType
from rich.console import Group as Stack
from rich.live import Live
from rich.text import Text

from rackassign.cli.connection import Bootstrap, ClientConfig, admin_client
from rackassign.cli.group_options import (
    All,
    Groups,
    Interval,
    PriceOption,
    RackMapFile,
    check_interval,
    read_rack_map,
    wanted_groups,
    warnings,
)
from rackassign.cli.signals import terminate_as_interrupt
from rackassign.util.text import strip_control_chars

if TYPE_CHECKING:
    from rackassign.monitoring import ClusterReport, Price, RackMap

STOPPED = 0
INTERVAL_S = 5.0


def top(
    *,
    bootstrap: Bootstrap,
    group: Groups = None,
    all_: All = False,
    rack_map: RackMapFile = "",
    price: PriceOption = None,
    interval: Interval = INTERVAL_S,
    iterations: Annotated[
        int, typer.Option("--iterations", min=0, help="Number of refreshes; 0 runs until stopped.")
    ] = 0,
    client_config: ClientConfig = "",
) -> int:
    """Show cross-rack reads of consumer groups live until stopped."""
    names = wanted_groups(group, all_=all_)
    check_interval(interval)
    racks = read_rack_map(rack_map)
    from rackassign.monitoring import GroupCollector, Price, collect_repeatedly  # noqa: PLC0415 - imports a client

    cost = Price.from_option(price)
    console = Console(highlight=False)
    screen = console.is_terminal
    try:
        with (
            terminate_as_interrupt(),
            admin_client(bootstrap, client_config) as admin,
            Live(
                Text("Measuring what is written"), console=console, screen=screen, auto_refresh=False, transient=True
            ) as live,
        ):
            collector = GroupCollector(admin, racks)
            for survey in collect_repeatedly(collector, names, interval_s=interval, looks=iterations):
                picture = _picture(survey, racks, cost)
                if screen:
                    live.update(picture, refresh=True)
                else:
                    console.print(picture)
    except KeyboardInterrupt:
        # That is how it is meant to end.
        pass
    return STOPPED


def _picture(survey: ClusterReport | str, racks: RackMap, price: Price) -> RenderableType:
    from rackassign.cli.render.inspection import actions, overview, totals  # noqa: PLC0415 - imports a client

    if isinstance(survey, str):
        return Text(strip_control_chars(survey))
    parts: list[RenderableType] = [Text(totals(survey, price))]
    if survey.inspections:
        parts.append(overview(survey, price))
    to_do = actions(survey, price)
    if to_do is not None:
        parts.append(to_do)
    parts += [Text(strip_control_chars(line)) for line in warnings(survey, racks)]
    return Stack(*parts)
