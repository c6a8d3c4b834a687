"""Flow logs of AWS VPCs as traffic between zones: read, classified and summed as Arrow record batches.

A flow between two interfaces of an account is in the log twice: as egress of one and as ingress of the other. Which of
the two is counted is decided for each record by itself, so that batches may be split and classified anywhere: egress if
the source records what it sends, else ingress. `find_recorders` learns in a first pass what records. Without it,
brokers, clients and all addresses in subnets are assumed to, and no others.

A log in the default format has no direction. There a record is egress if its source is the interface's own address,
which is the one that is in each of the interface's records. Such a log needs the first pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rackassign.bill import LINES, flow_logs
from rackassign.bill.flow_logs import ADDRESSES, Mask, codes_of, is_null, is_value, numbers_of, packed_address
from rackassign.errors import ConfigError
from rackassign.text import counted, short_repr, truncate

# After `flow_logs`, whose error names the extra with pyarrow.
import pyarrow as pa  # isort: skip
import pyarrow.compute as pc  # isort: skip
import pyarrow.dataset as pa_dataset  # isort: skip

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOT_COUNTED = {
    "skip_data": "stand for flows that AWS did not log (SKIPDATA): all sums are lower bounds",
    "rejected": "were rejected",
    "no_data": "have no data",
    "unplaced": "are from interfaces whose own address is not known",
    "recorded_twice": "are taken for the second record of a flow",
    "outside": "left the network or the region by a gateway",
}
"""Lines of records that are not traffic between zones, or not known to be; the first that applies."""

# TCP's acknowledgements are in the line of their own direction: those of fetches in producing.
_ALL_LINES = (*LINES, *NOT_COUNTED)
_KEYS = ("hour", "from_zone", "to_zone", "line", "who")
_SUMS = ("bytes", "packets", "records", "one_sided")

FLOWS = pa.schema([*((name, pa.string()) for name in _KEYS), *((name, pa.int64()) for name in _SUMS)])
"""Sums. The hour is that of a flow's start in UTC (`2026-11-29T14`), `who` the group or client, and `one_sided` the
number of those records that are ingress from an address which does not record. Null is unknown."""

_ROWS = 1 << 18

Location = tuple[str | None, str | None, bool, bool]


@dataclass(frozen=True, slots=True)
class Recorders:
    """What records flows: addresses that record what they send, and the own addresses of interfaces."""

    addresses: frozenset[str]
    interfaces: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FlowNetwork:
    """The brokers, clients and zones with which flows are classified. It can be pickled.

    The zone of an address is its broker's rack, else that of the smallest subnet around it, else, for the side that
    recorded the flow, the record's az-id if that is the zone of any broker or subnet. Otherwise it is unknown.

    Args:
        brokers: Rack by address of each broker, IPv4 or IPv6.
        ports: Ports of the brokers' listeners; flows with none of them are other traffic. Empty for any port.
        clients: Group or client by address.
        subnets: Zone by CIDR, in the names that racks have.
        recorders: Result of `find_recorders`.

    Raises:
        ConfigError: An address, a CIDR or a port is invalid, or a zone or name is empty.
    """

    brokers: Mapping[str, str]
    ports: frozenset[int] = frozenset()
    clients: Mapping[str, str] = field(default_factory=dict)
    subnets: Mapping[str, str] = field(default_factory=dict)
    recorders: Recorders | None = None
    # Addresses in binary form, since a text of IPv6 has many forms.
    _brokers: frozenset[bytes] = field(init=False, repr=False, compare=False)
    _clients: Mapping[bytes, str] = field(init=False, repr=False, compare=False)
    # By size of an address and length of the prefix, longest first; a broker is a subnet of its own.
    _zones: Mapping[tuple[int, int], Mapping[int, str]] = field(init=False, repr=False, compare=False)
    # What is known of an address is computed once, not in each batch.
    _located: dict[str, Location] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        if not self.brokers:
            raise ConfigError("brokers: at least one address is needed")
        for port in self.ports:
            if not 0 < port < 1 << 16:
                raise ConfigError(f"ports: {short_repr(port)} is not a port")
        for option, values in (("brokers", self.brokers), ("clients", self.clients), ("subnets", self.subnets)):
            for address, value in values.items():
                if not value or (option != "subnets" and not flow_logs.is_address(address)):
                    raise ConfigError(f"{option}: {short_repr(address)} is not an address, or has an empty value")
        zones: dict[tuple[int, int], dict[int, str]] = {}
        for cidr, zone in {**self.subnets, **self.brokers}.items():
            try:
                net = ip_network(cidr)
            except ValueError as error:
                raise ConfigError(f"subnets: {truncate(str(error))}") from None
            of_length = zones.setdefault((net.max_prefixlen, net.prefixlen), {})
            of_length[_prefix(net.network_address.packed, net.prefixlen)] = zone
        object.__setattr__(self, "_brokers", frozenset(map(packed_address, self.brokers)))
        object.__setattr__(self, "_clients", {packed_address(address): who for address, who in self.clients.items()})
        object.__setattr__(self, "_zones", dict(sorted(zones.items(), reverse=True)))

    def locate(self, address: str) -> Location:
        """Return zone and client of an address, whether it is a broker, and whether it records what it sends."""
        if address in self._located:
            return self._located[address]
        packed, zone = packed_address(address), None
        for (bits, length), zones in self._zones.items():
            if bits == len(packed) * 8 and (zone := zones.get(_prefix(packed, length))):
                break
        who = self._clients.get(packed)
        records = bool(zone or who) if self.recorders is None else address in self.recorders.addresses
        if len(self._located) >= _ROWS:
            self._located.clear()
        return self._located.setdefault(address, (zone, who, packed in self._brokers, records))


def _prefix(packed: bytes, length: int) -> int:
    return int.from_bytes(packed, "big") >> (len(packed) * 8 - length)


def find_recorders(batches: Iterable[pa.RecordBatch]) -> Recorders:
    """Return which addresses record what they send, and the own addresses of interfaces; a first pass over a log."""
    addresses: set[str] = set()
    own: dict[tuple[str, bool], set[str]] = {}
    aliases: set[tuple[str, str]] = set()
    for batch in batches:
        values, (source, target, inner_source, inner_target) = codes_of(batch, *ADDRESSES)
        egress, ingress = is_value(batch, "flow_direction", "egress"), is_value(batch, "flow_direction", "ingress")
        for codes, side in ((source, egress), (inner_source, egress), (target, ingress), (inner_target, ingress)):
            addresses.update(values[code] for code in np.unique(codes[side & (codes >= 0)]))
        interfaces, (interface,) = codes_of(batch, "interface_id")
        rows = np.flatnonzero((source >= 0) & (target >= 0) & (interface >= 0) & ~egress & ~ingress)
        interface, source, target = interface[rows], source[rows], target[rows]
        is_ipv6 = np.array([":" in value for value in values], np.int64)
        keys, first, row_key = np.unique(interface * 2 + is_ipv6[source], return_index=True, return_inverse=True)
        found: list[set[str]] = [set() for _ in keys]
        for candidates in (source[first], target[first]):
            candidate = candidates[row_key]
            missing = np.bincount(row_key, (candidate != source) & (candidate != target), len(keys))
            for key in np.flatnonzero(missing == 0):
                found[key].add(values[candidates[key]])
        for key, in_all in zip(keys, found, strict=True):
            name = interfaces[key // 2], bool(key % 2)
            own[name] = own.get(name, in_all) & in_all
        for outer, inner in ((source, inner_source[rows]), (target, inner_target[rows])):
            pairs = np.unique((outer * len(values) + inner)[(inner >= 0) & (inner != outer)])
            aliases.update((values[pair // len(values)], values[pair % len(values)]) for pair in pairs)
    interfaces_of: dict[str, tuple[str, ...]] = {}
    # Of an interface with one peer two are left. One is the peer's if another interface has it.
    while known := {key: of for key, of in own.items() if len(of) == 1}:
        for (interface_id, _), of in sorted(known.items()):
            interfaces_of[interface_id] = (*interfaces_of.get(interface_id, ()), *of)
            addresses |= of
        own = {key: of - addresses for key, of in own.items() if key not in known}
    # Pods have secondary addresses of their node's interface.
    return Recorders(frozenset(addresses | {inner for outer, inner in aliases if outer in addresses}), interfaces_of)


def classify(batch: pa.RecordBatch, network: FlowNetwork) -> pa.RecordBatch:
    """Return the sums of records, as rows of `FLOWS`; a pure function, whose sums are the same for any split.

    Args:
        batch: Records of `SCHEMA`, or with these columns as strings and integers, as `DataFrame.mapInArrow` has them.
        network: The brokers, clients and zones.

    Raises:
        ConfigError: Records have no direction, and `network` no recorders; or no ports, and `network` has ports.
    """
    batch = flow_logs.conform(batch)
    values, (outer_source, outer_target, inner_source, inner_target) = codes_of(batch, *ADDRESSES)
    source = np.where(inner_source >= 0, inner_source, outer_source)
    target = np.where(inner_target >= 0, inner_target, outer_target)
    # Here too, the last element is that of null.
    places = [*map(network.locate, values), (None, None, False, False)]
    zones = [None, *sorted({*network.brokers.values(), *network.subnets.values()})]
    names = [None, *sorted({place[1] for place in places if place[1] is not None})]
    zone_codes, name_codes = ({name: code for code, name in enumerate(of)} for of in (zones, names))
    zone, name = (
        np.array([zone_codes[place[0]] for place in places]),
        np.array([name_codes[place[1]] for place in places]),
    )
    is_broker, records = (np.array([place[i] for place in places]) for i in (2, 3))
    az_ids, (az,) = codes_of(batch, "az_id")
    own_zone = np.array([zone_codes.get(az_id, 0) for az_id in (*az_ids, None)])[az]

    has_data = is_value(batch, "log_status", "OK", absent=True) & ~is_null(batch, "bytes")
    egress, ingress = _sides(batch, network, has_data)
    from_zone = np.where((zone[source] == 0) & egress, own_zone, zone[source])
    to_zone = np.where((zone[target] == 0) & ingress, own_zone, zone[target])
    from_broker, to_broker = is_broker[source], is_broker[target]
    if network.ports:
        srcport, dstport = numbers_of(batch, "srcport"), numbers_of(batch, "dstport")
        if (has_data & (from_broker | to_broker) & ((srcport < 0) | (dstport < 0))).any():
            raise ConfigError("records have no srcport or dstport: leave out the ports of brokers")
        from_listener, to_listener = (np.isin(ports, [*network.ports]) for ports in (srcport, dstport))
        # Of two brokers, either may be the one that has connected.
        between = from_broker & to_broker & (from_listener | to_listener)
        from_broker, to_broker = between | (from_broker & from_listener), between | (to_broker & to_listener)
    line = np.select([from_broker & to_broker, to_broker, from_broker], [0, 1, 2], 3)

    path = numbers_of(batch, "traffic_path")
    not_counted = {
        "skip_data": is_value(batch, "log_status", "SKIPDATA"),
        "rejected": is_value(batch, "action", "REJECT"),
        "no_data": ~has_data,
        "unplaced": ~egress & ~ingress,
        "recorded_twice": egress != records[source],
        # Egress has 1 in the VPC and 4 by peering in the region; ingress has none.
        "outside": (path >= 0) & (path != 1) & (path != 4),  # noqa: PLR2004
    }
    line = np.select([not_counted[name] for name in NOT_COUNTED], [*range(len(LINES), len(_ALL_LINES))], line)
    client = name[np.where(line == 1, source, target)]
    start = numbers_of(batch, "start")
    columns = {
        "hour": np.where(start > flow_logs.LATEST_S, start // 1000, start) // 3600,
        "from_zone": from_zone,
        "to_zone": to_zone,
        "line": line,
        "who": np.where((line == 1) | (line == 2), client, 0),  # noqa: PLR2004 - indexes of LINES
        "bytes": batch.column("bytes"),
        "packets": batch.column("packets"),
        "records": np.ones(len(line), np.int64),
        "one_sided": (ingress & (line < len(LINES))).astype(np.int64),
    }
    sums = _summed(pa.table(columns))
    lists = {"from_zone": zones, "to_zone": zones, "line": _ALL_LINES, "who": names}
    hours = pc.multiply(sums["hour"], 3600).cast(pa.timestamp("s"))
    decoded = [pa.array(of, pa.string()).take(sums[key].combine_chunks()) for key, of in lists.items()]
    decoded = [pc.strftime(hours, "%Y-%m-%dT%H").combine_chunks(), *decoded]
    decoded += [sums[key].combine_chunks() for key in _SUMS]
    return pa.RecordBatch.from_arrays(decoded, schema=FLOWS)


def _sides(batch: pa.RecordBatch, network: FlowNetwork, has_data: Mask) -> tuple[Mask, Mask]:
    """Return which records are of what an interface sends, and of what it receives."""
    egress, ingress = is_value(batch, "flow_direction", "egress"), is_value(batch, "flow_direction", "ingress")
    silent = has_data & ~egress & ~ingress
    if not silent.any():
        return egress, ingress
    if network.recorders is None:
        raise ConfigError("records have no flow-direction: give FlowNetwork the recorders that find_recorders returns")
    values, (source, target, *_) = codes_of(batch, *ADDRESSES)
    interfaces, (interface,) = codes_of(batch, "interface_id")
    code_of = {value: code for code, value in enumerate(values)}
    # An interface may have an address of IPv4 and one of IPv6. -2 is no address.
    own = np.full((2, len(interfaces) + 1), -2)
    for index, name in enumerate(interfaces):
        for row, address in enumerate(network.recorders.interfaces.get(name, ())):
            own[row, index] = code_of.get(address, -2)
    sends, receives = ((own[:, interface] == codes).any(axis=0) for codes in (source, target))
    return egress | (silent & sends), ingress | (silent & receives & ~sends)


def sum_flows(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Return the sums of results of `classify`, sorted."""
    total = FLOWS.empty_table()
    for batch in batches:
        total = pa.concat_tables([total, pa.Table.from_batches([batch])])
        if total.num_rows > _ROWS:
            total = _summed(total)
    return _summed(total).sort_by([(name, "ascending") for name in _KEYS])


def _summed(table: pa.Table) -> pa.Table:
    sums = table.group_by([*_KEYS], use_threads=False).aggregate([(name, "sum") for name in _SUMS])
    return sums.select([*_KEYS, *(f"{name}_sum" for name in _SUMS)]).rename_columns(FLOWS.names)


def describe_flows(flows: pa.Table) -> list[str]:
    """Return sentences about records that are not counted, and about those that are counted on one side."""
    rows = flows.group_by("line").aggregate([(name, "sum") for name in _SUMS]).to_pylist()
    found = {row["line"]: row for row in rows}
    sentences = [
        f"{counted(found[line]['records_sum'], 'record')} with {found[line]['bytes_sum'] or 0:,} bytes {what}"
        for line, what in NOT_COUNTED.items()
        if line in found
    ]
    if one_sided := sum(row["one_sided_sum"] for row in rows):
        sentences.append(
            f"{counted(one_sided, 'record')} of ingress counted, as the source does not record what it sends"
        )
    return sentences


def write_flows(folder: Path, flows: pa.Table) -> None:
    """Write sums as Parquet, partitioned by hour, zones and line, into a new or empty folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigError(f"{folder} is not empty: choose a new or an empty folder")
        pa_dataset.write_dataset(
            flows,
            folder,
            format="parquet",
            partitioning=[*_KEYS[:4]],
            partitioning_flavor="hive",
            max_partitions=flows.num_rows + 1,
        )
    except flow_logs.READ_ERRORS as error:
        raise ConfigError(f"cannot write {folder}: {truncate(str(error))}") from None


def flows_on_spark(spark: SparkSession, path: str, network: FlowNetwork) -> DataFrame:
    """Return the sums of all files below a folder, each read in one task of Spark, with this package.

    The folder is one that the driver and all executors can read with pyarrow, such as `s3://bucket/AWSLogs`.
    """
    from pyspark.sql import functions  # noqa: PLC0415 - Spark is heavy

    files = flow_logs.list_files(path)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for index in (index for batch in batches for index in batch.column(0).to_pylist()):
            yield from sum_flows(
                classify(batch, network) for batch in flow_logs.read_flow_log(files[index])
            ).to_batches()

    schema = ", ".join([*(f"{name} string" for name in _KEYS), *(f"{name} bigint" for name in _SUMS)])
    found = spark.range(0, len(files), 1, len(files)).mapInArrow(read, schema)
    return found.groupBy(*_KEYS).agg(*(functions.sum(name).alias(name) for name in _SUMS))
