"""What people are shown of live groups; names in it are chosen by others, and shown as they are."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from rackassign.cli.group_options import warnings
from rackassign.cli.output import plain_text, warn
from rackassign.cli.render.inspection import actions, detail, overview, totals
from rackassign.monitoring import ClusterReport, Price, RackMap, SkippedGroup, Throughput
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
    console.print(overview(seen, Price()))
    console.print(detail(seen.inspections[0], seen, Price()))
    console.print(actions(seen, Price()))
    console.print(plain_text(totals(seen, Price())))
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
    assert row.split() == ["stock", "3", "?", "?", "100.0", "%", "≤3", "MB", f"≤{usd}", "?", "0"]
    text = " ".join(shown(seen).split())
    assert (
        f"state the racks of app-0, app-1, app-2 in a rack map (--rack-map FILE), or set client.rack ≤3 ≤3 MB ≤{usd}"
        in text
    )
    mapped = inspected(stock, there, known, RackMap({"app-0": "b", "app-1": "c", "app-2": "a"}))
    row = next(line for line in shown(ClusterReport(there, (mapped,), (), known)).splitlines() if "stock" in line)
    assert row.split() == ["stock", "3", "0.0", "%", "100.0", "%", "0.0", "%", "3", "MB", usd, "100.0", "%", "3"]


def test_overview_fits_into_eighty_columns() -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(overview(survey("orders"), Price()))
    file = console.file
    assert isinstance(file, io.StringIO)
    assert "members" in file.getvalue()
    assert "unknown" in file.getvalue()
    assert "…" not in file.getvalue()
