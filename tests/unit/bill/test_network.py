"""The network's own figures: OBI by Prometheus and flow logs, with the brokers and members that Kafka knows."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

import pytest

from rackassign.bill.network import flow_network, read_flow_traffic, read_obi_traffic
from rackassign.errors import ConfigError
from rackassign.monitoring import ClusterReport, RackMap, Throughput
from tests.helpers.builders import cluster, group, inspected, member

BROKERS = [(1, "10.0.1.1", 9092), (2, "10.0.2.1", 9092), (3, "10.0.3.1", 9092)]
QUERIES: list[str] = []


@contextmanager
def answering(body: bytes, status: int = 200) -> Iterator[str]:
    """Serve one answer to each query, and keep the queries."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            QUERIES.append(parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())["query"][0])
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def report() -> ClusterReport:
    there = cluster({"t": [[1], [2], [3]]})
    live = group(
        replace(member("m", None, {"t": [0]}), host="10.0.2.7"),
        replace(member("n", None, {"t": [1, 2]}), host="somewhere"),
        name="billing",
    )
    return ClusterReport(there, (inspected(live, there),), (), Throughput(seconds=10.0))


def flow(source: str, target: str, size: float, **labels: Any) -> dict[str, Any]:
    source_port, target_port = (9092 if end in {ip for _, ip, _ in BROKERS} else 40000 for end in (source, target))
    made: Mapping[str, str] = {
        "src_address": source,
        "dst_address": target,
        "src_port": str(source_port),
        "dst_port": str(target_port),
        **labels,
    }
    return {"metric": made, "value": [0, str(size)]}


def result(*rows: dict[str, Any]) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}}).encode()


def test_flows_of_obi_are_lines_between_the_racks_of_brokers_and_the_zones_of_others() -> None:
    rows = [
        flow("10.0.1.1", "10.0.2.1", 1000, src_zone="a", dst_zone="b", direction="egress"),
        # The other end has reported it as well.
        flow("10.0.1.1", "10.0.2.1", 990, src_zone="a", dst_zone="b", direction="ingress"),
        flow("10.0.1.1", "10.0.2.7", 500, direction="egress"),
        flow("10.0.9.9", "10.0.3.1", 300, src_zone="a", direction="ingress"),
        flow("10.0.9.9", "10.0.8.8", 70, src_zone="a", dst_zone="c"),
        flow("10.0.7.7", "10.0.3.1", 20),
        flow("no address", "10.0.3.1", 1),
    ]
    known = flow_network(report(), BROKERS, RackMap(subnets={"10.0.2.0/24": "b"}))
    assert known.clients == {"10.0.2.7": "billing"}
    with answering(result(*rows)) as url:
        found = read_obi_traffic(url, 10.0, known)
    assert QUERIES[-1].endswith("(increase(obi_network_flow_bytes_total[10s]))")
    assert found.lines["replicating"].pairs == {("a", "b"): 100.0}
    assert found.lines["consuming"].pairs == {("a", "b"): 50.0}
    assert found.lines["producing"].pairs == {("a", "c"): 30.0, (None, "c"): 2.0}
    assert found.lines["other"].pairs == {("a", "c"): 7.0}


@pytest.mark.parametrize(
    ("body", "status", "problem"),
    [
        (result(), 200, "has no obi_network_flow_bytes_total with addresses"),
        (result({"metric": {}, "value": [0, "1"]}), 200, "has no obi_network_flow_bytes_total with addresses"),
        (result(flow("10.0.1.1", "10.0.2.1", math.inf)), 200, "has the value Infinity, expected bytes"),
        (b"{}", 200, "expected the response of Prometheus to a query"),
        (b"<html>", 200, "127.0.0.1"),
        (b"", 503, "responded 503, expected 200"),
    ],
    ids=["empty", "no-addresses", "infinite", "no-data", "html", "unavailable"],
)
def test_anything_else_is_one_error_without_secrets(body: bytes, status: int, problem: str) -> None:
    known = flow_network(report(), BROKERS, RackMap())
    with answering(body, status) as url:
        with pytest.raises(ConfigError, match=problem) as refused:
            read_obi_traffic(f"{url}?token=s3cret", 10.0, known)
        assert "s3cret" not in str(refused.value)
    with pytest.raises(ConfigError, match="Connection refused"):
        read_obi_traffic(url, 10.0, known)
    with pytest.raises(ConfigError, match="begins with http"):
        read_obi_traffic("file:///etc/passwd", 10.0, known)
    for wrong in ("http://[", "http://", "http://me:s3cret@127.0.0.1:0x"):
        with pytest.raises(ConfigError) as refused:
            read_obi_traffic(wrong, 10.0, known)
        assert "s3cret" not in str(refused.value)


def test_flow_logs_are_averaged_over_the_hours_that_they_have(tmp_path: Path) -> None:
    fields = "version interface-id srcaddr dstaddr srcport dstport bytes packets start log-status flow-direction"
    rows = [
        f"5 eni-1 10.0.1.1 10.0.2.1 9092 50000 {3600 * 1000} 1 1764000000 OK egress",
        f"5 eni-2 10.0.1.1 10.0.2.1 9092 50000 {3600 * 1000} 1 1764000000 OK ingress",
        f"5 eni-1 10.0.1.1 10.0.2.7 9092 40000 {3600 * 500} 1 1764003600 OK egress",
        "5 eni-1 - - - - - - 1764003600 NODATA -",
    ]
    log = tmp_path / "flows.txt"
    log.write_text("\n".join([fields, *rows]) + "\n", "utf-8")
    found = read_flow_traffic(str(log), flow_network(report(), BROKERS, RackMap(hosts={"10.0.2.7": "b"})))
    assert found.lines["replicating"].pairs == {("a", "b"): 500.0}
    assert found.lines["consuming"].pairs == {("a", "b"): 250.0}
    assert found.notes[0] == "flow logs: 2 h with flows, over which they count"
    assert any("no data" in note for note in found.notes)


@pytest.mark.parametrize(("begins", "seconds"), [(1764000000, 600), (1764000000 + 3300, 600), (1764000000, 5400)])
@pytest.mark.parametrize("unit", [1, 1000])
def test_flows_count_over_the_time_that_a_log_has(tmp_path: Path, begins: int, seconds: int, unit: int) -> None:
    rows = [
        f"5 eni-1 10.0.1.1 10.0.2.1 9092 40001 1000 1 {start * unit} {(start + 60) * unit} OK egress"
        for start in range(begins, begins + seconds, 60)
    ]
    names = "version interface-id srcaddr dstaddr srcport dstport bytes packets start end log-status flow-direction"
    log = tmp_path / "flows.txt"
    log.write_text("\n".join([names, *rows]) + "\n", "utf-8")
    found = read_flow_traffic(str(log), flow_network(report(), BROKERS, RackMap()))
    assert found.lines["replicating"].pairs == {("a", "b"): pytest.approx(1000 / 60)}


def test_a_broker_whose_name_is_not_known_is_named() -> None:
    with pytest.raises(ConfigError, match=r'broker 4: the address of "no\.such\.host\.invalid" is not known'):
        flow_network(report(), [(4, "no.such.host.invalid", 9092)], RackMap())
