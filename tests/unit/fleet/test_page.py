"""A fleet added up and as a page: what is shown adds up to what was found, and names in it are hostile."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rackassign.errors import ConfigError
from rackassign.fleet import AS_IS, WHAT_IFS, FleetAudit, audit_groups
from rackassign.fleet.aggregate import Totals, TrafficByKind, aggregate, breakdown, total
from rackassign.fleet.evaluation import NOW, SCHEMA
from rackassign.fleet.page import page
from rackassign.fleet.storage import read_results, read_snapshots, write_results, write_snapshot
from rackassign.model import TopicPartition
from rackassign.monitoring import (
    ClusterSnapshot,
    GroupDescription,
    ObservedCluster,
    Price,
    RackMap,
    ReadRates,
    Throughput,
)
from rackassign.monitoring.analysis import inspect
from rackassign.monitoring.live_groups import snapshot
from rackassign.monitoring.report import format_usd
from rackassign.text import strip_control_chars
from tests.helpers.builders import brokers, cluster, group, member, rates
from tests.helpers.html_checks import HOSTILE, Browse, Document, with_notes

AT = datetime(2026, 1, 2, 3, 4, tzinfo=timezone.utc)
SEEN = datetime(2026, 1, 1, tzinfo=timezone.utc)
ALL = FleetAudit(what_ifs=tuple(WHAT_IFS), recommend=True)

Audited = Callable[..., Path]


@pytest.fixture
def audited(tmp_path: Path) -> Audited:
    """Save groups as they were at some moments, one an hour, audit them, and return where that is."""

    def done(
        there: ObservedCluster, *moments: tuple[Sequence[GroupDescription], Throughput], how: FleetAudit = ALL
    ) -> Path:
        (tmp_path / "seen").mkdir()
        for hour, (groups, known) in enumerate(moments):
            shots = ClusterSnapshot(there, tuple(snapshot(each, there.topology, RackMap()) for each in groups), ())
            write_snapshot(tmp_path / "seen" / f"{hour:02}.parquet", SEEN + timedelta(hours=hour), shots, known)
        write_results(tmp_path / "found", audit_groups(read_snapshots(tmp_path / "seen"), how))
        return tmp_path / "found"

    return done


def far(name: str, topic: str = "t") -> GroupDescription:
    """Two members that have each what is near the other; by another strategy all of it is local."""
    return group(member("m1", "b", {topic: (0,)}), member("m2", "a", {topic: (1,)}), name=name)


def topics(*names: str) -> ObservedCluster:
    return cluster({name: [[1], [2]] for name in names})


def each(bytes_s: Mapping[str, float]) -> Throughput:
    return rates({(topic, i): rate for topic, rate in bytes_s.items() for i in range(2)})


def cells(text: str, table: str) -> list[list[str]]:
    """Return the text of the cells of a table, by row."""
    _, _, rest = text.partition(f'<table id="{table}">')
    body, _, _ = rest.partition("</table>")
    rows = body.partition("<tbody>")[2].split("<tr")[1:]
    return [[" ".join(Document(f"<td{cell}").texts).strip() for cell in row.split("<td")[1:]] for row in rows]


def test_a_snapshot_in_which_no_group_reads_anything_is_shown(audited: Audited) -> None:
    # All members have joined, and none has a partition yet.
    idle = group(member("m", "a", {}, "t"), name="g")
    found = audited(topics("t"), ([far("h")], Throughput()), ([idle], Throughput()))
    fleet = aggregate(read_results(found))
    assert [(point.groups, point.now.partitions.total) for point in fleet.history] == [(1, 2), (1, 0)]
    assert [each.name for each in fleet.stale] == ["h"]
    for file in (found.parent / "seen").glob("00*"):
        file.unlink()
    write_results(found.parent / "idle", audit_groups(read_snapshots(found.parent / "seen"), ALL))
    assert "Latest snapshot 2026-01-01 01:00 UTC" in " ".join(page(found.parent / "idle", Price()).split())


def test_sums_are_what_an_inspection_finds(audited: Audited) -> None:
    known = rates({(topic, i): 1000.0 * (i + 1) for topic in "tu" for i in range(3)})
    there = cluster({"t": [[1, 2], [2], [3]], "u": [[3], [1], [2, 1]]})
    lives = [
        group(member("m", "a", {"t": (0, 1), "u": (2,)}), member("n", None, {"t": (2,), "u": (0, 1)}), name="g"),
        far("h", "u"),
        group(member("m", "c", {"t": (2,)}), name="i"),
    ]
    fleet = aggregate(read_results(audited(there, (lives, known))))
    assert fleet.what_ifs == tuple(WHAT_IFS)
    for live in lives:
        (of,) = (one for one in fleet.groups if one.name == live.name)
        seen = inspect(snapshot(live, there.topology, RackMap()), there, ReadRates(known.bytes_s))
        ways = {NOW: (seen.flows, seen.partitions, 0)} | {
            r.strategy: (r.flows, r.partitions, r.moved) for r in seen.reaches
        }
        for strategy, (flows, partitions, moved) in ways.items():
            found = of.outcomes[AS_IS][strategy]
            assert (found.bytes_s.local, found.bytes_s.cross, found.bytes_s.unknown) == pytest.approx(
                (flows.local, flows.cross, flows.unknown)
            )
            counts = partitions.local, partitions.cross, partitions.unknown
            assert (found.partitions, found.moved) == (TrafficByKind(*counts), moved)
        assert of.required_changes == tuple(of.required_changes or ())
        assert of.at_best(of.change).rank == min(way.rank for ways in of.outcomes.values() for way in ways.values())


def test_groups_come_by_what_there_is_to_save(audited: Audited) -> None:
    at_home = group(member("m", "a", {"big": (0,)}), member("n", "b", {"big": (1,)}), name="at-home")
    known = each({"t": 2000.0, "u": 5000.0, "big": 9e6})
    fleet = aggregate(read_results(audited(topics("t", "u", "big"), ([far("less"), at_home, far("more", "u")], known))))
    assert [of.name for of in fleet.groups] == ["more", "less", "at-home"]
    assert [of.saved for of in fleet.groups] == [(10_000.0, 2), (4000.0, 2), (0.0, 0)]
    assert [(of.strategy(), of.change) for of in fleet.groups] == [("cooperative-sticky", AS_IS)] * 2 + [(NOW, AS_IS)]


def test_what_is_left_out_is_added_up(audited: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackassign.fleet.page._MAX_GROUPS", 2)
    monkeypatch.setattr("rackassign.fleet.page._MAX_TOPICS", 1)
    names = [f"t{number}" for number in range(5)]
    known = each({name: 1e6 * (number + 1) for number, name in enumerate(names)})
    wide = group(member("m1", "b", dict.fromkeys(names, (0,))), member("m2", "a", dict.fromkeys(names, (1,))), name="w")
    found = audited(topics(*names), ([wide, *(far(name, name) for name in names)], known))
    text = page(found, Price(), AT)
    shown = cells(text, "groups")
    assert [row[0] for row in shown if len(row) > 1] == ["w", "t4", "4 groups more"]
    usd = format_usd(Price().monthly(2e6 * (1 + 2 + 3 + 4)))
    assert shown[-1][2:4] == [usd, usd]
    rest = format_usd(Price().monthly(2e6 * (1 + 2 + 3 + 4)))
    assert text.count("<td>4 more topics</td>") == 1
    assert f"<td>{rest}</td><td>0.00</td>" in text.partition("4 more topics")[2]


def test_of_a_group_that_was_seen_often_the_latest_counts(audited: Audited) -> None:
    there = topics("t", "u")
    now_near = group(member("m1", "b", {"t": (1,)}), member("m2", "a", {"t": (0,)}), name="g")
    found = audited(
        there,
        ([far("g"), far("gone", "u")], each({"t": 1e6, "u": 1e6})),
        ([far("g"), far("gone", "u")], each({"t": 1e6, "u": 3e6})),
        ([now_near], each({"t": 1e6, "u": 9e6})),
    )
    fleet = aggregate(read_results(found))
    assert [(of.name, of.taken.hour, of.now.bytes_s.cross) for of in fleet.groups] == [("gone", 1, 6e6), ("g", 2, 0.0)]
    assert [(seen.taken.hour, seen.groups, seen.now.bytes_s.cross) for seen in fleet.history] == [
        (0, 2, 4e6),
        (1, 2, 8e6),
        (2, 1, 0.0),
    ]
    assert [of.name for of in fleet.stale] == ["gone"]
    detail = breakdown(read_results(found), fleet, ["gone"])
    assert sum(of.bytes_s.cross for of in detail.now.values()) == 6e6
    assert {topic: (now.bytes_s.cross, best.bytes_s.cross) for topic, (now, best) in detail.topics["gone"].items()} == {
        "u": (6e6, 0.0)
    }
    text = page(found, Price(), AT)
    assert "2026-01-01 02:00 UTC, 2 earlier ones since 2026-01-01 00:00 UTC" in text
    assert "1 group is not in the last snapshot" in text
    assert [row[0] for row in cells(text, "history")] == [f"2026-01-01 0{hour}:00 UTC" for hour in range(3)]


def test_how_rows_are_dealt_plays_no_part(audited: Audited) -> None:
    known = each({"t": 1e6, "u": 3e6})
    lives = [far("g"), far("h", "u"), group(member("m", None, {"t": (0, 1)}), name="i")]
    (table,) = [pa.Table.from_batches(read_results(audited(topics("t", "u"), (lives, known), (lives[:2], known))))]
    whole = aggregate(table.to_batches())
    rng = random.Random(7)
    for size in (1, 7, 1000):
        dealt = [table.slice(start, size).combine_chunks().to_batches()[0] for start in range(0, len(table), size)]
        rng.shuffle(dealt)
        assert aggregate(dealt) == whole
        names = [of.name for of in whole.groups]
        assert breakdown(dealt, whole, names) == breakdown(table.to_batches(), whole, names)


def test_all_pairs_of_racks_and_all_topics_add_up_to_the_fleet(audited: Audited) -> None:
    known = each({"t": 1e6, "u": 3e6})
    lives = [far("g"), far("h", "u"), group(member("m", None, {"t": (0, 1), "u": (0, 1)}), name="i")]
    found = audited(topics("t", "u"), (lives, known))
    fleet = aggregate(read_results(found))
    detail = breakdown(read_results(found), fleet, [of.name for of in fleet.groups])

    def amounts(of: Totals) -> tuple[TrafficByKind, TrafficByKind, int]:
        return of.bytes_s, of.partitions, of.unmeasured

    for pairs, of in (
        (detail.now, lambda g: g.now),
        (detail.best, lambda g: g.at_best()),
        (detail.changed, lambda g: g.at_best(g.change)),
    ):
        assert amounts(sum(pairs.values(), Totals())) == amounts(total(fleet.groups, of))
    for one in fleet.groups:
        now, best = (sum((sides[i] for sides in detail.topics[one.name].values()), Totals()) for i in (0, 1))
        assert (amounts(now), amounts(best)) == (amounts(one.now), amounts(one.at_best()))


def test_what_spark_writes_is_read_as_what_we_write(audited: Audited, tmp_path: Path) -> None:
    found = audited(topics("t"), ([far("g")], each({"t": 1e6})))
    table = pa.Table.from_batches(read_results(found), SCHEMA)
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "_SUCCESS").touch()
    # Its moments have nanoseconds and no time zone.
    pq.write_table(table, tmp_path / "spark" / "part-0.parquet", use_deprecated_int96_timestamps=True)
    assert aggregate(read_results(tmp_path / "spark")) == aggregate(read_results(found))
    pq.write_table(table.drop_columns(["moved"]), tmp_path / "spark" / "part-1.parquet")
    with pytest.raises(ConfigError, match=r"part-1\.parquet: expected the results of a fleet audit"):
        aggregate(read_results(tmp_path / "spark"))


def test_without_the_groups_as_they_are_there_is_nothing_to_compare_with(audited: Audited) -> None:
    found = audited(topics("t"), ([far("g")], each({"t": 1e6})), how=FleetAudit(what_ifs=("members-balanced",)))
    with pytest.raises(ConfigError, match='group "g": no results for as-is'):
        aggregate(read_results(found))


def hostile(audited: Audited, *, measured: bool = True) -> Path:
    """Groups, topics and racks of such names; each with a member of unknown rack."""
    racks = [f"a {HOSTILE[0]}", f"b {HOSTILE[-1]}", f"c {HOSTILE[2]}"]
    there = cluster({name: [[1], [2], [3], [1, 2]] for name in HOSTILE}, brokers(racks))
    lives = [
        group(
            member(f"1 {name}", racks[1], {name: [0, 3]}, client_id=name),
            member(f"2 {name}", None, {name: [1]}, client_id=f"silent {name}"),
            member(f"3 {name}", racks[0], {name: [2]}, client_id=name),
            name=name,
            strategy=name,
        )
        for name in HOSTILE
    ]
    known = {(name, p): 1000.0 * (p + 1) for name in HOSTILE for p in range(3)} if measured else {}
    return audited(there, (lives, rates(known)), (lives[1:], rates(known)))


def test_names_stay_names(browse: Browse, audited: Audited) -> None:
    shown = browse(page(hostile(audited), Price(), AT))
    assert not shown.tags() & {"script", "img", "iframe", "object", "link"}
    assert sum(tag == "h1" for tag, _ in shown.elements) == 1
    assert not [of for _, of in shown.elements if any(name.startswith("on") for name in of)]
    assert {(of.get("href") or "")[:1] for tag, of in shown.elements if tag == "a"} == {"#"}
    for name in map(strip_control_chars, HOSTILE):
        # A row of the table and a section, and the topic.
        assert shown.texts.count(name) == 3
        assert any(f"svc {name}" in text or name in text for text in shown.texts)


@pytest.mark.parametrize(
    ("width", "dark"),
    [
        (360, True),
        (1400, False),
        *(pytest.param(*each, marks=pytest.mark.long) for each in ((360, False), (1400, True))),
    ],
)
def test_the_page_fits_and_can_be_read(browse: Browse, audited: Audited, width: int, *, dark: bool) -> None:
    body = browse(with_notes(page(hostile(audited), Price(), AT)), width=width, dark=dark).body()
    assert (body["data-overflow"], body["data-outside"]) == ("0", "0")
    assert int(body["data-ribbons"] or 0) > 0
    ground, ink = (sum(map(int, (body[key] or "")[4:-1].split(","))) for key in ("data-ground", "data-ink"))
    assert (ink - ground > 400) if dark else (ground - ink > 400)


@pytest.mark.parametrize("measured", [True, False])
def test_a_page_needs_no_browser_to_be_checked(audited: Audited, *, measured: bool) -> None:
    found = hostile(audited, measured=measured)
    text = page(found, Price(), AT)
    shown = Document(text)
    assert not shown.tags() & {"script", "img", "link"}
    assert not [of for _, of in shown.elements if {"src", "onerror"} & of.keys()]
    assert text.index("Content-Security-Policy") < text.index("<style>")
    assert text == page(found, Price(), AT)
    # Neither the name that turns what follows around nor any other control.
    assert "\\u202eesrever" in shown.texts
    assert all(line.isprintable() for line in text.splitlines())
    assert ("USD" in text) == measured
    assert ("Bytes were not measured" in text) != measured
    # One partition of four of each group was not.
    assert (f"≥: {len(HOSTILE)} of {4 * len(HOSTILE)} partitions were not measured." in shown.texts) == measured


def test_changes_stand_side_by_side(audited: Audited) -> None:
    crowded = group(member("m", "a", {"t": (0, 1)}), member("n", "a", {}, "t"), name="crowded")
    unknown = group(member("m", None, {"u": (0, 1)}), name="unknown")
    found = audited(topics("t", "u"), ([crowded, unknown], each({"t": 1e6, "u": 2e6})))
    rows = {row[0].split()[0]: row[3:] for row in cells(page(found, Price(), AT), "changes")}
    usd = {number: format_usd(Price().monthly(number * 1e6)) for number in (1, 2, 4, 5)}
    assert [*rows] == ["now", *WHAT_IFS]
    assert rows["now"][0] == rows["as-is"][0] == f"{usd[1]} to {usd[5]}"
    assert rows["members-balanced"][:2] == [usd[2], f"≤{format_usd(Price().monthly(3e6))}"]
    assert rows["racks-assumed"][0] == format_usd(Price().monthly(3e6))


def test_what_was_not_measured_is_said(audited: Audited) -> None:
    found = audited(topics("t", "u"), ([far("g")], Throughput()), ([far("g"), far("h", "u")], each({"t": 1e6})))
    text = page(found, Price(), AT)
    assert [row[3] for row in cells(text, "history")] == ["not measured", f"≥{format_usd(Price().monthly(2e6))}"]
    assert {row[0]: row[2] for row in cells(text, "groups") if len(row) > 1}["h"] == "not measured"


def test_a_group_that_has_nothing_yet_reads_nothing(audited: Audited) -> None:
    waiting = group(member("m", "a", {}, "t"), name="waiting")
    stray = group(member("m", "b", {"u": (0,)}, "gone"), name="stray")
    found = audited(topics("t", "u"), ([waiting, stray], each({"t": 1e6, "u": 1e6})))
    fleet = aggregate(read_results(found))
    assert {of.name: (of.now.partitions.total, of.strategy(), of.saved) for of in fleet.groups} == {
        "waiting": (0, NOW, (0, 0)),
        "stray": (1, NOW, (0, 0)),
    }
    assert "waiting" in page(found, Price(), AT)


def test_a_fleet_of_nothing_is_a_page_too(audited: Audited) -> None:
    found = audited(topics("t"), ([], Throughput()), ([group(name="empty")], Throughput()))
    assert aggregate(read_results(found)).groups == ()
    assert "groups that read" in Document(page(found, Price(), AT)).texts


def test_many_flows_are_not_all_drawn(audited: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackassign.fleet.page._MAX_FLOWS", 1)
    found = audited(topics("t"), ([far("g")], Throughput({TopicPartition("t", 0): 5.0})), how=FleetAudit())
    text = page(found, Price(), AT)
    assert "1 smaller flows are not drawn" in text
    assert len(Document(text).of_class("ribbon")) == 2
