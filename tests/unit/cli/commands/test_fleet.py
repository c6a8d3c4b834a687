"""`rackassign fleet` as a user meets it: from snapshots to a table, JSON, Parquet and a page, and how it ends."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rackassign.cli.app import run
from rackassign.fleet import AS_IS, WHAT_IFS
from rackassign.fleet.aggregate import aggregate
from rackassign.fleet.storage import read_results, write_snapshot
from rackassign.monitoring import ClusterSnapshot, GroupDescription, Price, RackMap, Throughput
from rackassign.monitoring.live_groups import snapshot
from rackassign.monitoring.report import format_usd
from tests.helpers.builders import cluster, group, member, rates
from tests.helpers.json_schemas import parsed

SEEN = datetime(2026, 1, 1, tzinfo=timezone.utc)
STEERING = "\x1b[31mred\n\x1b]0;owned\x07[bold]"


def far(name: str, topic: str) -> GroupDescription:
    return group(member("m1", "b", {topic: (0,)}), member("m2", "a", {topic: (1,)}), name=name)


@pytest.fixture
def seen(tmp_path: Path) -> str:
    """A folder with two snapshots: one has a group more."""
    names = "t", "u", "v"
    known = rates({(name, i): 1e6 * (number + 1) for number, name in enumerate(names) for i in range(2)})
    groups = [far("small", "t"), far(f"large{STEERING}", "v"), group(member("m", None, {"u": (0, 1)}), name="silent")]
    there = cluster({name: [[1], [2]] for name in names})
    folder = tmp_path / "seen"
    folder.mkdir()
    for hour, some in enumerate((groups, groups[1:])):
        shots = ClusterSnapshot(there, tuple(snapshot(each, there.topology, RackMap()) for each in some))
        write_snapshot(folder / f"groups-{hour}.parquet", SEEN + timedelta(hours=hour), shots, known)
    return str(folder)


def test_groups_are_shown_by_what_there_is_to_save(seen: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet", seen]) == 0
    shown = capsys.readouterr()
    assert shown.err == "Judging groups\n"
    assert not set(shown.out) & {"\x1b", "\x07"}
    lines = [line for line in shown.out.splitlines() if line.strip()]
    assert next(line for line in lines if "sticky" in line).split()[0].startswith("large")
    usd = {number: format_usd(Price().monthly(number * 1e6)) for number in (2, 4, 6, 8, 12)}
    assert usd[6] in shown.out
    assert f"3 groups that read: {usd[8]} to {usd[12]} USD a month across racks, 0.00 to {usd[4]} with the best" in (
        shown.out
    )
    assert "1 is not in the last snapshot, and as it was seen before" in shown.out


def test_changes_and_advice_are_shown_where_they_are_asked_for(
    seen: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["fleet", seen, "--what-if", "racks-assumed", "--recommend", "--price-per-gb", "0.01"]) == 0
    shown = capsys.readouterr().out
    assert "racks-assumed" in shown
    assert "members-balanced" not in shown
    assert "switch to cooperative-sticky of rackassign from range" in shown
    assert "at 0.01 USD/GB (as given)" in shown
    assert run(["fleet", seen, "--what-if", "all"]) == 0
    assert "add-rack" in capsys.readouterr().out


def test_programs_get_all_of_it(seen: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet", seen, "--what-if", "add-replica", "--output", "json"]) == 0
    found = parsed("fleet", capsys.readouterr().out)
    assert [each["group"] for each in found["groups"]] == [f"large{STEERING}", "small", "silent"]
    assert [each["groups"] for each in found["snapshots"]] == [3, 2]
    assert [*found["what_ifs"]] == ["as-is", "add-replica"]
    large = found["groups"][0]
    assert (large["best_strategy"], large["best_what_if"], large["take"]) == ("cooperative-sticky", "as-is", None)
    assert large["now"]["partitions"] == {"local": 0, "cross": 2, "unknown": 0}
    assert large["now"]["usd_per_month"]["cross"] == round(Price().monthly(6e6), 2)
    assert [*large["what_ifs"]["as-is"]] == ["now", "range", "sticky", "cooperative-sticky"]
    assert run(["fleet", seen, "--what-if", "add-replica", "--output", "jsonl"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == found["groups"]


def test_what_is_found_is_kept_and_made_a_page(seen: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--output-dir", str(tmp_path / "found"), "--html", str(tmp_path / "page.html")]
    assert run(["fleet", seen, "--what-if", "all", *words]) == 0
    assert len(aggregate(read_results(tmp_path / "found")).groups) == 3
    assert "add-rack" in (tmp_path / "page.html").read_text("utf-8")
    assert run(["fleet", seen, "--output-dir", str(tmp_path / "found")]) == 2
    assert capsys.readouterr().err.endswith(
        f"rackassign: {tmp_path / 'found'} is not empty: choose a new or an empty folder\n"
    )


@pytest.mark.parametrize("lives", [[], [group(name="empty")]])
def test_a_fleet_of_nothing_is_no_error(
    lives: Sequence[GroupDescription], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = cluster({})
    shots = ClusterSnapshot(there, tuple(snapshot(each, there.topology, RackMap()) for each in lives))
    write_snapshot(tmp_path / "groups.parquet", SEEN, shots, Throughput())
    assert run(["fleet", str(tmp_path), "--html", str(tmp_path / "x.html"), "--what-if", "all", "--recommend"]) == 0
    assert "0 groups that read" in capsys.readouterr().out
    assert run(["fleet", str(tmp_path), "--output", "json"]) == 0
    assert parsed("fleet", capsys.readouterr().out)["groups"] == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["nowhere"], "cannot read nowhere: No such file or directory"),
        (["empty"], "empty has no Parquet files"),
        (["foreign.parquet"], "foreign.parquet: expected a snapshot as `snapshot --parquet` writes it"),
        (["text.parquet"], "cannot read text.parquet: "),
        (["cut.parquet"], "cannot read cut.parquet: "),
        (["seen", "--what-if", "rf"], "what-if: expected one of as-is, racks-reported, "),
        (["seen", "--what-if", "all", "--what-if", "add-rakc"], "what-if: expected one of as-is, racks-reported, "),
        (["seen", "--html", "/nowhere/x.html"], "html: cannot write /nowhere/x.html: there is no such folder"),
        (["seen", "--output-dir", "foreign.parquet"], "cannot create foreign.parquet: File exists"),
        (["seen", "--output-dir", "seen"], "seen is not empty"),
        (["seen", "--price-per-gb", "nan"], "price must be from 0 to 1000000 USD/GB, got nan"),
        (["seen", "--output", "xml"], "output must be one of table, json, jsonl, got 'xml'"),
        ([], "Missing argument 'snapshots'"),
    ],
)
def test_what_is_wrong_is_one_line_on_stderr(
    words: list[str],
    problem: str,
    seen: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = Path(seen).parent
    monkeypatch.chdir(folder)
    (folder / "empty").mkdir()
    pq.write_table(pa.table({"group": ["g"]}), folder / "foreign.parquet")
    (folder / "text.parquet").write_text("PAR1 this is not", "utf-8")
    whole = (folder / "seen" / "groups-0.parquet").read_bytes()
    (folder / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    assert run(["fleet", *words]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert shown.err.startswith(f"rackassign: {problem}")


def test_the_help_names_all_changes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert run(["fleet", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split()).replace("- ", "-")
    assert [name for name in WHAT_IFS if f"{name}," not in told] == [AS_IS]


def test_without_the_extra_it_says_which(
    seen: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [
        name for name in sys.modules if name.startswith(("rackassign.fleet", "rackassign.cli.commands.fleet"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert run(["fleet", seen]) == 2
    assert capsys.readouterr().err == "rackassign: pyarrow is missing: pip install 'rackassign[spark]'\n"
