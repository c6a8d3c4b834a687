"""Options of the commands that describe live groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rackassign.cli.inputs import read_json
from rackassign.errors import ConfigError
from rackassign.util.text import short_repr

if TYPE_CHECKING:
    from rackassign.monitoring import ClusterReport, RackMap, SortKey

Groups = Annotated[list[str] | None, typer.Option("--group", help="Consumer group ID; repeatable.")]
All = Annotated[bool, typer.Option("--all-groups", help="Include all consumer groups of the cluster.")]
RackMapFile = Annotated[
    str,
    typer.Option(
        "--rack-map", help="JSON file with the racks of members that send none, by client ID, host or subnet."
    ),
]
PriceOption = Annotated[
    float | None,
    typer.Option("--price-per-gb", help="Price of cross-rack traffic in USD per GB.", show_default="0.02, as AWS"),
]
CloudOption = Annotated[
    str | None,
    typer.Option("--cloud", help="Use the list price of a cloud instead: aws, google or azure.", show_default=False),
]
_LONGEST_S = 86_400

Interval = Annotated[float, typer.Option(min=0, help="Seconds over which produced bytes are measured; 0 disables it.")]

Sort = Annotated[
    str, typer.Option("--sort", help="Order of the groups: money, saving, local (worst first), lag or name.")
]

INTERVAL_S = 10.0


def wanted_groups(groups: list[str] | None, *, all_: bool) -> list[str] | None:
    """Return the names that were asked for, None for all.

    Raises:
        ConfigError: If it is neither, or both.
    """
    if not groups and not all_:
        raise ConfigError("either --group or --all-groups is needed")
    if groups and all_:
        raise ConfigError("give either --group or --all-groups, not both")
    if groups and not all(groups):
        raise ConfigError("group: expected the name of a group")
    return None if all_ else sorted(set(groups or ()))


def check_interval(seconds: float, option: str = "interval") -> None:
    """Raise `ConfigError` for an interval that is not finite, or longer than a day."""
    # Not a number is no such number either.
    if not seconds <= _LONGEST_S:
        raise ConfigError(f"{option}: expected seconds, at most {_LONGEST_S} (a day), got {seconds:g}")


def sort_key(text: str) -> SortKey:
    """Return an order of groups; `ConfigError` names those that exist."""
    # Imports a client, which other commands do without.
    from rackassign.monitoring import SORT_KEYS  # noqa: PLC0415

    for key in SORT_KEYS:
        if key == text:
            return key
    raise ConfigError(f"sort must be one of {', '.join(SORT_KEYS)}, got {short_repr(text)}")


def read_rack_map(file: str) -> RackMap:
    """Read the file of `--rack-map`; an empty name stands for an empty map.

    Raises:
        ConfigError: If it cannot be read or used; names the field.
    """
    # Imports a client, which other commands do without.
    from rackassign.monitoring import RackMap  # noqa: PLC0415

    return read_json(file, RackMap.read) if file else RackMap()


def warnings(survey: ClusterReport, racks: RackMap) -> list[str]:
    """Return what a user should know of what was not seen."""
    # Imports a client, which other commands do without.
    from rackassign.monitoring import collection_warnings  # noqa: PLC0415

    known = sorted(set(survey.cluster.topology.broker_racks().values()))
    foreign = sorted(racks.racks() - set(known)) if known else []
    lines = [
        f"{file_rack!r} of the rack map is no broker's rack; those are {', '.join(known)}" for file_rack in foreign
    ]
    return lines + collection_warnings(survey)
