"""Traffic between zones as the network counts it: flow logs, or OpenTelemetry's eBPF agent (OBI) by Prometheus.

Both have addresses. Those of brokers and of members of groups are known from Kafka, zones of other addresses from the
rack map. Bytes are those of packets, with headers. A flow that both of its ends have reported counts once.
"""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import urlencode

from rackassign.bill import LINES, Line
from rackassign.bill.flow_logs import LATEST_S, is_address, list_files, read_flow_logs
from rackassign.bill.flows import FLOWS, FlowNetwork, classify, describe_flows, find_recorders, sum_flows
from rackassign.errors import ConfigError
from rackassign.monitoring import ClusterReport, RackMap
from rackassign.monitoring.metrics_text import counted_bytes, readable, without_secrets
from rackassign.monitoring.traffic import TrafficMatrix
from rackassign.text import short_repr

# After `flow_logs`, whose error names the extra with pyarrow.
import pyarrow as pa  # isort: skip
import pyarrow.compute as pc  # isort: skip

_METRIC = "obi_network_flow_bytes_total"
_LABELS = ("src_address", "dst_address", "src_port", "dst_port", "src_zone", "dst_zone", "direction")
_TIMEOUT_S = 60.0
_LARGEST = 512 * 1024**2
_HOUR_S = 3600.0


class NetworkTraffic(NamedTuple):
    """Bytes per second between zones by line of the bill, and what is remarkable about them."""

    lines: Mapping[Line, TrafficMatrix]
    notes: tuple[str, ...]


def flow_network(report: ClusterReport, addresses: Iterable[tuple[int, str, int]], racks: RackMap) -> FlowNetwork:
    """Return brokers, clients and zones as they are known from Kafka and the rack map.

    Args:
        report: The groups and the brokers' racks.
        addresses: ID, host and port of each broker.
        racks: Its hosts and subnets are zones.

    Raises:
        ConfigError: The name of a broker's host cannot be resolved.
    """
    rack_of = report.cluster.topology.broker_racks()
    brokers: dict[str, str] = {}
    ports: set[int] = set()
    for id_, host, port in addresses:
        try:
            found = {str(row[4][0]) for row in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
        except OSError as error:
            raise ConfigError(f"broker {id_}: the address of {short_repr(host)} is not known: {error}") from None
        brokers |= dict.fromkeys(found, rack_of.get(id_, "unknown"))
        ports.add(port)
    clients: dict[str, str] = {}
    for group in report.inspections:
        for member in group.snapshot.live.members:
            if is_address(member.host):
                clients.setdefault(member.host, group.snapshot.live.name)
    hosts = {host: rack for host, rack in racks.hosts.items() if is_address(host)}
    return FlowNetwork(brokers, frozenset(ports), clients, {**racks.subnets, **hosts})


def read_flow_traffic(path: str, network: FlowNetwork) -> NetworkTraffic:
    """Return the traffic in a flow log, or in all below a folder, on average over the time that it has."""
    starts: set[int] = set()
    ends: set[int] = set()
    # The first pass shows which addresses record what they send.
    recorders = find_recorders(_noted(read_flow_logs(path), starts, ends))
    known = replace(network, recorders=recorders)
    sums = sum_flows(classify(batch, known) for batch in read_flow_logs(path))
    seconds = len(set(sums["hour"].to_pylist())) * _HOUR_S
    # A log seldom begins and ends with an hour: a single file has five or ten minutes.
    seconds = min(seconds, max(1, max(ends) - min(starts))) if ends else seconds
    notes = (f"flow logs: {seconds / _HOUR_S:.2g} h with flows, over which they count", *describe_flows(sums))
    return NetworkTraffic(_lines(sums, seconds), notes)


def _noted(batches: Iterable[pa.RecordBatch], starts: set[int], ends: set[int]) -> Iterator[pa.RecordBatch]:
    """Yield the batches; add when the first flow of each begins and the last one ends, in seconds."""
    for batch in batches:
        for name, times, of in (("start", starts, pc.min), ("end", ends, pc.max)):
            if (time := of(batch[name]).as_py()) is not None:
                times.add(time // 1000 if time > LATEST_S else time)
        yield batch


def read_obi_traffic(url: str, seconds: float, network: FlowNetwork) -> NetworkTraffic:
    """Return what OBI has counted in the last seconds, by one query to Prometheus."""
    query = f"sum by ({','.join(_LABELS)}) (increase({_METRIC}[{max(1, round(seconds))}s]))"
    flows: dict[tuple[str, ...], int] = {}
    shown = without_secrets(url)
    zones: dict[str, str] = {}
    for labels, value in _query(url, query):
        source, target = labels.get("src_address", ""), labels.get("dst_address", "")
        if not (is_address(source) and is_address(target)):
            continue
        ends = source, target, labels.get("src_port", ""), labels.get("dst_port", "")
        # Each of its two ends may report a flow.
        flows[ends] = max(flows.get(ends, 0), counted_bytes(value, _METRIC, shown))
        zones |= {a: labels[z] for a, z in ((source, "src_zone"), (target, "dst_zone")) if labels.get(z)}
    if not flows:
        raise ConfigError(
            f"{shown}: has no {_METRIC} with addresses that has grown in {seconds:.0f} s; --interval has to be several"
            " times that of its scrapes, and OBI to export network metrics with src_address"
        )
    known = replace(network, subnets={**zones, **network.subnets})
    ports = [[int(ends[i]) if ends[i].isdigit() else -1 for ends in flows] for i in (2, 3)]
    columns: dict[str, Any] = {
        "srcaddr": [ends[0] for ends in flows],
        "dstaddr": [ends[1] for ends in flows],
        "srcport": ports[0],
        "dstport": ports[1],
        "bytes": [*flows.values()],
        "start": [0] * len(flows),
        # Each flow is here once, so it counts on the side that is known to record.
        "flow_direction": ["egress" if known.locate(ends[0])[3] else "ingress" for ends in flows],
    }
    sums = sum_flows([classify(pa.RecordBatch.from_pydict(columns), known)])
    return NetworkTraffic(_lines(sums, seconds), ())


def check_sources(prometheus: str, flow_logs: str) -> None:
    """Raise `ConfigError` if Prometheus does not respond, or there are no files, before anything is measured."""
    if prometheus:
        _query(prometheus, "vector(1)")
    if flow_logs:
        list_files(flow_logs)


def _query(url: str, query: str) -> Iterable[tuple[Mapping[str, str], float]]:
    """Yield labels and value of each series of an instant query."""
    shown, form = without_secrets(url), urlencode({"query": query}).encode()
    if not url.lower().startswith(("http://", "https://")):
        raise ConfigError(
            f"prometheus: expected an address that begins with http:// or https://, got {short_repr(shown)}"
        )
    with readable(shown, "address"):
        # http or https
        request = urllib.request.Request(f"{url.rstrip('/')}/api/v1/query", form)  # noqa: S310
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:  # noqa: S310
            content = response.read(_LARGEST)
    with suppress(KeyError, TypeError, ValueError, IndexError):
        rows = json.loads(content)["data"]["result"]
        return [(row["metric"], float(row["value"][1])) for row in rows]
    raise ConfigError(f"{shown}: expected the response of Prometheus to a query")


def _lines(sums: pa.Table, seconds: float) -> dict[Line, TrafficMatrix]:
    pairs: dict[Line, dict[tuple[str | None, str | None], float]] = {line: {} for line in LINES}
    for row in sums.select(FLOWS.names).to_pylist():
        if row["line"] in pairs and row["bytes"]:
            of_line, pair = pairs[row["line"]], (row["from_zone"], row["to_zone"])
            of_line[pair] = of_line.get(pair, 0.0) + row["bytes"] / seconds
    return {line: TrafficMatrix(of_line) for line, of_line in pairs.items()}
