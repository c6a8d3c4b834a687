"""The audit of a fleet: rows keep all there is to know of a group, and answers do not depend on how they are dealt.

The audit of a fleet on a small Spark: what it finds and writes is what one process finds.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackassign.errors import ConfigError
from rackassign.fleet import AS_IS, WHAT_IFS, FleetAudit, GroupRow, audit_groups, from_arrow, to_arrow
from rackassign.fleet.aggregate import aggregate
from rackassign.fleet.evaluation import NOW
from rackassign.fleet.evaluation import SCHEMA as RESULTS
from rackassign.fleet.page import page
from rackassign.fleet.schema import SCHEMA
from rackassign.fleet.spark import audit_on_spark
from rackassign.fleet.storage import count, read_results, read_snapshots, write_results, write_snapshot
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
from rackassign.monitoring.traffic import count_locality
from tests.helpers.builders import brokers, cluster, group, member, rates
from tests.helpers.examples import examples
from tests.helpers.kafka.spark_harness import session

TAKEN = datetime(2026, 11, 22, 3, 0, tzinfo=timezone.utc)
RACKS = RackMap(client_ids={"mapped-a": "a", "mapped-*": "b"})


def row(live: GroupDescription, there: ObservedCluster, measured: Throughput | None = None) -> GroupRow:
    return GroupRow(TAKEN, snapshot(live, there.topology, RACKS), there, measured or Throughput())


def batch(*rows: GroupRow) -> Any:
    made = [to_arrow(of.taken, [of.snapshot], of.cluster, of.rates).to_pylist() for of in rows]
    return pa.RecordBatch.from_pylist([one for some in made for one in some], SCHEMA)


def judged(how: FleetAudit, *rows: GroupRow) -> list[dict[str, Any]]:
    return [found for out in audit_groups([batch(*rows)], how) for found in out.to_pylist()]


@st.composite
def fleets(draw: st.DrawFn) -> list[GroupRow]:
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


@settings(deadline=None, max_examples=examples(60))
@given(fleets())
def test_a_row_that_was_written_is_judged_as_the_group_was(rows: list[GroupRow]) -> None:
    for was, back in zip(rows, from_arrow(batch(*rows)), strict=True):
        assert back.taken == TAKEN
        assert back.snapshot.group == was.snapshot.group
        known = was.snapshot.group.topology.topics
        assert back.rates.bytes_s == {p: rate for p, rate in was.rates.bytes_s.items() if p.topic in known}
        then, now = (inspect(of.snapshot, of.cluster, ReadRates(of.rates.bytes_s)) for of in (was, back))
        assert (then.partitions, then.flows, then.reaches, then.actions, then.unassigned) == (
            now.partitions,
            now.flows,
            now.reaches,
            now.actions,
            now.unassigned,
        )


@settings(deadline=None, max_examples=examples(60))
@given(fleets())
def test_what_is_found_is_what_an_inspection_finds(rows: list[GroupRow]) -> None:
    for one in rows:
        seen = inspect(one.snapshot, one.cluster, ReadRates(one.rates.bytes_s))
        # What an inspection says of strategies is the fleet's answer with all known racks reported.
        both = judged(FleetAudit(what_ifs=(AS_IS, "racks-reported")), one)
        found = [part for part in both if (part["what_if"] == AS_IS) == (part["strategy"] == NOW)]
        ways = {NOW: (seen.partitions, seen.flows)} | {r.strategy: (r.partitions, r.flows) for r in seen.reaches}
        assert {part["strategy"] for part in found} <= set(ways)
        # Who has what now is a way of its own, under each change.
        assert {part["strategy"] for part in found if part["best"]} <= {*ways} - {NOW}
        for name, (partitions, flows) in ways.items():
            parts = [part for part in found if part["strategy"] == name]
            assert sum(part["partitions"] for part in parts) == sum(
                (partitions.local, partitions.cross, partitions.unknown)
            )
            assert sum(part["bytes_s"] for part in parts) == pytest.approx(flows.total)
            assert sum(part["unmeasured"] for part in parts) == flows.unmeasured
            usd = Price().monthly(flows.cross)
            assert sum(part["usd_month"] for part in parts) == pytest.approx(usd)


@settings(deadline=None, max_examples=examples(30))
@given(fleets(), st.integers(1, 3))
def test_how_rows_are_dealt_to_batches_plays_no_part(rows: list[GroupRow], size: int) -> None:
    how = FleetAudit(what_ifs=tuple(WHAT_IFS))
    whole = judged(how, *rows)
    parts = [batch(*rows[start : start + size]) for start in range(0, len(rows), size)]
    assert [found for out in audit_groups(parts, how) for found in out.to_pylist()] == whole


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
    found = judged(FleetAudit(what_ifs=(AS_IS, "racks-reported")), row(live, cluster({"t": [[1], [2]]})))
    assert shares(found, AS_IS) == {"local": 0, "all": 2}
    assert shares(found, "racks-reported") == {"local": 2, "all": 2}


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
    homes = {m.id: m.rack for m in WHAT_IFS["members-balanced"](one).snapshot.group.members}
    assert homes == {"m": "a", "n": "a", "o": "b", "p": "c", "q": "b"}
    more = WHAT_IFS["add-replica"](one)
    assert [p.replicas for p in more.snapshot.group.topology.topics["t"]] == [(1, 3), (2, 1, 3), (3, 2, 1), (4, 2)]
    assert more.cluster.in_sync["t"][0] == (1, 3)


def test_members_of_unknown_rack_get_one_and_tell_it() -> None:
    live = group(
        *(member(name, rack, {"t": ()}) for name, rack in zip("mnop", [None, "a", None, None], strict=True)),
        member("mapped-a", None, {"t": ()}),
    )
    given = WHAT_IFS["racks-assumed"](row(live, cluster({"t": [[1], [2]]})))
    assert {m.id: m.rack for m in given.snapshot.group.members} == {
        "mapped-a": "a",
        "n": "a",
        "m": "b",
        "o": "c",
        "p": "b",
    }
    assert given.snapshot.as_leader_sees() == given.snapshot.group
    assert (given.snapshot.unknown, given.snapshot.leaders_only) == ((), frozenset())
    nowhere = row(live, cluster({"t": [[1], [2]]}, brokers([None, None])))
    assert WHAT_IFS["racks-assumed"](nowhere).snapshot.group == nowhere.snapshot.group


def test_one_more_rack_gets_its_share_of_brokers_copies_leaders_and_members() -> None:
    copies = [[1, 3], [4, 2], [2, 3], [3, 1]] * 3
    live = group(*(member(name, rack, {"t": (), "u": ()}) for name, rack in zip("mnopqr", "ababab", strict=True)))
    one = row(live, cluster({"t": copies, "u": [[1], [4], [9]]}, brokers("abab")))
    more = WHAT_IFS["add-rack"](one)
    racks = more.cluster.topology.broker_racks()
    # Broker 9 is nobody's rack, and stays so.
    assert {broker: rack for broker, rack in racks.items() if rack == "new"} == {0: "new", 5: "new"}
    parts = more.snapshot.group.topology.topics["t"]
    assert parts == more.cluster.topology.topics["t"]
    assert sum(racks[broker] == "new" for p in parts for broker in p.replicas) == 24 // 3
    assert sum(racks[p.leader] == "new" for p in parts if p.leader is not None) == 12 // 3
    assert all([racks[broker] for broker in p.replicas].count("new") <= 1 for p in parts)
    assert more.cluster.in_sync["t"] == tuple(p.replicas for p in parts)
    assert [p.leader for p in parts] == [p.replicas[0] for p in parts]
    assert Counter(m.rack for m in more.snapshot.group.members) == {"a": 2, "b": 2, "new": 2}
    assert more.cluster.read_policy == "any-replica"
    again = WHAT_IFS["add-rack"](more)
    assert {*again.cluster.topology.broker_racks().values()} == {"a", "b", "new", "new-2"}


@settings(deadline=None, max_examples=examples(60))
@given(fleets())
def test_changes_lose_nothing(rows: list[GroupRow]) -> None:
    for one in rows:
        for name, change in WHAT_IFS.items():
            changed = change(one)
            was, then = one.snapshot.group, changed.snapshot.group
            assert [(m.id, m.topics, m.owned) for m in then.members] == [(m.id, m.topics, m.owned) for m in was.members]
            assert {t: len(parts) for t, parts in then.topology.topics.items()} == {
                t: len(parts) for t, parts in was.topology.topics.items()
            }
            for topic, parts in then.topology.topics.items():
                for before, after, in_sync in zip(
                    was.topology.topics[topic], parts, changed.cluster.in_sync[topic], strict=True
                ):
                    assert len(after.replicas) - len(before.replicas) in ({0, 1} if name == "add-replica" else {0})
                    assert len(set(after.replicas)) == len(after.replicas)
                    assert {after.leader, *in_sync} <= {*after.replicas}
            if name in {"as-is", "racks-reported", "any-replica"}:
                assert then == was


def test_what_would_gain_most_is_told_on_request() -> None:
    there = cluster({"t": [[1], [2]]})
    live = group(member("m1", "b", {"t": (0,)}), member("m2", "a", {"t": (1,)}))
    one = row(live, there, Throughput({TopicPartition("t", 0): 5.0}))
    assert {part["take"] is None for part in judged(FleetAudit(), one)} == {True}
    best = [part for part in judged(FleetAudit(recommend=True), one) if part["best"]]
    assert {"cooperative" in part["take"][0] for part in best} == {True}
    assert count_locality(()).local == 0


def test_an_unknown_change_is_named() -> None:
    with pytest.raises(ConfigError, match="as-is, racks-reported"):
        FleetAudit(what_ifs=("rf",))


def test_files_are_read_a_few_groups_at_a_time(tmp_path: Path) -> None:
    there = cluster({"t": [[1], [2]]})
    live = [group(member("m", "a", {"t": (0, 1)}), name=f"g{number:03}") for number in range(120)]
    shots = ClusterSnapshot(there, tuple(snapshot(one, there.topology, RackMap()) for one in live))
    write_snapshot(tmp_path / "groups-1.parquet", TAKEN, shots, rates({("t", 0): 3.0}))
    batches = list(read_snapshots(tmp_path))
    assert [batch.num_rows for batch in batches] == [50, 50, 20]
    assert [of.snapshot.live.name for batch in batches for of in from_arrow(batch)] == [one.name for one in live]
    count = write_results(tmp_path / "found", audit_groups(batches, FleetAudit()))
    assert pq.read_table(tmp_path / "found").num_rows == count == 120 * 4 * 2
    with pytest.raises(ConfigError, match="is not empty"):
        write_results(tmp_path / "found", [])


def test_an_audit_that_fails_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    def failing() -> Iterator[Any]:
        live = group(member("m", "a", {"t": (0,)}))
        yield from audit_groups([batch(row(live, cluster({"t": [[1]]})))], FleetAudit())
        raise ConfigError("the next file is broken")

    with pytest.raises(ConfigError, match="the next file is broken"):
        write_results(tmp_path / "found", failing())
    assert list((tmp_path / "found").iterdir()) == []


def saved(file: Path, *names: str, hour: int = 0) -> None:
    there = cluster({"t": [[1], [2]] * 500})
    live = [group(member("m", "a", {"t": range(1000)}), name=name) for name in names]
    shots = ClusterSnapshot(there, tuple(snapshot(one, there.topology, RackMap()) for one in live))
    write_snapshot(file, TAKEN + timedelta(hours=hour), shots, rates({("t", 0): 3.0}))


def test_what_would_count_twice_is_refused(tmp_path: Path) -> None:
    saved(tmp_path / "1.parquet", "g", "h")
    saved(tmp_path / "2.parquet", "g", "h", hour=1)
    # As when Spark has dealt a snapshot to several files.
    saved(tmp_path / "3.parquet", "i")
    assert [b.num_rows for b in read_snapshots(tmp_path)] == [2, 2, 1]
    assert count(tmp_path) == 5
    saved(tmp_path / "4.parquet", "j", "h", hour=1)
    with pytest.raises(ConfigError, match=r'4\.parquet: group "h" at .* was already read'):
        list(read_snapshots(tmp_path))


def test_a_snapshot_of_no_groups_is_one(tmp_path: Path) -> None:
    saved(tmp_path / "1.parquet")
    assert (count(tmp_path), list(audit_groups(read_snapshots(tmp_path), FleetAudit()))) == (0, [])


def test_what_is_no_snapshot_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no Parquet files"):
        next(read_snapshots(tmp_path))
    with pytest.raises(ConfigError, match=r"cannot read .*nowhere: No such file or directory"):
        count(tmp_path / "nowhere")
    (tmp_path / "x.parquet").write_text("x")
    for look in (count, lambda path: next(read_snapshots(path))):
        with pytest.raises(ConfigError, match=r"cannot read .*x\.parquet"):
            look(tmp_path)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    with pytest.raises(ConfigError, match="expected a snapshot as"):
        count(tmp_path)


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_file_is_refused(tmp_path: Path, seed: int) -> None:
    file = tmp_path / "1.parquet"
    saved(file, "g", "h")
    whole, rng = bytearray(file.read_bytes()), random.Random(seed)
    if seed % 4:
        at = rng.randrange(len(whole))
        whole[at] ^= 1 << rng.randrange(8)
    else:
        del whole[rng.randrange(len(whole)) :]
    file.write_bytes(whole)
    with suppress(ConfigError):
        found = [of for out in audit_groups(read_snapshots(file), FleetAudit()) for of in out.to_pylist()]
        # In what nobody reads, as statistics are.
        assert {of["group"] for of in found} == {"g", "h"}


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("group", None, "taken and group must not be null"),
        ("members", None, 'group "g" at 2.*: expected a row of a snapshot'),
        (
            "topics",
            [{"topic": "t", "replicas": [[1]], "in_sync": [], "leaders": [1], "bytes_s": [1.0]}],
            "topic t: replicas",
        ),
        (
            "topics",
            [{"topic": "t", "replicas": [[1]], "in_sync": [[1]], "leaders": [1], "bytes_s": [float("nan")]}],
            "topic t: bytes_s must be finite",
        ),
        ("brokers", [{"id": -7, "rack": "a", "fenced": False, "selector": None, "problem": ""}], "-7"),
    ],
)
def test_a_row_that_nobody_wrote_is_refused(column: str, value: Any, problem: str) -> None:
    (one,) = batch(row(group(member("m", "a", {"t": (0,)})), cluster({"t": [[1]]}))).to_pylist()
    wrong = pa.RecordBatch.from_pylist([{**one, column: value}], SCHEMA)
    with pytest.raises(ConfigError, match=problem):
        list(audit_groups([wrong], FleetAudit()))


SEEN = datetime(2026, 1, 1, 3, 4, 5, 678901, tzinfo=timezone.utc)
GROUPS = 20
HOW = FleetAudit(Price(0.01), tuple(WHAT_IFS), recommend=True)


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with session() as running:
        yield running


def made(name: str, topics: dict[str, int], rng: random.Random) -> GroupDescription:
    racks = ["a", "b", "c", None]
    has: list[dict[str, list[int]]] = [{topic: [] for topic in topics} for _ in range(3)]
    for topic, size in topics.items():
        for i in range(size):
            rng.choice(has)[topic].append(i)
    return group(*(member(f"m{i}", rng.choice(racks), mine) for i, mine in enumerate(has)), name=name)


@pytest.fixture
def snapshots(tmp_path: Path) -> Path:
    rng = random.Random(5)
    counts = {"t": 7, "u": 3, "v": 12}
    known = brokers(["a", "b", "c", None])
    there = cluster({name: [rng.sample([1, 2, 3, 4], 2) for _ in range(of)] for name, of in counts.items()}, known)
    some = rates(
        {(name, i): rng.random() * 1e6 for name, of in counts.items() for i in range(of) if rng.random() < 0.8}
    )
    (tmp_path / "seen").mkdir()
    for hour in range(2):
        groups = (made(f"g{number}", counts, rng) for number in range(GROUPS))
        shots = ClusterSnapshot(there, tuple(snapshot(each, there.topology, RackMap()) for each in groups))
        write_snapshot(tmp_path / "seen" / f"{hour}.parquet", SEEN + timedelta(hours=hour), shots, some)
    return tmp_path / "seen"


@pytest.mark.long
def test_spark_finds_what_one_process_finds(spark: Any, snapshots: Path, tmp_path: Path) -> None:
    ours = [row for batch in audit_groups(read_snapshots(snapshots), HOW) for row in batch.to_pylist()]
    audit_on_spark(spark, str(snapshots), HOW).repartition(3).write.parquet(str(tmp_path / "found"))
    theirs = [row for batch in read_results(tmp_path / "found") for row in batch.to_pylist()]

    def key(row: dict[str, Any]) -> list[str]:
        return [repr(row[name]) for name in RESULTS.names]

    assert sorted(theirs, key=key) == sorted(ours, key=key)
    fleet = aggregate(read_results(tmp_path / "found"))
    assert {of.name: of.taken for of in fleet.groups} == {f"g{n}": SEEN + timedelta(hours=1) for n in range(GROUPS)}
    assert f'<b id="count">{GROUPS}</b>' in page(tmp_path / "found", Price(0.01))
