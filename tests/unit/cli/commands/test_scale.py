"""`rackassign scale`: a file or a group of a cluster, as a table and as JSON, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from rackassign.cli.commands import scale
from rackassign.monitoring import ClusterReport, GroupAnalysis, ReadRates
from tests.helpers.builders import brokers, cluster, group, inspected, member, rates
from tests.helpers.json_schemas import parsed
from tests.unit.cli.conftest import SCENARIO, Cli

EVEN = {"t": [[at % 3 + 1, (at + 1) % 3 + 1] for at in range(12)]}


def test_a_scenario_is_scaled_without_a_cluster(cli: Cli) -> None:
    scenario = {**SCENARIO, "topics": {"t": [[2], [1], [1], [1], [2, 1]]}}
    ended = cli("scale", "-", "--output", "json", given=json.dumps(scenario))
    assert (ended.code, ended.err) == (0, "")
    found: dict[str, Any] = parsed("scale", ended.out)
    assert found["now"] == {
        "members": 2,
        "by_rack": {"a": 1, "b": 1},
        "partitions": [2, 3],
        "local": 5,
        "cross": 0,
        "unknown": 0,
        "cross_usd_per_month": None,
    }
    assert [row["members"] for row in found["counts"]] == list(range(1, 9))
    assert (found["step_up"]["by_rack"], found["step_down"]["members"]) == ({"a": 2, "b": 1}, 2)
    table = cli("scale", "-", given=json.dumps(scenario))
    lines = [line.split() for line in table.out.splitlines()]
    assert ["now", "1", "1", "2-3", "100.0", "%"] in lines
    assert "next step up: 3 members (a 2, b 1), at most 2 partitions each, instead of 3 now" in table.out
    assert "any number of members" not in table.out
    led = cli("scale", "-", "--locality", "leader", "--output", "json", given=json.dumps(scenario))
    assert json.loads(led.out)["step_up"]["by_rack"] == {"a": 2, "b": 1}


def test_that_racks_of_members_do_not_matter_comes_first(cli: Cli) -> None:
    scenario = {**SCENARIO, "topics": {"t": [[2, 1], [1, 2]]}}
    ended = cli("scale", "-", given=json.dumps(scenario))
    assert ended.out.startswith(
        "any number of members in any of a, b reads locally: each partition has a replica in each"
    )
    assert "no step up: a further member would have no partition to read" in ended.out
    led = cli("scale", "-", "--locality", "leader", given=json.dumps(scenario))
    assert led.out.startswith("with a replica selector on all brokers any number of members in any of a, b")


@pytest.mark.parametrize(
    ("words", "given", "why"),
    [
        ((), "", "give either a FILE with a scenario, or --bootstrap-server and --group"),
        (("-", "--group", "g", "--bootstrap-server", "k:9092"), "", "give either a FILE"),
        (("--group", "g"), "", "give either a FILE"),
        (("-",), "{}", "-: "),
        (("-",), json.dumps({**SCENARIO, "members": []}), "members, all of which subscribe to the same topics"),
        (("-", "--locality", "near"), json.dumps(SCENARIO), "locality must be one of any-replica, leader"),
    ],
)
def test_what_is_refused(cli: Cli, words: tuple[str, ...], given: str, why: str) -> None:
    ended = cli("scale", *words, given=given)
    assert (ended.code, ended.out) == (2, "")
    assert why in ended.err


def scaled(cli: Cli, monkeypatch: pytest.MonkeyPatch, survey: ClusterReport, *words: str) -> str:
    """Return what is shown of a group of a cluster."""

    @contextmanager
    def client(*_: str) -> Iterator[None]:
        yield

    monkeypatch.setattr(scale, "admin_client", client)
    monkeypatch.setattr(scale, "GroupCollector", lambda *_: SimpleNamespace(report=lambda *_, **__: survey))
    ended = cli("scale", "--bootstrap-server", "k:9092", "--group", "g", *words)
    assert ended.code == 0, ended.err
    return ended.out


@pytest.mark.parametrize(
    ("kind", "strategy", "line"),
    [
        ("classic", "cooperative-sticky", ""),
        ("classic", "range", "this holds with rackassign's cooperative-sticky or sticky; the strategy is range now"),
        ("consumer", "rackassign", ""),
        ("consumer", "uniform", "this holds if the broker plug-in assigns; the assignor of the broker is uniform now"),
    ],
)
def test_a_live_group_is_scaled_with_what_it_reads(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, kind: str, strategy: str, line: str
) -> None:
    there, known = cluster(EVEN), rates({("t", at): 1e6 for at in range(12)})
    live = group(
        *(member(f"m{at}", "a", {"t": range(6 * at, 6 * at + 6)}) for at in (0, 1)), kind=kind, strategy=strategy
    )
    survey = ClusterReport(there, (inspected(live, there, known),), (), known)
    found = json.loads(scaled(cli, monkeypatch, survey, "--output", "json", "--price-per-gb", "0.01"))
    # 4 of 12 partitions have no replica in the rack of both members.
    assert (found["now"]["cross"], found["now"]["cross_usd_per_month"]) == (4, pytest.approx(4e-3 * 0.01 * 2_628_000))
    assert (found["counts"][1]["by_rack"], found["counts"][1]["cross"]) == ({"a": 1, "b": 1, "c": 0}, 0)
    text = scaled(cli, monkeypatch, survey)
    assert "USD a month" in text
    assert ("this holds" in text, line in text) == (bool(line), True)


def test_without_a_selector_leaders_count_and_what_was_not_measured_has_no_price(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = cluster({"t": [[1, 2, 3], [2, 1, 3], [2, 3, 1]]}, brokers(selector=""))
    live = group(member("m", "b", {"t": [0, 1, 2]}), member("n", None, {}, "t", client_id="n"))
    survey = ClusterReport(there, (inspected(live, there, ReadRates()),), (), rates({}))
    found: GroupAnalysis = survey.inspections[0]
    assert found.read_policy == "leader"
    text = scaled(cli, monkeypatch, survey)
    assert text.startswith(
        "with a replica selector on all brokers any number of members in any of a, b would read locally"
    )
    assert "rack not known of n" in text
