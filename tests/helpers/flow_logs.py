"""Flow logs in the formats that AWS documents: flows between hosts, and what their interfaces record of them."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

V2 = (
    *("version", "account-id", "interface-id", "srcaddr", "dstaddr", "srcport", "dstport", "protocol"),
    *("packets", "bytes", "start", "end", "action", "log-status"),
)
V3 = ("vpc-id", "subnet-id", "instance-id", "tcp-flags", "type", "pkt-srcaddr", "pkt-dstaddr")
V4 = ("region", "az-id", "sublocation-type", "sublocation-id")
V5 = ("pkt-src-aws-service", "pkt-dst-aws-service", "flow-direction", "traffic-path")
V6 = ("resource-type", "tgw-id", "tgw-attachment-id", "tgw-src-az-id", "tgw-dst-az-id", "packets-lost-no-route")
V7 = ("ecs-cluster-arn", "ecs-cluster-name", "ecs-service-name", "ecs-task-id")
V8 = ("reject-reason",)
FORMATS = {
    2: V2,
    3: (*V2, *V3),
    4: (*V2, *V3, *V4),
    5: (*V2, *V3, *V4, *V5),
    6: (*V6, *V2, *V3, *V4, *V5),
    7: (*V2, *V7, *V3, *V4, *V5),
    8: (*V5, *V2, *V4, *V3, *V8),
}
_NUMBERS = {
    "version",
    "srcport",
    "dstport",
    "protocol",
    "packets",
    "bytes",
    "start",
    "end",
    "tcp-flags",
    "traffic-path",
}


@dataclass(frozen=True, slots=True)
class Host:
    """What sends and receives; without `records`, no interface of it is in the log."""

    address: str
    interface: str
    zone: str
    group: str | None = None
    broker: bool = False
    records: bool = True


def hosts(
    brokers: int = 3, clients: int = 6, zones: Sequence[str] = ("use1-az1", "use1-az2", "use1-az4")
) -> list[Host]:
    """Return brokers and clients, evenly in zones; each zone is a /16."""
    found = []
    for number in range(brokers + clients):
        zone, broker = number % len(zones), number < brokers
        group = None if broker else f"group-{number % 3}"
        address = f"10.{zone}.{number // 250}.{number % 250 + 1}"
        found.append(Host(address, f"eni-{number:05d}", zones[zone], group, broker))
    return found


def flows(among: Sequence[Host], count: int, seed: int, *, hours: int = 3, start: int = 1_796_000_400) -> pa.Table:
    """Return random flows between different hosts, by their indexes; most with a broker at an end."""
    rng = np.random.default_rng(seed)
    size = len(among)
    brokers = np.array([i for i, host in enumerate(among) if host.broker])
    source = np.where(rng.random(count) < 0.5, rng.choice(brokers, count), rng.integers(0, size, count))
    target = (source + rng.integers(1, size, count)) % size
    is_broker = np.array([host.broker for host in among])
    ephemeral = rng.integers(32768, 61000, (2, count))
    packets = rng.integers(1, 5000, count)
    begun = start + rng.integers(0, 3600 * hours, count)
    return pa.table(
        {
            "source": source,
            "target": target,
            "srcport": np.where(is_broker[source], 9092, ephemeral[0]),
            # Of two brokers, the target has connected.
            "dstport": np.where(is_broker[target] & ~is_broker[source], 9092, ephemeral[1]),
            "packets": packets,
            "bytes": packets * rng.integers(52, 9001, count),
            "start": begun,
        }
    )


def records(among: Sequence[Host], of: pa.Table, seed: int, fields: Sequence[str]) -> pa.Table:
    """Return what a log has of flows, in random order: a record of each side that records."""
    columns: dict[str, list[Any]] = {}
    texts = {name: pa.array([getattr(host, name) for host in among]) for name in ("address", "interface", "zone")}
    recording = pa.array([host.records for host in among])
    for side, direction in (("source", "egress"), ("target", "ingress")):
        rows = of.filter(recording.take(of[side].combine_chunks())).combine_chunks()
        source, target, own = (rows[name].combine_chunks() for name in ("source", "target", side))
        known = {
            "version": 2,
            "account-id": "123456789012",
            "interface-id": texts["interface"].take(own),
            "srcaddr": texts["address"].take(source),
            "dstaddr": texts["address"].take(target),
            **{name: rows[name].combine_chunks() for name in ("srcport", "dstport", "packets", "bytes", "start")},
            "protocol": 6,
            "end": pc.add(rows["start"].combine_chunks(), 59),
            "action": "ACCEPT",
            "log-status": "OK",
            "vpc-id": "vpc-0a1b2c3d",
            "pkt-srcaddr": texts["address"].take(source),
            "pkt-dstaddr": texts["address"].take(target),
            "az-id": texts["zone"].take(own),
            "flow-direction": direction,
            "traffic-path": 1 if side == "source" else None,
        }
        for name in fields:
            value = known.get(name)
            if not isinstance(value, pa.Array):
                value = pa.repeat(pa.scalar(value, pa.int64() if name in _NUMBERS else pa.string()), rows.num_rows)
            columns.setdefault(name, []).append(value)
    table = pa.table({name: pa.chunked_array(parts) for name, parts in columns.items()})
    return table.take(np.random.default_rng(seed).permutation(table.num_rows))


def write_text(file: Path, table: pa.Table, *, header: bool = True, gap: str = " ") -> None:
    """Write records as text; with gzip if the name ends so."""
    texts = [pc.fill_null(column.cast(pa.string()), "-") for column in table.columns]
    sink = pa.BufferOutputStream()
    options = pa_csv.WriteOptions(include_header=False, delimiter=" ", quoting_style="none")
    pa_csv.write_csv(pa.table(texts, table.column_names), sink, options)
    content = sink.getvalue().to_pybytes().replace(b" ", gap.encode())
    if header:
        content = " ".join(table.column_names).encode() + b"\n" + content
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(content, 1) if file.suffix == ".gz" else content)


def write_parquet(file: Path, table: pa.Table) -> None:
    """Write records as Parquet, with underscores in names."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.rename_columns([name.replace("-", "_") for name in table.column_names]), file)


def expected(
    among: Sequence[Host], of: pa.Table
) -> Mapping[tuple[str, str, str, str, str | None], tuple[int, int, int]]:
    """Return bytes, packets and flows by hour, zones, line and group; of those flows that any side has recorded."""
    found: dict[Any, tuple[int, int, int]] = {}
    for flow in of.to_pylist():
        source, target = among[flow["source"]], among[flow["target"]]
        if not (source.records or target.records):
            continue
        if source.broker and target.broker:
            line, who = "replicating", None
        elif target.broker:
            line, who = "producing", source.group
        else:
            line, who = ("consuming", target.group) if source.broker else ("other", None)
        hour = np.datetime64(flow["start"], "s").astype("datetime64[h]")
        key = str(hour), source.zone, target.zone, line, who
        before = found.get(key, (0, 0, 0))
        found[key] = before[0] + flow["bytes"], before[1] + flow["packets"], before[2] + 1
    return found
