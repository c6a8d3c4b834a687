"""The audit of a fleet: rows keep all there is to know of a group, and answers do not depend on how they are dealt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.observe import LiveCluster, LiveGroup, Price, RackMap, Rates, Shots
from rackassign.observe.inspection import inspect
from rackassign.observe.reading import counted
from rackassign.observe.snapshot import snapshot
from rackassign.spark.fleet import AS_IS, WHAT_IFS, FleetAudit, Row, read, written
from rackassign.spark.fleet.files import keep, load, save
from rackassign.spark.fleet.rows import SCHEMA

from .live import brokers, cluster, group, member, rates

TAKEN = datetime(2026, 11, 22, 3, 0, tzinfo=timezone.utc)
RACKS = RackMap(client_ids={"mapped-a": "a", "mapped-*": "b"})


def row(live: LiveGroup, there: LiveCluster, measured: Rates | None = None) -> Row:
    return Row(TAKEN, snapshot(live, there.topology, RACKS), there, measured or Rates())


def batch(*rows: Row) -> Any:
    made = [written(of.taken, [of.snapshot], of.cluster, of.rates).to_pylist() for of in rows]
    return pa.RecordBatch.from_pylist([one for some in made for one in some], SCHEMA)


def judged(audit: FleetAudit, *rows: Row) -> list[dict[str, Any]]:
    return [found for out in audit([batch(*rows)]) for found in out.to_pylist()]


@st.composite
def fleets(draw: st.DrawFn) -> list[Row]:
    rows = []
    for number in range(draw(st.integers(1, 3))):
        known = brokers(draw(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=5)))
        ids = st.lists(st.sampled_from([b.id for b in known]), min_size=1, max_size=3, unique=True)
        topics = {name: draw(st.lists(ids, min_size=1, max_size=4)) for name in ("t", "u")}
        places = [(name, i) for name, of in topics.items() for i in range(len(of))]
        names = draw(st.lists(st.sampled_from(["m", "mapped-1", "n", "mapped-2"]), unique=True, max_size=4))
        owners = [draw(st.sampled_from(names)) if names else "" for _ in places]
        members = [
            member(
                name,
                draw(st.sampled_from(["a", "b", "z", None])),
                {
                    t: [i for (u, i), owner in zip(places, owners, strict=True) if u == t and owner == name]
                    for t in topics
                },
                *topics,
            )
            for name in names
        ]
        measured = rates({place: float(draw(st.integers(0, 9))) for place in places if draw(st.booleans())})
        rows.append(row(group(*members, name=f"g{number}"), cluster(topics, known), measured))
    return rows


@settings(deadline=None, max_examples=60)
@given(fleets())
def test_a_row_that_was_written_is_judged_as_the_group_was(rows: list[Row]) -> None:
    for was, back in zip(rows, read(batch(*rows)), strict=True):
        assert back.taken == TAKEN
        assert back.snapshot.group == was.snapshot.group
        known = was.snapshot.group.topology.topics
        assert back.rates.bytes_s == {p: rate for p, rate in was.rates.bytes_s.items() if p.topic in known}
        then, now = (inspect(of.snapshot, of.cluster, of.rates) for of in (was, back))
        assert (then.partitions, then.flows, then.reaches, then.actions, then.unread) == (
            now.partitions,
            now.flows,
            now.reaches,
            now.actions,
            now.unread,
        )


@settings(deadline=None, max_examples=60)
@given(fleets())
def test_what_is_found_is_what_an_inspection_finds(rows: list[Row]) -> None:
    for one in rows:
        found, seen = judged(FleetAudit(), one), inspect(one.snapshot, one.cluster, one.rates)
        ways = {"now": (seen.partitions, seen.flows)} | {r.strategy: (r.partitions, r.flows) for r in seen.reaches}
        assert {part["strategy"] for part in found} <= set(ways)
        for name, (partitions, flows) in ways.items():
            parts = [part for part in found if part["strategy"] == name]
            assert sum(part["partitions"] for part in parts) == sum(
                (partitions.local, partitions.cross, partitions.unknown)
            )
            assert sum(part["bytes_s"] for part in parts) == pytest.approx(flows.total)
            assert sum(part["unmeasured"] for part in parts) == flows.unmeasured
            usd = Price().monthly(flows.cross)
            assert sum(part["usd_month"] for part in parts) == pytest.approx(usd)


@settings(deadline=None, max_examples=30)
@given(fleets(), st.integers(1, 3))
def test_how_rows_are_dealt_to_batches_plays_no_part(rows: list[Row], size: int) -> None:
    audit = FleetAudit(what_ifs=tuple(WHAT_IFS))
    whole = judged(audit, *rows)
    parts = [batch(*rows[start : start + size]) for start in range(0, len(rows), size)]
    assert [found for out in audit(parts) for found in out.to_pylist()] == whole


def shares(found: Sequence[Mapping[str, Any]], what_if: str, strategy: str = "cooperative-sticky") -> dict[str, int]:
    local = {"local": 0, "all": 0}
    for part in found:
        if (part["what_if"], part["strategy"]) == (what_if, strategy):
            local["all"] += part["partitions"]
            here = part["source_rack"] is not None and part["source_rack"] == part["reader_rack"]
            local["local"] += part["partitions"] if here else 0
    return local


def test_members_that_told_their_racks_would_read_at_home() -> None:
    live = group(member("mapped-a", None, {"t": (1,)}), member("mapped-b", None, {"t": (0,)}))
    found = judged(FleetAudit(what_ifs=(AS_IS, "racks-told")), row(live, cluster({"t": [[1], [2]]})))
    assert shares(found, AS_IS) == {"local": 0, "all": 2}
    assert shares(found, "racks-told") == {"local": 2, "all": 2}


def test_a_selector_on_all_brokers_makes_followers_serve() -> None:
    live = group(member("m", "b", {"t": (0,)}))
    one = row(live, cluster({"t": [[1, 2]]}, brokers("ab", selector=None)))
    found = judged(FleetAudit(what_ifs=(AS_IS, "any-replica")), one)
    assert [shares(found, name)["local"] for name in (AS_IS, "any-replica")] == [0, 1]


def test_members_are_spread_over_racks_and_copies_added_in_racks_that_have_none() -> None:
    live = group(
        *(member(name, rack, {"t": ()}) for name, rack in zip("mnopq", ["a", "a", "a", None, "b"], strict=True))
    )
    one = row(live, cluster({"t": [[1], [2, 1], [3, 2, 1], [4]]}, brokers("abca")))
    homes = {m.id: m.rack for m in WHAT_IFS["members-even"](one).snapshot.group.members}
    assert homes == {"m": "a", "n": "a", "o": "b", "p": "c", "q": "b"}
    more = WHAT_IFS["one-more-replica"](one)
    assert [p.replicas for p in more.snapshot.group.topology.topics["t"]] == [(1, 3), (2, 1, 3), (3, 2, 1), (4, 2)]
    assert more.cluster.in_sync["t"][0] == (1, 3)


def test_what_would_gain_most_is_told_on_request() -> None:
    there = cluster({"t": [[1], [2]]})
    live = group(member("m1", "b", {"t": (0,)}), member("m2", "a", {"t": (1,)}))
    one = row(live, there, Rates({TopicPartition("t", 0): 5.0}))
    assert {part["take"] is None for part in judged(FleetAudit(), one)} == {True}
    best = [part for part in judged(FleetAudit(advise=True), one) if part["best"]]
    assert {"cooperative" in part["take"][0] for part in best} == {True}
    assert counted(()).local == 0


def test_an_unknown_change_is_named() -> None:
    with pytest.raises(ConfigError, match="as-is, racks-told"):
        FleetAudit(what_ifs=("rf",))


def test_files_are_read_a_few_groups_at_a_time(tmp_path: Path) -> None:
    there = cluster({"t": [[1], [2]]})
    live = [group(member("m", "a", {"t": (0, 1)}), name=f"g{number:03}") for number in range(120)]
    shots = Shots(there, tuple(snapshot(one, there.topology, RackMap()) for one in live))
    save(tmp_path / "groups-1.parquet", TAKEN, shots, rates({("t", 0): 3.0}))
    batches = list(load(tmp_path))
    assert [batch.num_rows for batch in batches] == [50, 50, 20]
    assert [of.snapshot.live.name for batch in batches for of in read(batch)] == [one.name for one in live]
    count = keep(tmp_path / "found", FleetAudit()(batches))
    assert pq.read_table(tmp_path / "found").num_rows == count == 120 * 4 * 2
    with pytest.raises(ConfigError, match="is not empty"):
        keep(tmp_path / "found", [])


def test_what_is_no_snapshot_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no Parquet files"):
        next(load(tmp_path))
    (tmp_path / "x.parquet").write_text("x")
    with pytest.raises(ConfigError, match=r"cannot read .*x\.parquet"):
        next(load(tmp_path))
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    with pytest.raises(ConfigError, match="no groups in it"):
        next(load(tmp_path))
