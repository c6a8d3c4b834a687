"""Options that are valid and have no effect on a query.

They are not errors: the JVM source accepts `maxOffsetsPerTrigger` for a batch query, a client's properties may be those
of another program, and `rackBinding` may be changed for a comparison. But none of them is ignored in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rackassign.spark.arrow import HEADERS
from rackassign.spark.client_config import WITHOUT_EFFECT
from rackassign.spark.fetch_size import MAX_FETCH_BYTES
from rackassign.spark.options import Mode, Options

_OF_PULL = ("stealAfterMs", "coordinatorHost", "coordinatorPort", "coordinatorToken", "coordinatorTimeoutMs")

_LIMIT = "kafka.max.partition.fetch.bytes"


def without_effect(given: Mapping[str, str], options: Options, mode: Mode) -> list[str]:
    """Return the options that have no effect, each with the reason.

    Args:
        given: The options as Spark passes them, which are valid.
        options: The same, parsed.
        mode: The kind of query.
    """
    names = {name.lower() for name in given}
    found = [*_of_fetches(names, given), *_of_groups(names), *_of_offsets(names)]
    if options.headers and options.columns and HEADERS not in options.columns:
        found.append(f"includeHeaders: {HEADERS} is not among columns")
    if mode == "batch" and "maxoffsetspertrigger" in names:
        found.append("maxOffsetsPerTrigger: a batch query reads up to endingOffsets")
    if options.rack_required and options.rack_binding == "none":
        found.append("onMissingRack: with rackBinding=none executors need no rack")
    if "rackenvvar" in names and options.rack_binding == "none" and not options.metrics_path:
        found.append("rackEnvVar: with rackBinding=none the rack of executors is not read")
    if options.rack_binding != "pull":
        found += [f"{name}: only rackBinding=pull uses it" for name in _OF_PULL if name.lower() in names]
    return found


def _of_fetches(names: set[str], given: Mapping[str, str]) -> Iterator[str]:
    if "kafka.fetch.min.bytes" in names:
        yield "kafka.fetch.min.bytes: the source fetches no more than its range, so it does not wait for more either"
    if "kafka.fetch.max.bytes" in names:
        yield f"kafka.fetch.max.bytes: each fetch is for one partition; use {_LIMIT}"
    limit = next((value for name, value in given.items() if name.lower() == _LIMIT), 0)
    if int(limit) > MAX_FETCH_BYTES:
        yield f"{_LIMIT}: a fetch has {MAX_FETCH_BYTES} bytes at most"


def _of_groups(names: set[str]) -> Iterator[str]:
    """Yield properties of group members, and the prefix beside the group itself, as with the JVM source."""
    for name in WITHOUT_EFFECT:
        if f"kafka.{name}" in names:
            yield f"kafka.{name}: the source reads without a group and without the poll() of Java, and does not use it"
    if {"groupidprefix", "kafka.group.id"} <= names:
        yield "groupIdPrefix: kafka.group.id is set as well, and has precedence"


def _of_offsets(names: set[str]) -> Iterator[str]:
    """Yield options for the start or the end beside another one, which comes first as with the JVM source."""
    for side in ("starting", "ending"):
        order = (f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets")
        used, *others = [name for name in order if name.lower() in names] or [""]
        yield from (f"{name}: {used} is set as well, and has precedence" for name in others)
    if "startingoffsetsbytimestampstrategy" in names and not names & {
        "startingtimestamp",
        "startingoffsetsbytimestamp",
    }:
        yield "startingOffsetsByTimestampStrategy: there is no timestamp to start at"
