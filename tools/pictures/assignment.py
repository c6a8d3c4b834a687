"""Which consumer reads which partition, without racks and with them, drawn from plans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rackassign.model import Broker, Group, Member, Partition, Plan, Topology
from rackassign.strategies import plan_range, plan_sticky
from tools.pictures.svg import document

ZONES = ("a", "b", "c")
TOPIC = "orders"
PARTITIONS = 6

ZONE_WIDTH, PANEL_WIDTH, HEIGHT = 130, 440, 250
PARTITION_Y, MEMBER_Y = 92, 196


def group() -> Group:
    """Return a group with a broker and a member in each zone, and a topic whose partitions are spread over them."""
    brokers = tuple(Broker(number, zone) for number, zone in enumerate(ZONES))
    partitions = tuple(Partition((number % len(ZONES),), number % len(ZONES)) for number in range(PARTITIONS))
    members = tuple(Member(f"consumer-{zone}", frozenset({TOPIC}), rack=zone) for zone in ZONES)
    return Group(Topology(brokers, {TOPIC: partitions}), members)


def picture() -> str:
    """Return the picture: the same group without racks, and with them."""
    racks = group()
    without = replace(racks, members=tuple(replace(member, rack=None) for member in racks.members))
    panels = [("Without racks", plan_range(without)), ("With rackassign", plan_sticky(racks))]
    lines: list[str] = []
    for number, (title, plan) in enumerate(panels):
        lines += [f'  <g transform="translate({number * PANEL_WIDTH + 20} 0)">', *_panel(title, plan), "  </g>"]
    described = "Which consumer reads which partition, without racks and with rackassign"
    return document(described, 2 * PANEL_WIDTH, HEIGHT, lines)


def _panel(title: str, plan: Plan) -> Iterator[str]:
    """Yield the elements of one assignment."""
    reads = [(p, z) for z, name in enumerate(ZONES) for p in plan.assignment[f"consumer-{name}"].get(TOPIC, ())]
    cross = sum(partition % len(ZONES) != reader for partition, reader in reads)
    yield f'    <text class="title" x="0" y="20">{title}: {cross} of {PARTITIONS} partitions cross zones</text>'
    for number, zone in enumerate(ZONES):
        x = number * ZONE_WIDTH
        yield f'    <rect class="zone" x="{x}" y="36" width="{ZONE_WIDTH - 12}" height="{HEIGHT - 46}" rx="8"/>'
        yield f'    <text x="{x + 10}" y="56">zone {zone}</text>'
    for partition, reader in reads:
        kind = "local" if partition % len(ZONES) == reader else "cross"
        x, y = _partition(partition)
        yield f'    <line class="{kind}" x1="{x}" y1="{y + 14}" x2="{reader * ZONE_WIDTH + 59}" y2="{MEMBER_Y}"/>'
    for partition in range(PARTITIONS):
        x, y = _partition(partition)
        yield f'    <rect class="box" x="{x - 20}" y="{y - 14}" width="40" height="28" rx="4"/>'
        yield f'    <text x="{x}" y="{y + 5}" text-anchor="middle">{partition}</text>'
    for number, zone in enumerate(ZONES):
        x = number * ZONE_WIDTH
        yield f'    <rect class="box" x="{x + 12}" y="{MEMBER_Y}" width="94" height="30" rx="15"/>'
        yield f'    <text x="{x + 59}" y="{MEMBER_Y + 20}" text-anchor="middle">consumer {zone}</text>'


def _partition(number: int) -> tuple[int, int]:
    """Return the center of a partition, in the zone of its replica."""
    zone, place = number % len(ZONES), number // len(ZONES)
    return zone * ZONE_WIDTH + 34 + 50 * place, PARTITION_Y
