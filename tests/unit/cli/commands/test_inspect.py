"""What people are shown of live groups; names in it are chosen by others, and shown as they are."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from rackassign.cli.commands.inspect import actions, detail, overview, totals
from rackassign.cli.shared_options import warnings
from rackassign.cli.terminal import plain_line, warn
from rackassign.model import TopicPartition
from rackassign.monitoring import (
    ClusterReport,
    GroupAnalysis,
    Price,
    RackMap,
    ReadRates,
    SkippedGroup,
    SortKey,
    Throughput,
)
from tests.helpers.builders import brokers, cluster, group, inspected, member, rates

STEERING = "\x1b[31mred\x1b]0;owned\x07[bold]\r\n"


def survey(name: str, *, measured: bool = True) -> ClusterReport:
    there = cluster({name: [[1], [2], [3]]}, brokers(f"{rack}{name}" for rack in "abc"))  # type: ignore[arg-type]
    known = rates({(name, p): 1000.0 for p in range(3)}) if measured else Throughput()
    live = group(
        member("m1", f"a{name}", {name: [1, 2]}, client_id=name),
        member("m2", None, {name: [0]}, client_id=f"{name}2", host=name),
        name=name,
        strategy=name,
    )
    return ClusterReport(there, (inspected(live, there, known),), (SkippedGroup(name, name),), known)


def shown(seen: ClusterReport) -> str:
    console = Console(file=io.StringIO(), width=200, force_terminal=False, highlight=False)
    console.print(overview(seen, Price(), width=200, wide=True))
    console.print(detail(seen.inspections[0], seen, Price()))
    console.print(actions(seen, Price(), width=200))
    console.print(plain_line(totals(seen, Price())))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_all_that_was_found_is_shown() -> None:
    text = shown(survey("t"))
    for part in (
        "0.0 %",
        "66.7 %",
        "33.3 %",
        "2 kB",
        "if any replica serves",
        "rack not known of t2 on t",
        "what would gain most",
    ):
        assert part in text
    unmeasured = shown(survey("t", measured=False))
    assert "USD" not in unmeasured
    assert "bytes were not measured" in unmeasured


@pytest.mark.parametrize("measured", [True, False])
def test_nothing_steers_the_terminal(capsys: pytest.CaptureFixture[str], *, measured: bool) -> None:
    seen = survey(STEERING, measured=measured)
    text = shown(seen)
    for line in warnings(seen, RackMap({"x": STEERING})):
        warn(line)
    text += capsys.readouterr().err
    assert not set(text) & {"\x1b", "\x07", "\r"}
    assert "[bold]" in text


@pytest.mark.parametrize("name", ["g:key:[red]x", "a\\", "[link=x]y[/link]"])
def test_names_are_shown_as_they_are(name: str) -> None:
    assert name in shown(survey(name))


def test_what_is_not_known_is_a_question_mark_or_a_range_and_never_nothing() -> None:
    there = cluster({"t": [[1], [2], [3]]}, brokers("abc"))
    known = rates({("t", p): 1e6 for p in range(3)})
    stock = group(*(member(f"m{p}", None, {"t": [p]}, client_id=f"app-{p}") for p in range(3)), name="stock")
    seen = ClusterReport(there, (inspected(stock, there, known),), (), known)
    row = next(line for line in shown(seen).splitlines() if "stock" in line)
    usd = f"{Price().monthly(3e6):,.0f}"
    money = [f"≤{usd}", f"≤{usd}", "≤3", "MB", "?"]
    assert row.split() == ["stock", *money, "?", "?", "?", "100.0", "%", "0", "3", "range", "written"]
    text = " ".join(shown(seen).split())
    advice = "state the racks of app-0, app-1, app-2 in a rack map (--rack-map FILE): what they could read locally is"
    assert f"{advice} unknown ≤{usd} ≤3 MB ≤3" in text
    mapped = inspected(stock, there, known, RackMap({"app-0": "b", "app-1": "c", "app-2": "a"}))
    row = next(line for line in shown(ClusterReport(there, (mapped,), (), known)).splitlines() if "stock" in line)
    shares = ["0.0", "%", "100.0", "%", "100.0", "%", "0.0", "%"]
    assert row.split() == ["stock", usd, usd, "3", "MB", "?", *shares, "3", "3", "range", "written"]


def test_sums_without_all_partitions_are_lower_bounds() -> None:
    there, known = cluster({"t": [[1], [2], [3]]}), rates({("t", 0): 1e6})
    live = group(member("m", "b", {"t": [0, 1]}), member("n", "a", {"t": [2]}))
    seen = ClusterReport(there, (inspected(live, there, known),), (), known)
    usd = f"≥{Price().monthly(1e6):.2f}"
    silent = inspected(group(member("m", None, {"t": [0, 1]}), member("n", None, {"t": [2]})), there, known)
    # Neither a lower nor an upper bound is known.
    assert "≤" not in totals(ClusterReport(there, (silent,), (), known), Price())
    assert f"≥1 MB/s across racks, {usd} USD a month; rackassign would save {usd} of it;" in totals(seen, Price())


def rendered(seen: ClusterReport, *, width: int, wide: bool = False) -> list[str]:
    console = Console(file=io.StringIO(), width=10_000 if wide else width)
    console.print(overview(seen, Price(), width=width, wide=wide))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


LONG = "orders-enrichment.production.eu-west-1.team-payments"


@pytest.mark.parametrize("measured", [True, False])
def test_in_eighty_columns_each_group_has_one_row_and_a_name_that_can_be_told_from_others(*, measured: bool) -> None:
    there = cluster({"t": [[1], [2], [3]]}, brokers("abc"))
    known = rates({("t", p): 123.45e6 for p in range(3)}) if measured else Throughput()
    groups = [
        inspected(group(member("m", rack, {"t": [0, 1, 2]}), name=LONG + end), there, known)
        for end, rack in (("-a", "a"), ("-b", None))
    ]
    # Each letter of this name takes two columns.
    groups.append(inspected(group(member("m", "a", {"t": [0, 1, 2]}), name="注文" * 20), there, known))
    lines = rendered(ClusterReport(there, tuple(groups), (), known), width=80)
    assert max(map(cell_len, lines)) <= 80
    ours = [line for line in lines if "orders-" in line]
    assert [line.split()[0][-2:] for line in ours] == ["-a", "-b"]
    assert all(line.split()[0].startswith("orders-") and "…" in line for line in ours)
    if measured:
        # No amount is parted from its unit.
        assert "247 MB" in ours[0]
        assert "≤370 MB" in ours[1]


def test_wide_shows_whole_names_and_all_columns() -> None:
    there, known = cluster({"t": [[1]]}), rates({("t", 0): 1e6})
    seen = ClusterReport(
        there, (inspected(group(member("m", "a", {"t": [0]}), name=LONG * 3), there, known),), (), known
    )
    lines = rendered(seen, width=80, wide=True)
    assert any(LONG * 3 in line for line in lines)
    assert all(title in "".join(lines) for title in ("strategy", "measured by", "members", "moves"))


def test_lag_is_shown_per_group_and_partition_and_what_was_measured_by_it() -> None:
    there = cluster({"t": [[1], [2]]})
    places = [TopicPartition("t", p) for p in (0, 1)]
    reads = ReadRates(
        dict.fromkeys(places, 1000.0), {}, {places[0]: 12_345, places[1]: 55}, frozenset(places), written_s=5e6
    )
    seen = ClusterReport(there, (inspected(group(member("m", "a", {"t": [0, 1]})), there, reads),), (), rates({}))
    text = " ".join(shown(seen).split())
    assert "12.4 k" in text
    assert "lag 12400 records: t-0 12,345, t-1 55" in text
    assert "lag by rack of the reader: a 12,400" in text
    assert "it lags: bytes are computed from committed offsets, and not from what is written" in text
    assert "committed" in text


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("money", ["much", "some", "none"]),
        ("saving", ["some", "much", "none"]),
        ("local", ["much", "some", "none"]),
        ("lag", ["none", "much", "some"]),
        ("name", ["much", "none", "some"]),
    ],
)
def test_groups_are_sorted(by: SortKey, names: list[str]) -> None:
    there = cluster({"t": [[1], [2], [2]]}, brokers("abc"))

    def made(name: str, bytes_s: float, lag: int, **racks: tuple[str, list[int]]) -> GroupAnalysis:
        reads = ReadRates({TopicPartition("t", p): bytes_s for p in range(3)}, {}, {TopicPartition("t", 0): lag})
        members = (member(n, rack, {"t": ids}, "t") for n, (rack, ids) in racks.items())
        return inspected(group(*members, name=name), there, reads)

    much = made("much", 9e6, 5, m1=("c", [0, 1, 2]))
    some = made("some", 1e6, 0, m1=("a", [1]), m2=("b", [0, 2]))
    none = made("none", 5e6, 9, m1=("a", [0]), m2=("b", [1, 2]))
    report = ClusterReport(there, (some, much, none), (), rates({}))
    assert [found.snapshot.live.name for found in report.sorted_by(by).inspections] == names
