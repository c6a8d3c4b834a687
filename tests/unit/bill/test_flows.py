"""Flow logs: whatever their form, they are summed as what was sent, and what is not summed is reported.

On a small Spark the sums are those of one process.
"""

from __future__ import annotations

import gzip
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pa_dataset
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackassign.bill import LINES
from rackassign.bill.flow_logs import SCHEMA, list_files, read_flow_logs
from rackassign.bill.flows import (
    FLOWS,
    FlowNetwork,
    Recorders,
    classify,
    describe_flows,
    find_recorders,
    flows_on_spark,
    sum_flows,
    write_flows,
)
from rackassign.errors import ConfigError
from tests.helpers.flow_logs import FORMATS, V2, Host, expected, flows, hosts, records, write_parquet, write_text
from tests.helpers.kafka.spark_harness import session

HOSTS = hosts()
SUBNETS = {"10.0.0.0/16": "use1-az1", "10.1.0.0/16": "use1-az2", "10.2.0.0/16": "use1-az4"}


def network(among: Sequence[Host] = HOSTS, **options: Any) -> FlowNetwork:
    given = {
        "brokers": {host.address: host.zone for host in among if host.broker},
        "ports": frozenset({9092}),
        "clients": {host.address: host.group for host in among if host.group},
        "subnets": SUBNETS,
    }
    return FlowNetwork(**{**given, **options})


def total(path: Path, of: FlowNetwork) -> pa.Table:
    """Return the sums of a log, after a first pass."""
    with_recorders = replace(of, recorders=find_recorders(read_flow_logs(path)))
    return sum_flows(classify(batch, with_recorders) for batch in read_flow_logs(path))


def counted(table: pa.Table) -> dict[Any, tuple[int, int, int]]:
    keys = ("hour", "from_zone", "to_zone", "line", "who")
    return {
        tuple(row[key] for key in keys): (row["bytes"], row["packets"], row["records"])
        for row in table.to_pylist()
        if row["line"] in LINES
    }


def lines(table: pa.Table) -> dict[str, tuple[int, int]]:
    """Return records and bytes by line."""
    found: dict[str, tuple[int, int]] = {}
    for row in table.to_pylist():
        before = found.get(row["line"], (0, 0))
        found[row["line"]] = before[0] + row["records"], before[1] + (row["bytes"] or 0)
    return found


# 2026-11-30 01:00:00 UTC.
START = 1_796_000_400
BROKER, CLIENT, POD = "10.0.0.1", "10.1.0.7", "10.1.9.9"
FIELDS = (*V2, "pkt-srcaddr", "pkt-dstaddr", "az-id", "flow-direction", "traffic-path")
USUAL: dict[str, object] = dict(
    zip(
        FIELDS,
        [
            *(5, 123456789012, "eni-1", BROKER, CLIENT, 9092, 40000, 6, 2, 1000, START, START + 59, "ACCEPT", "OK"),
            *("-", "-", "use1-az1", "egress", 1),
        ],
        strict=True,
    )
)


def log(folder: Path, *changes: Mapping[str, object], fields: Sequence[str] = FIELDS, header: bool = True) -> Path:
    """Write a log whose records have these fields instead of the usual ones."""
    rows = [" ".join(str({**USUAL, **change}[name]) for name in fields) for change in changes]
    file = folder / "flows.log"
    file.write_text("\n".join([" ".join(fields), *rows] if header else rows) + "\n", "utf-8")
    return file


SMALL = FlowNetwork({BROKER: "use1-az1"}, frozenset({9092}), {CLIENT: "billing"}, {"10.1.0.0/16": "use1-az2"})


def small(file: Path, of: FlowNetwork = SMALL) -> list[tuple[Any, ...]]:
    """Return zones, line, group and bytes of each sum."""
    table = sum_flows(classify(batch, of) for batch in read_flow_logs(file))
    return [(row["from_zone"], row["to_zone"], row["line"], row["who"], row["bytes"]) for row in table.to_pylist()]


@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize("form", ["text", "gzip", "spaces", "parquet"])
def test_each_format_is_summed_as_what_was_sent(tmp_path: Path, version: int, form: str) -> None:
    sent = flows(HOSTS, 400, version)
    table = records(HOSTS, sent, version, FORMATS[version])
    if form == "parquet":
        write_parquet(tmp_path / "a.parquet", table)
    else:
        write_text(tmp_path / ("a.gz" if form == "gzip" else "a.log"), table, gap="   " if form == "spaces" else " ")
    found = total(tmp_path, network())
    assert counted(found) == expected(HOSTS, sent)
    assert lines(found)["recorded_twice"] == (400, sum(sent["bytes"].to_pylist()))


def test_a_text_without_names_of_fields_has_the_default_format(tmp_path: Path) -> None:
    sent = flows(HOSTS, 300, 1)
    write_text(tmp_path / "a.log", records(HOSTS, sent, 1, V2), header=False)
    assert counted(total(tmp_path, network())) == expected(HOSTS, sent)


def test_all_files_below_a_folder_are_read(tmp_path: Path) -> None:
    sent = flows(HOSTS, 500, 2)
    table = records(HOSTS, sent, 2, FORMATS[5])
    hive = "aws-account-id=1/aws-service=vpcflowlogs/aws-region=us-east-1/year=2026/month=11/day=30/hour=01"
    write_text(tmp_path / "AWSLogs/1/vpcflowlogs/us-east-1/2026/11/30/a.log.gz", table.slice(0, 300))
    write_text(tmp_path / "AWSLogs/1/vpcflowlogs/us-east-1/2026/11/30/b.log", table.slice(300, 200))
    write_parquet(tmp_path / hive / "c.log.parquet", table.slice(500, 400))
    write_parquet(tmp_path / hive / "d.log.parquet", table.slice(900))
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".part.crc").write_bytes(b"crc")
    assert len(list_files(tmp_path)) == 4
    assert counted(total(tmp_path, network())) == expected(HOSTS, sent)


def test_lines_may_end_with_spaces_and_carriage_returns_and_be_empty(tmp_path: Path) -> None:
    file = log(tmp_path, {}, {"bytes": 10})
    text = file.read_text("utf-8").replace("\n", "  \r\n\n")
    file.write_text(text.replace("5 123", "  5 123"), "utf-8")
    assert small(file) == [("use1-az1", "use1-az2", "consuming", "billing", 1010)]


@pytest.mark.parametrize("version", [2, 3, 5])
def test_interfaces_without_a_log_are_counted_where_their_flows_arrive(tmp_path: Path, version: int) -> None:
    among = [replace(host, records=number % 3 != 1) for number, host in enumerate(HOSTS)]
    sent = flows(among, 600, 3)
    write_text(tmp_path / "a.log", records(among, sent, 3, FORMATS[version]))
    found = total(tmp_path, network())
    assert counted(found) == expected(among, sent)
    one_sided = sum(
        among[target].records and not among[source].records
        for source, target in zip(sent["source"].to_pylist(), sent["target"].to_pylist(), strict=True)
    )
    assert sum(found["one_sided"].to_pylist()) == one_sided
    sentence = f"{one_sided} records of ingress counted, as the source does not record what it sends"
    assert sentence in describe_flows(found)


def test_without_a_first_pass_brokers_clients_and_subnets_are_assumed_to_record(tmp_path: Path) -> None:
    # The log has the records of both sides, but the network knows no address of these clients.
    unknown = [host if host.broker else replace(host, group=None) for host in HOSTS]
    sent = flows(unknown, 300, 4)
    write_text(tmp_path / "a.log", records(unknown, sent, 4, FORMATS[5]))
    of = FlowNetwork({host.address: host.zone for host in HOSTS if host.broker}, frozenset({9092}))
    found = sum_flows(classify(batch, of) for batch in read_flow_logs(tmp_path))
    by_line = lines(found)
    assert sum(records for records, _ in by_line.values()) == 600
    assert by_line.pop("recorded_twice") == (300, sum(sent["bytes"].to_pylist()))
    assert sum(bytes_ for _, bytes_ in by_line.values()) == sum(sent["bytes"].to_pylist())
    # An az-id is that of the interface that recorded, so a client's zone is known only where it recorded.
    assert {row["from_zone"] for row in found.to_pylist() if row["line"] == "producing"} == {None}
    assert counted(sum_flows(classify(batch, network(unknown)) for batch in read_flow_logs(tmp_path))) == expected(
        unknown, sent
    )


ROWS = st.integers(0, 300)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[pa.RecordBatch, FlowNetwork]:
    """A batch of a log that some interfaces are missing in, with rows of every line."""
    folder = tmp_path_factory.mktemp("mixed")
    among = [replace(host, records=number % 4 != 1) for number, host in enumerate(HOSTS)]
    table = records(among, flows(among, 200, 5), 5, FIELDS)
    write_text(folder / "a.log", table)
    odd = (
        {"log-status": "SKIPDATA", "bytes": "-"},
        {"log-status": "NODATA"},
        {"action": "REJECT"},
        {"traffic-path": 8},
    )
    log(folder, *odd, {"flow-direction": "-"})
    batches = [*read_flow_logs(folder)]
    whole = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks().to_batches()[0]
    assert whole.schema == SCHEMA
    return whole, network(recorders=find_recorders([whole]))


@given(st.lists(ROWS, max_size=5))
def test_a_batch_may_be_split_anywhere(mixed: tuple[pa.RecordBatch, FlowNetwork], cuts: list[int]) -> None:
    whole, of = mixed
    ends = [0, *sorted(cuts), whole.num_rows]
    parts = [whole.slice(begin, max(0, end - begin)) for begin, end in pairwise(ends)]
    assert sum_flows(classify(part, of) for part in parts) == sum_flows([classify(whole, of)])
    once = [*map(sum_flows, ([classify(part, of)] for part in parts))]
    assert sum_flows(batch for table in once for batch in table.to_batches()) == sum_flows([classify(whole, of)])
    assert len(lines(sum_flows([classify(whole, of)]))) == 10


def test_columns_as_spark_has_them_are_classified_alike(mixed: tuple[pa.RecordBatch, FlowNetwork]) -> None:
    whole, of = mixed
    types = {pa.int64(): pa.int32(), SCHEMA.field("srcaddr").type: pa.string()}
    plain = pa.Table.from_batches([whole]).cast(
        pa.schema([(each.name, each.type if each.name in {"bytes", "start"} else types[each.type]) for each in SCHEMA])
    )
    more = plain.append_column("year", pa.array(["2026"] * plain.num_rows)).to_batches()[0]
    assert classify(more, of) == classify(whole, of)
    assert classify(whole.slice(0, 0), of).num_rows == 0


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"log-status": "SKIPDATA", "srcaddr": "-", "dstaddr": "-", "bytes": "-", "packets": "-"}, "skip_data"),
        ({"log-status": "NODATA", "srcaddr": "-", "dstaddr": "-", "bytes": "-", "action": "-"}, "no_data"),
        ({"action": "REJECT"}, "rejected"),
        # What VPC Block Public Access refuses has no bytes.
        ({"action": "REJECT", "bytes": "-", "packets": "-"}, "rejected"),
        ({"bytes": "-", "packets": "-"}, "no_data"),
        ({"traffic-path": 2}, "outside"),
        ({"traffic-path": 8}, "outside"),
        ({"traffic-path": 5}, "outside"),
        ({"traffic-path": 4}, "consuming"),
        ({"traffic-path": "-"}, "consuming"),
        ({"flow-direction": "ingress", "traffic-path": "-"}, "recorded_twice"),
    ],
)
def test_what_is_no_traffic_between_zones_has_a_line_of_its_own(
    tmp_path: Path, change: dict[str, object], line: str
) -> None:
    file = log(tmp_path, change)
    table = sum_flows(classify(batch, SMALL) for batch in read_flow_logs(file))
    assert [*lines(table)] == [line]
    assert table["records"].to_pylist() == [1]
    assert len(describe_flows(table)) == (line not in LINES)


def test_lost_records_make_sums_lower_bounds(tmp_path: Path) -> None:
    table = total(log(tmp_path, {}, {"log-status": "SKIPDATA"}, {"log-status": "SKIPDATA"}), SMALL)
    assert describe_flows(table) == [
        "2 records with 2,000 bytes stand for flows that AWS did not log (SKIPDATA): all sums are lower bounds"
    ]


def test_times_may_be_milliseconds(tmp_path: Path) -> None:
    file = log(
        tmp_path, {}, {"start": START * 1000 + 3_599_999, "end": START * 1000 + 3_600_000}, {"start": START + 3600}
    )
    table = sum_flows(classify(batch, SMALL) for batch in read_flow_logs(file))
    assert [(row["hour"], row["records"]) for row in table.to_pylist()] == [("2026-11-30T01", 2), ("2026-11-30T02", 1)]


def test_addresses_of_packets_are_those_of_pods(tmp_path: Path) -> None:
    of = replace(SMALL, clients={POD: "pods"})
    # The node of the pod has the address of the other group.
    file = log(
        tmp_path,
        {"srcaddr": BROKER, "dstaddr": CLIENT, "pkt-srcaddr": BROKER, "pkt-dstaddr": POD},
        {"srcaddr": CLIENT, "dstaddr": BROKER, "pkt-srcaddr": POD, "srcport": 40000, "dstport": 9092, "bytes": 7},
    )
    assert small(file, of) == [
        ("use1-az1", "use1-az2", "consuming", "pods", 1000),
        ("use1-az2", "use1-az1", "producing", "pods", 7),
    ]


@pytest.mark.parametrize("direction", [True, False])
def test_a_pod_records_with_the_interface_of_its_node(tmp_path: Path, direction: bool) -> None:  # noqa: FBT001
    node = {"srcaddr": CLIENT, "dstaddr": BROKER, "pkt-srcaddr": POD, "pkt-dstaddr": BROKER, "srcport": 40000}
    there = {"srcaddr": POD, "dstaddr": BROKER, "pkt-srcaddr": POD, "pkt-dstaddr": BROKER, "srcport": 40000}
    other = {"srcaddr": CLIENT, "dstaddr": "10.1.0.8", "interface-id": "eni-2", "pkt-dstaddr": "10.1.0.8", "bytes": 1}
    file = log(
        tmp_path,
        {**node, "dstport": 9092, "interface-id": "eni-2"},
        {**there, "dstport": 9092, "interface-id": "eni-1", "flow-direction": "ingress", "traffic-path": "-"},
        other,
        {"dstaddr": "10.1.0.8"},
        fields=[field for field in FIELDS if direction or field != "flow-direction"],
    )
    table = total(file, replace(SMALL, clients={}, subnets={}))
    assert lines(table) == {
        "producing": (1, 1000),
        "recorded_twice": (1, 1000),
        "other": (1, 1),
        "consuming": (1, 1000),
    }


def test_zones_are_those_of_brokers_then_subnets_then_of_the_interface(tmp_path: Path) -> None:
    file = log(tmp_path, {"az-id": "use1-az2"})
    client = "billing"

    def zones(subnets: dict[str, str]) -> list[tuple[str | None, str | None]]:
        return [row[:2] for row in small(file, replace(SMALL, subnets=subnets))]

    assert zones({"10.0.0.0/8": "use1-az4", "10.1.0.0/24": "use1-az2"}) == [("use1-az1", "use1-az2")]
    assert zones({"10.0.0.0/8": "use1-az4", "10.1.1.0/24": "use1-az2"}) == [("use1-az1", "use1-az4")]
    assert zones({"0.0.0.0/0": "use1-az4"}) == [("use1-az1", "use1-az4")]
    assert zones({"fd00::/8": "use1-az4"}) == [("use1-az1", None)]
    sent = log(tmp_path, {"srcaddr": CLIENT, "dstaddr": BROKER, "srcport": 40000, "dstport": 9092})
    # The interface of the client recorded.
    assert small(sent, replace(SMALL, subnets={})) == [("use1-az1", "use1-az1", "producing", client, 1000)]
    # Where racks have other names than zones' IDs, it is not known which rack an ID is.
    named = replace(SMALL, brokers={BROKER: "us-east-1a"}, subnets={})
    assert small(sent, named) == [(None, "us-east-1a", "producing", client, 1000)]


def test_ipv6_in_any_notation(tmp_path: Path) -> None:
    of = FlowNetwork({"2001:db8:0:0::1": "a"}, clients={"2001:DB8::2": "g"}, subnets={"2001:db8::/64": "b"})
    file = log(tmp_path, {"srcaddr": "2001:db8::1", "dstaddr": "2001:db8::2"}, {"srcaddr": "2001:db8::3"})
    assert small(file, of) == [("a", "b", "consuming", "g", 1000), ("b", None, "other", None, 1000)]


def test_other_ports_of_brokers_are_other_traffic(tmp_path: Path) -> None:
    second = "10.2.0.9"
    of = replace(SMALL, brokers={BROKER: "use1-az1", second: "use1-az4"})
    changes: list[dict[str, object]] = [
        {"srcport": 22},
        {"srcaddr": CLIENT, "dstaddr": BROKER, "srcport": 9092, "dstport": 9100},
        {"dstaddr": second},
        {"dstaddr": second, "srcport": 40000, "dstport": 9092},
        {"dstaddr": second, "srcport": 22},
    ]
    assert [small(log(tmp_path, change), of)[0][2] for change in changes] == [
        *("other", "other", "replicating", "replicating", "other")
    ]
    assert {small(log(tmp_path, change), replace(of, ports=frozenset()))[0][2] for change in changes} == {
        *("consuming", "producing", "replicating")
    }
    without = log(tmp_path, {}, fields=[field for field in FIELDS if field != "srcport"])
    with pytest.raises(ConfigError, match="no srcport or dstport"):
        small(without, of)


def test_a_log_without_direction_needs_a_first_pass(tmp_path: Path) -> None:
    file = log(tmp_path, {"version": 2}, fields=V2, header=False)
    with pytest.raises(ConfigError, match="no flow-direction: give FlowNetwork the recorders that find_recorders"):
        small(file)
    # It has one peer, so either may be its own address.
    assert lines(total(file, SMALL)) == {"unplaced": (1, 1000)}
    second: dict[str, object] = {"version": 2, "srcaddr": CLIENT, "dstaddr": BROKER, "interface-id": "eni-2"}
    second |= {"srcport": 40000, "dstport": 9092}
    other: dict[str, object] = {"version": 2, "srcaddr": "10.1.0.8", "dstaddr": CLIENT, "interface-id": "eni-2"}
    # The other interface has this peer's address.
    found = total(log(tmp_path, {"version": 2}, second, other, fields=V2), SMALL)
    assert lines(found) == {"consuming": (1, 1000), "producing": (1, 1000), "other": (1, 1000)}


LINE = " ".join(str(USUAL[name]) for name in FIELDS)


def with_line(change: dict[str, object]) -> str:
    return " ".join(str({**USUAL, **change}[name]) for name in FIELDS)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", ":1: not a flow log"),
        ("\n\n", ":1: not a flow log"),
        ("a,b\n1,2\n", ":1: not a flow log"),
        (LINE + "\n", ":1: not a flow log"),
        (LINE.replace("5 123", "2 123", 1) + "\n", ":1: not a flow log"),
        ("srcaddr dstaddr bytes\n1.2.3.4 1.2.3.5 3\n", ":1: not a flow log, or one without the field start"),
        ("srcaddr bytes start\n1.2.3.4 3 3\n", ":1: not a flow log, or one without the field dstaddr"),
        *(
            (f"{' '.join(FIELDS)}\n{LINE}\n\n  {bad}\n{LINE}\n", f":4: {problem}")
            for bad, problem in (
                (LINE + " 7", "expected 19 fields, got 20"),
                (LINE.rpartition(" ")[0], "expected 19 fields, got 18"),
                (with_line({"bytes": "many"}), 'bytes must be a number, got "many"'),
                (with_line({"packets": "1.5"}), 'packets must be a number, got "1.5"'),
                (with_line({"start": "9" * 30}), "start must be a number"),
                (with_line({"bytes": -5}), "bytes is not valid: -5"),
                (with_line({"srcport": -1}), "srcport is not valid: -1"),
                (with_line({"start": "-"}), "start is not valid: null"),
                (with_line({"start": START * 1_000_000}), "start is not valid"),
                (with_line({"srcaddr": "10.0.0"}), 'srcaddr is not valid: "10.0.0"'),
                (with_line({"dstaddr": "-"}), "dstaddr is not valid: null"),
                (with_line({"pkt-dstaddr": "fe80::1::2"}), 'pkt_dstaddr is not valid: "fe80::1::2"'),
                (with_line({"log-status": "MAYBE"}), 'log_status is not valid: "MAYBE"'),
                (with_line({"action": "DENY"}), 'action is not valid: "DENY"'),
                (with_line({"flow-direction": "up"}), 'flow_direction is not valid: "up"'),
                (" ".join(FIELDS), "srcport must be a number"),
            )
        ),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_malformed_text_is_an_error_with_file_and_line(
    tmp_path: Path,
    text: str,
    problem: str,
    packed: bool,  # noqa: FBT001
) -> None:
    file = tmp_path / "bad.log"
    file.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    with pytest.raises(ConfigError) as caught:
        [*read_flow_logs(tmp_path)]
    assert str(caught.value).startswith(f"{file}{problem}")


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("bytes", -3, ", row 2: bytes is not valid: -3"),
        ("srcaddr", "host", ', row 2: srcaddr is not valid: "host"'),
        ("dstaddr", None, ", row 2: dstaddr is not valid: null"),
        ("start", None, ", row 2: start is not valid: null"),
        ("log_status", "", ', row 2: log_status is not valid: ""'),
    ],
)
def test_a_malformed_row_of_parquet_is_an_error_with_file_and_row(
    tmp_path: Path, column: str, value: object, problem: str
) -> None:
    row: dict[str, Any] = {
        name.replace("-", "_"): None if USUAL[name] == "-" else USUAL[name] for name in FIELDS if name != "account-id"
    }
    file = tmp_path / "a.parquet"
    write_parquet(file, pa.Table.from_pylist([row, {**row, column: value}, row]))
    with pytest.raises(ConfigError) as caught:
        [*read_flow_logs(file)]
    assert str(caught.value) == f"{file}{problem}"


def test_files_that_are_no_parquet_of_flows_or_are_damaged(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    write_parquet(file, pa.table({"bytes": [1], "srcaddr": ["1.2.3.4"]}))
    with pytest.raises(ConfigError, match=r"a.parquet: not a flow log, or one without the field dstaddr"):
        [*read_flow_logs(file)]
    write_parquet(file, pa.table({name: ["many"] for name in ("bytes", "start", "srcaddr", "dstaddr")}))
    with pytest.raises(ConfigError, match=r"cannot read .*a.parquet"):
        [*read_flow_logs(file)]
    file.write_bytes(b"PAR1 and no more")
    with pytest.raises(ConfigError, match=r"cannot read .*a.parquet"):
        [*read_flow_logs(file)]
    text = log(tmp_path, *[{"bytes": number} for number in range(500)]).read_bytes()
    file.write_bytes(gzip.compress(text)[:-100])
    with pytest.raises(ConfigError, match=r"cannot read .*a.parquet"):
        [*read_flow_logs(file)]
    packed = bytearray(gzip.compress(text))
    packed[40:60] = bytes(20)
    file.write_bytes(packed)
    with pytest.raises(ConfigError, match=r"a.parquet"):
        [*read_flow_logs(file)]
    with pytest.raises(ConfigError, match=r"cannot read .*missing"):
        [*read_flow_logs(tmp_path / "missing")]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="has no files"):
        [*read_flow_logs(tmp_path / "empty")]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"brokers": {}}, "at least one address"),
        ({"brokers": {"broker-1": "a"}}, 'brokers: "broker-1" is not an address'),
        ({"brokers": {BROKER: ""}}, "empty value"),
        ({"clients": {"10.0.0.0/8": "g"}}, "clients: "),
        ({"subnets": {"10.0.0.1/8": "a"}}, "subnets: 10.0.0.1/8 has host bits set"),
        ({"ports": frozenset({0})}, "ports: 0 is not a port"),
    ],
)
def test_a_network_checks_itself(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        network(**options)
    assert problem in str(caught.value)


def test_a_network_is_copied_to_other_processes() -> None:
    of = network(recorders=Recorders(frozenset({BROKER}), {"eni-1": (BROKER,)}))
    copied = pickle.loads(pickle.dumps(of))  # noqa: S301 - its own
    assert copied == of
    assert [copied.locate(host.address) for host in HOSTS] == [of.locate(host.address) for host in HOSTS]


def test_sums_are_written_by_hour_zones_and_line(tmp_path: Path) -> None:
    sent = flows(HOSTS, 300, 7, hours=30)
    write_parquet(tmp_path / "log" / "a", records(HOSTS, sent, 7, FORMATS[5]))
    found = total(tmp_path / "log", network())
    write_flows(tmp_path / "sums", found)
    back = pa_dataset.dataset(
        tmp_path / "sums", partitioning=pa_dataset.partitioning(pa.schema([*FLOWS][:4]), flavor="hive")
    )
    again = back.to_table().select(FLOWS.names).cast(FLOWS)
    assert again.sort_by([(name, "ascending") for name in FLOWS.names[:5]]) == found
    assert (tmp_path / "sums/hour=2026-11-30T01/from_zone=use1-az1/to_zone=use1-az2/line=consuming").is_dir()
    with pytest.raises(ConfigError, match="is not empty"):
        write_flows(tmp_path / "sums", found)


def test_the_extra_is_named_where_pyarrow_is_missing() -> None:
    code = "import sys; sys.modules['pyarrow'] = None; import rackassign.bill.flows"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "MissingExtraError: pyarrow is missing: pip install 'rackassign[bill]'" in done.stderr


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with session() as started:
        yield started


def test_spark_sums_what_one_process_sums(spark: Any, tmp_path: Path) -> None:
    among = [replace(host, records=number % 4 != 1) for number, host in enumerate(HOSTS)]
    for number in range(5):
        table = records(among, flows(among, 200, number), number, FORMATS[5])
        (write_text if number % 2 else write_parquet)(tmp_path / "log" / f"day={number}" / "a", table)
    log(tmp_path / "log", {"log-status": "SKIPDATA", "srcaddr": "-", "dstaddr": "-", "bytes": "-", "packets": "-"})
    of = network(recorders=find_recorders(read_flow_logs(tmp_path / "log")))
    here = sum_flows(classify(batch, of) for batch in read_flow_logs(tmp_path / "log"))
    there = [row.asDict() for row in flows_on_spark(spark, str(tmp_path / "log"), of).collect()]
    assert sum_flows([pa.RecordBatch.from_pylist(there, FLOWS)]) == here
    assert len(there) == here.num_rows > np.size(LINES)
