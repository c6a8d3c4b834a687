"""Options of the commands that place or reassign replicas: placer settings, topics, the state file, ignored racks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackassign import scenario
from rackassign.cli.inputs import read_json
from rackassign.cli.output import warn
from rackassign.errors import ConfigError, InputError
from rackassign.util.text import short_repr

if TYPE_CHECKING:
    from rackassign.placement.placer import ValidatedPlacer

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
    """Return what is given as KEY=VALUE.

    Raises:
        ConfigError: It is not, or a key is given twice; names the option.
    """
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise ConfigError(f"{option}: expected KEY=VALUE, got {short_repr(text)}")
        if key in found:
            raise ConfigError(f"{option}: {short_repr(key)} is given twice")
        found[key] = value
    return found


def settings_of(placer: str, texts: Sequence[str] | None, file: str) -> dict[str, Any]:
    """Return the settings of a placer, from the command line and a file.

    Raises:
        ConfigError: One is no setting, or the file cannot be read.
    """
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
