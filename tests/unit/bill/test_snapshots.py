"""Snapshots in Parquet: what is written is read again, and anything else is one error that names the file."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rackassign.bill.levers import evaluate
from rackassign.bill.snapshots import SCHEMA, read_snapshots, write_snapshot
from rackassign.bill.usage import ItemKey, Setting, Span, Usage
from rackassign.cli.app import run
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.monitoring import ClusterSnapshot, Price, RackMap, Throughput
from rackassign.monitoring.live_groups import snapshot
from rackassign.monitoring.read_rates import CommitSample, Measurement
from rackassign.monitoring.throughput import LogSample, LogSamples, compute_throughput
from tests.helpers.builders import brokers, cluster, group, member

AT = datetime(2026, 11, 29, 12, tzinfo=timezone.utc)


def taken(file: Path, at: datetime = AT, rate: float = 1000.0, name: str = "billing", id_: str = "x") -> Path:
    known = (*brokers("ab"), *brokers("abc", fenced=True)[2:])
    there = cluster({"t": [[1, 2], [2, 3]], "unread": [[2, 1]]}, known, {"t": ((1,), (2, 3))})
    there = type(there)(there.brokers, there.topology, there.in_sync, {"gone": "no"}, id_)
    live = group(member("m", None, {"t": [0, 1]}, host="h", instance_id="i"), name=name)
    tps = (TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("unread", 0))
    rates = dict.fromkeys(tps, rate)
    written = Throughput(rates, seconds=30.0, bytes_written=rates, sizes=dict.fromkeys(tps, 10**6))
    shots = ClusterSnapshot(there, (snapshot(live, there.topology, RackMap(hosts={"h": "b"})),))
    write_snapshot(file, at, shots, Measurement(written))
    return file


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    (found,) = read_snapshots(taken(tmp_path / "1.parquet"))
    assert (found.taken, found.cluster.id, found.measured.seconds) == (AT, "x", 30.0)
    assert found.cluster.in_sync == {"t": ((1,), (2, 3)), "unread": ((2, 1),)}
    assert [broker.fenced for broker in found.cluster.brokers] == [False, False, True]
    assert found.cluster.missing == {"gone": "no"}
    assert found.measured.sizes[TopicPartition("unread", 0)] == 10**6
    (readers,) = found.groups
    assert readers.snapshot.rack_map_members == {"m"}
    assert readers.snapshot.live.members[0].instance_id == "i"
    items = found.usage.items(Setting())
    assert items[ItemKey("replicating", "unread")].across == Span(1000.0, 1000.0)
    # The replica in the rack of the reader, b, is not in sync for the first of two partitions.
    assert items[ItemKey("consuming", "t", "billing")].across == Span(1000.0, 1000.0)


def test_a_group_that_caught_up_when_the_snapshot_was_taken_is_known(tmp_path: Path) -> None:
    there, tp = cluster({"t": [[1, 2]]}), TopicPartition("t", 0)
    live = group(member("m", "a", {"t": [0]}))
    shots = ClusterSnapshot(there, (snapshot(live, there.topology, RackMap()),))
    before, after = (LogSamples({tp: LogSample(at, 100 * end, 0, end)}) for at, end in ((0.0, 10_000), (10.0, 10_100)))
    for name, offsets in (("late", (0, 5_000)), ("even", (10_000, 10_100))):
        commits = [CommitSample(at, {tp: offset}) for at, offset in zip((0.0, 10.0), offsets, strict=True)]
        measured = Measurement(compute_throughput(before, after), before, after, {"g": commits})
        write_snapshot(tmp_path / name, AT, shots, measured)
        (found,) = read_snapshots(tmp_path / name)
        assert [readers.rates.catches_up for readers in found.groups] == [name == "late"]


def test_a_snapshot_without_groups_has_its_topics(tmp_path: Path) -> None:
    there = cluster({"t": [[1, 2]]})
    written = Throughput({TopicPartition("t", 0): 1.0}, seconds=1.0)
    write_snapshot(tmp_path / "1.parquet", AT, ClusterSnapshot(there, ()), Measurement(written))
    (found,) = read_snapshots(tmp_path)
    assert found.groups == ()
    usage, report = Usage.of(found.report()), found.report()
    assert evaluate(usage, report, Price()).now[ItemKey("replicating", "t")].across == Span(1.0, 1.0)


def test_the_bill_is_of_the_last_snapshot_and_the_page_has_those_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "snapshots"
    folder.mkdir()
    taken(folder / "b.parquet", AT, 1000.0)
    taken(folder / "a.parquet", AT + timedelta(days=1), 4e6)
    page = tmp_path / "bill.html"
    assert run(["bill", str(folder), "--html", str(page)]) == 0
    shown = capsys.readouterr()
    assert "(replicating 631," in shown.out
    # As with a cluster.
    assert "brokers 3 are offline: what is copied to them later counts as if it were copied now" in shown.err
    text = page.read_text("utf-8")
    assert 'id="history"' in text
    assert text.index("2026-11-29 12:00") < text.index("2026-11-30 12:00")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["bill"], "give either --bootstrap-server, or a folder of snapshots"),
        (["bill", "x", "--bootstrap-server", "x:1"], "give either --bootstrap-server, or a folder of snapshots"),
        (["bill", "x", "--producers", "y"], "they need --bootstrap-server"),
        (["bill", "--bootstrap-server", "x:1", "--producers", "y", "--interval", "0"], "--interval cannot be 0"),
        (["bill", "--bootstrap-server", "x:1", "--producers", "/none"], "/none: No such file or directory"),
        (["bill", "--bootstrap-server", "x:1", "--broker-metrics", "/none"], "/none: No such file or directory"),
        (["bill", "--bootstrap-server", "x:1", "--cloud", "ibm"], "cloud must be one of aws"),
        (["bill", "--bootstrap-server", "x:1", "--prometheus", "http://127.0.0.1:9"], "Connection refused"),
        (["bill", "--bootstrap-server", "x:1", "--flow-logs", "/none"], "cannot read /none"),
        (["bill", "/none"], "cannot read /none: No such file or directory"),
    ],
)
def test_wrong_options_are_one_line(words: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert problem in line


def test_files_that_are_no_snapshots_are_named(tmp_path: Path) -> None:
    other, broken, empty = (tmp_path / f"{name}.parquet" for name in ("other", "broken", "empty"))
    pq.write_table(pa.table({"group": ["g"]}), other)
    broken.write_bytes(taken(tmp_path / "whole").read_bytes()[:-100])
    pq.write_table(SCHEMA.empty_table(), empty)
    for file, problem in (
        (other, f"{other}: expected a snapshot as"),
        (broken, f"cannot read {broken}: "),
        (empty, f"{empty}: has no rows"),
    ):
        with pytest.raises(ConfigError, match=problem):
            read_snapshots(file)
    (tmp_path / "none").mkdir()
    with pytest.raises(ConfigError, match="has no Parquet files"):
        read_snapshots(tmp_path / "none")


def test_rows_that_were_changed_are_named(tmp_path: Path) -> None:
    file = taken(tmp_path / "1.parquet")
    rows = pq.read_table(file).to_pylist()
    rows[0]["topics"][0]["bytes_s"] = [float("nan"), 1.0]
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), file)
    with pytest.raises(ConfigError, match=r'1\.parquet: group "billing": expected a row of a snapshot: topic t: rates'):
        read_snapshots(file)
    rows[0]["topics"][0]["bytes_s"] = [1.0]
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), file)
    with pytest.raises(ConfigError, match="differ in length"):
        read_snapshots(file)


def test_a_folder_is_of_one_cluster_and_has_each_time_once(tmp_path: Path) -> None:
    taken(tmp_path / "1.parquet")
    taken(tmp_path / "2.parquet")
    with pytest.raises(ConfigError, match="two snapshots are of 2026-11-29 12:00:00"):
        read_snapshots(tmp_path)
    taken(tmp_path / "2.parquet", AT + timedelta(1), id_="y")
    with pytest.raises(ConfigError, match="expected snapshots of one cluster, got x and y"):
        read_snapshots(tmp_path)
