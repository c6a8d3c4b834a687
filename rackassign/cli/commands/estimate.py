"""`rackassign estimate`: what crosses zones with and without rackassign, from a few numbers and without a cluster."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.table import Table

from rackassign.cli import ExitCode
from rackassign.cli.commands.cluster import striped
from rackassign.cli.shared_options import CloudOption, PriceOption
from rackassign.cli.terminal import Output, check_output, examples, plain_console
from rackassign.errors import ConfigError
from rackassign.locality import Locality
from rackassign.model import Broker, Group, LocalityMode, Member, Partition, Topology
from rackassign.monitoring import Price
from rackassign.monitoring.report import format_percent
from rackassign.strategies import Options, strategy
from rackassign.text import short_repr

app = typer.Typer(rich_markup_mode=None)

TOPIC = "topic"
_MOST_MEMBERS, _MOST_PARTITIONS, _MOST_ZONES = 10_000, 100_000, 100
_MOST_GB = 1e12
_RF = 3
_GB_PER_DAY = 1e9 / 86_400
"""Bytes per second."""

_RANGE, _OURS = "range without racks", "rackassign"
_FROM: dict[LocalityMode, str] = {"leader": "leaders", "any-replica": "any replica"}
_SAME = 1e-9


@dataclass(frozen=True, slots=True)
class Estimate:
    """One way to read a topic."""

    assignor: str
    reads: LocalityMode
    local: float
    gb_per_day: float
    usd_per_month: float


@app.command(
    epilog=examples(
        "estimate --gb-per-day 1000 --consumers 2,1,1 --replication-factor 2",
        "estimate --gb-per-day 1000 --consumers 1,1,1 --no-follower-fetching --cloud google",
    )
)
def estimate(
    *,
    gb_per_day: Annotated[float, typer.Option(help="GB (1e9 bytes) that the group reads in a day.")],
    consumers: Annotated[
        str, typer.Option(help="Consumers in each zone with brokers, separated by commas: 2,1,1 are three zones.")
    ] = "1,1,1",
    replication_factor: Annotated[int, typer.Option(help="Replicas of each partition, each in another zone.")] = _RF,
    partitions: Annotated[int, typer.Option(help="Partitions of the topic.")] = 36,
    follower_fetching: Annotated[
        bool,
        typer.Option(help="Whether brokers let consumers read from followers: most can, some managed ones cannot."),
    ] = True,
    price: PriceOption = None,
    cloud: CloudOption = None,
    output: Output = "table",
) -> int:
    """Estimate what a group's reads cost across zones, with and without rackassign. It connects to no cluster.

    The brokers are one in each zone, and replicas go around them. Without rackassign means Kafka's range assignor
    without racks, on average over the order of the members.
    """
    check_output(output, "table", "json")

    cost = Price.from_options(price, cloud)
    if not 0 <= gb_per_day <= _MOST_GB:
        raise ConfigError(f"--gb-per-day: expected 0 or more, and at most {_MOST_GB:g}, got {gb_per_day!r}")
    counts = _counts(consumers)
    if not 1 <= replication_factor <= len(counts):
        raise ConfigError(
            f"--replication-factor: expected 1 to {len(counts)}, the number of zones in --consumers"
            f" {short_repr(consumers)}, got {replication_factor}{' (the default)' if replication_factor == _RF else ''}"
        )
    if not 1 <= partitions <= _MOST_PARTITIONS:
        raise ConfigError(f"--partitions: expected 1 to {_MOST_PARTITIONS}, got {partitions}")
    modes: tuple[LocalityMode, ...] = ("leader", "any-replica") if follower_fetching else ("leader",)
    group = _group(counts, partitions, replication_factor)
    estimates = _estimates(group, counts, modes, gb_per_day, cost)
    if output == "json":
        rows = [
            {
                "rackassign": each.assignor == _OURS,
                "reads": each.reads,
                "local": each.local,
                "gb_per_day_across_zones": each.gb_per_day,
                "usd_per_month": each.usd_per_month,
            }
            for each in estimates
        ]
        sys.stdout.write(json.dumps({"usd_per_gb": cost.usd_per_gb, "estimates": rows}) + "\n")
    else:
        _write_table(estimates, group, counts, gb_per_day, cost)
    return ExitCode.DONE


def _counts(consumers: str) -> list[int]:
    """Return the number of consumers of each zone."""
    try:
        counts = [int(each) for each in consumers.split(",")]
    except ValueError:
        counts = []
    if not 0 < len(counts) <= _MOST_ZONES or min(counts) < 0 or not 0 < sum(counts) <= _MOST_MEMBERS:
        raise ConfigError(
            f"--consumers: expected the consumers of each zone, such as 2,1,1, in at most {_MOST_ZONES} zones and at"
            f" most {_MOST_MEMBERS} in all, got {short_repr(consumers)}"
        )
    return counts


def _group(counts: Sequence[int], partitions: int, replication_factor: int) -> Group:
    """Return a group with consumers in zones, and a topic whose replicas go around them."""
    zones = [f"zone-{number}" for number in range(1, len(counts) + 1)]
    brokers = tuple(Broker(number, zone) for number, zone in enumerate(zones, 1))
    replicas = tuple(
        Partition(tuple(ids), leader=ids[0]) for ids in striped(partitions, replication_factor, len(zones))
    )
    members = tuple(
        Member(f"{zone}-{number:05}", frozenset({TOPIC}), zone)
        for zone, count in zip(zones, counts, strict=True)
        for number in range(count)
    )
    return Group(Topology(brokers, {TOPIC: replicas}), members)


def _estimates(
    group: Group, counts: Sequence[int], modes: Sequence[LocalityMode], gb_per_day: float, cost: Price
) -> list[Estimate]:
    """Return the estimates, those without rackassign first."""

    def of(assignor: str, mode: LocalityMode, local: float) -> Estimate:
        crossing = gb_per_day * (1 - local)
        return Estimate(assignor, mode, local, crossing, cost.monthly(crossing * _GB_PER_DAY))

    found = [of(_RANGE, mode, _local_by_chance(group, counts, mode)) for mode in modes]
    for mode in modes:
        plan = strategy("cooperative-sticky")(group, Options(locality=mode))
        locality = Locality.of(group, plan)
        found.append(of(_OURS, mode, locality.local / locality.total))
    return found


def _local_by_chance(group: Group, counts: Sequence[int], mode: LocalityMode) -> float:
    """Return the mean local share of an assignor that ignores racks, over all orders of the members.

    In a random order each member is equally likely to have a partition, so the zone of its reader has the share of the
    members that are there.
    """
    partitions = group.topology.topics[TOPIC]
    local = sum(_consumers_near(partition, counts, mode) for partition in partitions)
    return local / sum(counts) / len(partitions)


def _consumers_near(partition: Partition, counts: Sequence[int], mode: LocalityMode) -> int:
    """Return the number of consumers that could read a partition locally."""
    counting = partition.replicas[:1] if mode == "leader" else partition.replicas
    return sum(counts[broker - 1] for broker in counting)


def _write_table(
    found: Sequence[Estimate], group: Group, counts: Sequence[int], gb_per_day: float, cost: Price
) -> None:
    table = Table(title=f"Reads across zones at {cost.usd_per_gb:g} USD/GB")
    for column in ("assignor", "reads from"):
        table.add_column(column)
    for column in ("local", "GB/day across", "USD/month"):
        table.add_column(column, justify="right")
    for each in found:
        table.add_row(
            each.assignor,
            _FROM[each.reads],
            _percent(each.local),
            f"{each.gb_per_day:,.1f}",
            f"{each.usd_per_month:,.0f}",
        )
    console = plain_console()
    console.print(table)
    console.print(_verdict(found, group, counts), soft_wrap=True)
    console.print(_uncounted(group, gb_per_day, cost), soft_wrap=True)
    console.print(f"Price: {cost.source}.", soft_wrap=True)


def _uncounted(group: Group, gb_per_day: float, cost: Price) -> str:
    """Return what writing the same bytes costs, with producers spread evenly over the zones."""
    zones, replicas = len(group.topology.brokers), len(group.topology.topics[TOPIC][0].replicas)
    copied, produced = gb_per_day * (replicas - 1), gb_per_day * (1 - 1 / zones)
    copying, producing = (f"{cost.monthly(size * _GB_PER_DAY):,.0f} USD a month" for size in (copied, produced))
    return (
        f"Only reads of one group are counted. Writing the same bytes crosses zones, too: {copied:,.1f} GB a day"
        f" ({'not billed' if cost.free_replication else copying}) for replication, and some {produced:,.1f} GB a day"
        f" ({producing}) from producers that write to leaders in all zones."
    )


def _percent(share: float) -> str:
    """Format a share, never rounded up to 100% nor down to 0%."""
    return format_percent(share, 1).replace(" ", "")


def _verdict(found: Sequence[Estimate], group: Group, counts: Sequence[int]) -> str:
    """Return what follows from the estimates, in one or two sentences."""
    without, ours = (
        max((each for each in found if each.assignor == name), key=lambda each: each.local) for name in (_RANGE, _OURS)
    )
    if without.local == 1 and without.reads == "any-replica":
        return (
            "You do not need rackassign: with follower fetching every assignor reads locally. Set client_rack on the"
            " consumers and replica.selector.class on the brokers."
        )
    if ours.local - without.local < _SAME:
        if ours.local == 1:
            return "You do not need rackassign: every assignor reads locally."
        return "No assignment can help: add consumers in other zones, or move replicas (rackassign reassign plan)."
    kept, saved = without.gb_per_day - ours.gb_per_day, without.usd_per_month - ours.usd_per_month
    text = (
        f"rackassign keeps {kept:,.1f} GB a day more in their zone than the best without it, {saved:,.0f} USD a month."
    )
    unreached = not all(_consumers_near(each, counts, ours.reads) for each in group.topology.topics[TOPIC])
    if ours.local < 1:
        text += f" The other {_percent(1 - ours.local)} cross because " + (
            "zones without consumers have the only replicas: add consumers there."
            if unreached
            else "the consumers are not spread evenly over the zones; the option max_skew lets some of them have more"
            " partitions."
        )
    return text
