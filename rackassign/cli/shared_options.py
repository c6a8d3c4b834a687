"""What several commands share: files that users name, and options of placement, of reassignment and of live groups."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TypeVar

import typer

from rackassign import scenario
from rackassign.cli.terminal import warn
from rackassign.errors import ConfigError, InputError
from rackassign.text import short_repr

if TYPE_CHECKING:
    from rackassign.monitoring import ClusterReport, RackMap, SortKey
    from rackassign.placement.placer import ValidatedPlacer


T = TypeVar("T")


def standard_input() -> BinaryIO:
    """Return standard input."""
    # As after `command <&-`.
    if sys.stdin is None:
        raise ConfigError("standard input is closed")
    return sys.stdin.buffer


def read_text(file: str, *, dash: bool = False) -> str:
    """Return what is in a file."""
    piped = dash and file == "-"
    try:
        read = standard_input().read() if piped else Path(file).read_bytes()
        # Some editors begin a file with a byte order mark.
        return read.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{'standard input' if piped else file} is not UTF-8") from None


def read_json(file: str, read: Callable[[Any], T], *, dash: bool = False) -> T:
    """Return what a file of JSON means."""
    text = read_text(file, dash=dash)
    try:
        return read(scenario.parse(text))
    except InputError as error:
        raise ConfigError(f"{file}: {error}") from None


MOST_REPLICAS = 1000
"""A limit against typing errors."""

ReplicationFactor = Annotated[
    int,
    typer.Option(
        "--replication-factor", min=0, max=MOST_REPLICAS, help="Replicas of each partition; 0 keeps the number."
    ),
]

PlacerConfig = Annotated[
    list[str] | None,
    typer.Option("--placer-config", help="Setting of the placer: KEY=VALUE, the value as JSON or text; repeatable."),
]
PlacerConfigFile = Annotated[
    str,
    typer.Option("--placer-config-file", help="JSON file of placer settings; --placer-config takes precedence."),
]
IgnoreRacks = Annotated[
    bool,
    typer.Option("--disable-rack-aware", "--ignore-racks", help="Ignore broker racks (KIP-36)."),
]

Topics = Annotated[list[str] | None, typer.Option("--topic", help="Topic to include; repeatable. Default: all topics.")]
StateFile = Annotated[str, typer.Option("--state-file", help="File of known brokers and placeholders.")]
AllowPlaceholders = Annotated[
    bool, typer.Option("--allow-placeholders", help="Allow more replicas than known brokers; the rest are pending.")
]

STATE = "rackassign-state.json"

_LISTS = {"exclude": True, "no_new_replicas": True, "forced_racks": False, "known": True, "leader_racks": False}
"""Settings of placers that are ours and are lists, on a command line as Kafka writes lists, with commas.

The value is whether numbers in them are numbers: a rack may be named by one.
"""


@contextmanager
def closed_afterwards(placer: ValidatedPlacer) -> Iterator[ValidatedPlacer]:
    """Yield a placer and close it; an error of its own method is a warning, since the block has its result by then."""
    from rackassign.placement.placer import PlacerError  # noqa: PLC0415 - takes the solver along

    try:
        yield placer
    finally:
        try:
            placer.close()
        except PlacerError as error:
            warn(str(error))


def pairs_of(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Return what is given as KEY=VALUE."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise ConfigError(f"{option}: expected KEY=VALUE, got {short_repr(text)}")
        if key in pairs:
            raise ConfigError(f"{option}: {short_repr(key)} is given twice")
        pairs[key] = value
    return pairs


def settings_of(placer: str, texts: Sequence[str] | None, file: str) -> dict[str, Any]:
    """Return the settings of a placer, from the command line and a file."""
    from rackassign.placement.placer import BUILT_IN  # noqa: PLC0415 - takes the solver along

    found = dict(read_json(file, _object)) if file else {}
    for key, text in pairs_of("placer-config", texts or ()).items():
        value = _value(text)
        if placer in BUILT_IN and key in _LISTS and not isinstance(value, list):
            value = [_value(part) if _LISTS[key] else part for part in text.split(",") if part]
        found[key] = value
    return found


def _object(value: Any) -> dict[str, Any]:  # noqa: ANN401 - parsed JSON
    if not isinstance(value, dict):
        raise InputError("", f"expected an object, got {short_repr(value)}")
    return value


def _value(text: str) -> Any:  # noqa: ANN401 - parsed JSON
    try:
        return scenario.parse(text)
    except InputError:
        return text


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
    typer.Option(
        "--cloud", help="Use the list price of a cloud instead: aws, msk, gcp, azure or none.", show_default=False
    ),
]
_LONGEST_S = 86_400
_WHOLE = 100

Interval = Annotated[float, typer.Option(min=0, help="Seconds over which produced bytes are measured; 0 disables it.")]

Sort = Annotated[
    str, typer.Option("--sort", help="Order of the groups: money, saving, local (worst first), lag or name.")
]

INTERVAL_S = 10.0


def wanted_groups(groups: list[str] | None, *, all_: bool) -> list[str] | None:
    """Return the names that were asked for, None for all."""
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


def read_share(text: str, option: str) -> float:
    """Return a share, 0 to 1, of a text like 95% or 95."""
    number = text.removesuffix("%")
    try:
        percent = float(number)
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= _WHOLE:
        raise ConfigError(f"{option}: expected a percentage like 95%, got {text!r}")
    if 0 < percent <= 1 and number == text:
        raise ConfigError(f"{option}: {text} is ambiguous: give {percent * _WHOLE:g}% or {percent:g}%")
    return percent / _WHOLE


def sort_key(text: str) -> SortKey:
    """Return an order of groups; `ConfigError` names those that exist."""
    # Imports a client, which other commands do without.
    from rackassign.monitoring import SORT_KEYS  # noqa: PLC0415

    for key in SORT_KEYS:
        if key == text:
            return key
    raise ConfigError(f"sort must be one of {', '.join(SORT_KEYS)}, got {short_repr(text)}")


def read_rack_map(file: str) -> RackMap:
    """Read the file of `--rack-map`; an empty name stands for an empty map."""
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
