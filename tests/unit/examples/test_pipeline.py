"""The example of a pipeline, as far as it needs neither brokers nor Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from examples.pipeline.__main__ import make_anew
from examples.pipeline.counters import Counter, Who, increments
from examples.pipeline.page import Saving, Sums, costs, headline, page
from examples.pipeline.traffic import PARTITIONS, REPLICAS
from rackassign.clients.fetch_metrics import RackTraffic, Traffic
from rackassign.monitoring import Price

NOTHING = RackTraffic("a", {})
SOME = RackTraffic("a", {"t": {"a": Traffic(100, 1), None: Traffic(50, 2)}})
MORE = RackTraffic("a", {"t": {"a": Traffic(300, 3), None: Traffic(50, 2)}, "u": {"b": Traffic(7, 1)}})

A_MONTH = 730 * 3600
SAVING = Saving("g", "range", Sums(2e6, 0), Sums(1.5e6, 0.5e6), Sums(1 / 3, 0.75), Price())


def test_only_what_is_new_is_published() -> None:
    assert increments(SOME, SOME) == []
    assert increments(SOME, MORE) == [
        {"topic": "t", "rack": "a", "bytes": 200, "records": 2},
        {"topic": "u", "rack": "b", "bytes": 7, "records": 1},
    ]


def test_messages_of_a_consumer_add_up_to_what_it_has_read() -> None:
    counter = Counter(Who("g", "before", "g-before-a", "a"), 1000, NOTHING)
    said = [json.loads(counter.message(taken, now)) for taken, now in ((2000, SOME), (2500, SOME), (3000, MORE))]
    assert [(each["sequence"], each["since"], each["taken"]) for each in said] == [
        (0, 1000, 2000),
        (1, 2000, 2500),
        (2, 2500, 3000),
    ]
    assert {each["member"] for each in said} == {"g-before-a"}
    assert sum(read["bytes"] for each in said for read in each["reads"]) == 357


def test_savings_are_what_no_longer_crosses_racks() -> None:
    assert SAVING.predicted_usd == pytest.approx(2e6 * A_MONTH / 1e9 * 0.02)
    assert SAVING.measured_usd == pytest.approx(1e6 * A_MONTH / 1e9 * 0.02)
    assert headline([SAVING, SAVING]) == ("210 USD", "105 USD")


def test_costs_are_of_what_crosses_racks_before_and_after() -> None:
    assert SAVING.cost.before == pytest.approx(1.5e6 * A_MONTH / 1e9 * 0.02)
    assert SAVING.cost.after == pytest.approx(0.5e6 * A_MONTH / 1e9 * 0.02)
    assert costs([SAVING, SAVING]) == ("158 USD", "52.56 USD")
    shown = page([SAVING, SAVING], 0)
    assert '<b class="figure">158 USD</b>a month across racks, measured before' in shown
    assert '<b class="figure">52.56 USD</b>a month across racks, measured with rackassign' in shown
    assert shown.count("78.84 → 26.28 USD") == 2


def test_a_name_stays_a_name_on_the_page() -> None:
    shown = page([replace(SAVING, group="<script>{0}")], 4)
    assert "<script" not in shown
    assert "&lt;script&gt;{0}" in shown
    assert "2 MB/s → 0 B/s" in shown
    assert "33.3% → 75.0%" in shown
    assert "4 messages could not be used" in shown
    assert "could not be used" not in page([SAVING], 0)


def test_replicas_lie_in_two_racks_each_and_leaders_in_all() -> None:
    assert len(REPLICAS) == PARTITIONS
    assert {len(set(row)) for row in REPLICAS} == {2}
    assert [sum(row[0] == broker for row in REPLICAS) for broker in (1, 2, 3)] == [3, 3, 3]


def test_only_results_of_its_own_are_replaced(tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    make_anew(ours)
    (ours / "page.html").touch()
    make_anew(ours)
    assert not (ours / "page.html").exists()
    (tmp_path / "somebody's").touch()
    with pytest.raises(SystemExit, match="not empty"):
        make_anew(tmp_path)
