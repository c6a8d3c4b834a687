"""`rackassign estimate`: the figures of the README and of the documentation, and what it refuses."""

from __future__ import annotations

import re
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from rackassign.cli.app import run
from rackassign.cli.commands.cluster import striped
from tests.helpers.json_schemas import parsed

ROOT = Path(__file__).parents[4]


def estimated(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert run(["estimate", "--gb-per-day", "1000", "--output", "json", *words]) == 0
    found: dict[str, Any] = parsed("estimate", capsys.readouterr().out)
    return found


def shares(capsys: pytest.CaptureFixture[str], consumers: str, rf: int) -> dict[tuple[bool, str], float]:
    rows = estimated(capsys, "--consumers", consumers, "--replication-factor", str(rf))["estimates"]
    return {(row["rackassign"], row["reads"]): row["local"] for row in rows}


def percent(text: str) -> float:
    found = re.search(r"([\d.]+) %", text)
    assert found is not None, text
    return float(found[1])


def documented(file: str, columns: int) -> list[list[str]]:
    """Return the rows of a table, by its first column, the RF, and the number of columns."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (ROOT / file).read_text("utf-8").splitlines()
        if re.match(r"\| \d", line)
    ]
    return [row for row in rows if len(row) == columns and row[0].isdigit()]


CONSUMERS = {"one per rack": "1,1,1", "all in one rack": "3,0,0"}
"""Those of the README, which are in three racks."""


@pytest.mark.parametrize("row", documented("README.md", 4), ids=" ".join)
def test_the_table_of_the_readme(row: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    rf, who, without, ours = row
    computed = shares(capsys, CONSUMERS[who], int(rf))
    assert round(100 * computed[False, "any-replica"], 1) == percent(without)
    assert round(100 * computed[True, "any-replica"], 1) == percent(ours)


def test_there_are_tables() -> None:
    assert len(documented("README.md", 4)) == 4
    assert len(documented("docs/explanation/when-it-helps.md", 6)) >= 17


@pytest.mark.parametrize("row", documented("docs/explanation/when-it-helps.md", 6), ids=" ".join)
def test_the_table_of_the_page(row: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    rf, racks, who, without, _, ours = row
    consumers = ",".join(["1"] * int(racks)) if who == "1 in each" else who.replace(" ", "")
    computed = shares(capsys, consumers, int(rf))
    _, mean, _ = re.findall(r"[\d.]+", without)
    assert round(100 * computed[False, "any-replica"], 1) == float(mean)
    assert round(100 * computed[True, "any-replica"], 1) == percent(ours)
    # The page and the README state it for consumers that read from leaders.
    alone = shares(capsys, consumers, 1)
    for with_rackassign in (False, True):
        assert computed[with_rackassign, "leader"] == pytest.approx(alone[with_rackassign, "any-replica"])


@pytest.mark.parametrize(("consumers", "rf", "partitions"), [((2, 1, 1), 2, 7), ((1, 0, 3), 1, 5), ((1, 1), 1, 3)])
def test_the_mean_over_all_orders(
    consumers: tuple[int, ...], rf: int, partitions: int, capsys: pytest.CaptureFixture[str]
) -> None:
    zones = [zone for zone, count in enumerate(consumers, 1) for _ in range(count)]
    replicas = striped(partitions, rf, len(consumers))
    local, orders = 0, 0
    for order in permutations(zones):
        each, more = divmod(partitions, len(order))
        # Kafka's range: the first members have one more.
        readers = [zone for place, zone in enumerate(order) for _ in range(each + (place < more))]
        local += sum(reader in ids for reader, ids in zip(readers, replicas, strict=True))
        orders += 1
    words = ["--consumers", ",".join(map(str, consumers)), "--replication-factor", str(rf)]
    rows = estimated(capsys, *words, "--partitions", str(partitions))["estimates"]
    mean = next(row["local"] for row in rows if not row["rackassign"] and row["reads"] == "any-replica")
    assert mean == pytest.approx(local / orders / partitions)


def test_money(capsys: pytest.CaptureFixture[str]) -> None:
    found = estimated(capsys, "--replication-factor", "2", "--price-per-gb", "0.03")
    without = next(r for r in found["estimates"] if not r["rackassign"] and r["reads"] == "any-replica")
    assert found["usd_per_gb"] == 0.03
    assert without["gb_per_day_across_zones"] == pytest.approx(1000 / 3)
    assert without["usd_per_month"] == pytest.approx(1000 / 3 * 730 / 24 * 0.03)


def test_without_follower_fetching_there_are_leaders_alone(capsys: pytest.CaptureFixture[str]) -> None:
    found = estimated(capsys, "--no-follower-fetching")["estimates"]
    assert [(row["rackassign"], row["reads"]) for row in found] == [(False, "leader"), (True, "leader")]
    assert [row["local"] for row in found] == [pytest.approx(1 / 3), 1.0]


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        (["--replication-factor", "3"], "You do not need rackassign"),
        (["--consumers", "3,0,0", "--replication-factor", "2"], "No assignment can help"),
        (["--replication-factor", "2"], "in their zone than the best without it, 203 USD a month."),
        (
            ["--consumers", "1,1,0", "--replication-factor", "1"],
            "33.3% cross because zones without consumers",
        ),
        (
            ["--consumers", "1", "--replication-factor", "1", "--no-follower-fetching"],
            "You do not need rackassign: every assignor reads locally.",
        ),
        (["--consumers", "2,1,1", "--replication-factor", "1"], "The other 16.7% cross"),
        # One zone is empty, and each partition has a replica in another.
        (["--consumers", "8,1,0", "--replication-factor", "2"], "22.2% cross because the consumers are not spread"),
        (
            ["--replication-factor", "2", "--cloud", "azure"],
            "in their zone than the best without it, 0 USD a month.",
        ),
    ],
)
def test_what_follows_is_stated(words: list[str], verdict: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", "--gb-per-day", "1000", *words]) == 0
    assert verdict in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--gb-per-day", "-1"], "--gb-per-day: expected 0 or more, and at most 1e+12, got -1.0"),
        (["--gb-per-day", "1e308"], "at most 1e+12"),
        (["--gb-per-day", "1", "--consumers", ",".join(["1"] * 101)], "in at most 100 zones"),
        (["--gb-per-day", "nan"], "--gb-per-day: expected 0 or more"),
        (["--gb-per-day", "1", "--consumers", "a,b"], "--consumers: expected the consumers of each zone"),
        (["--gb-per-day", "1", "--consumers", "0,0"], "--consumers: expected the consumers of each zone"),
        (["--gb-per-day", "1", "--consumers", "2,-1"], "--consumers: expected the consumers of each zone"),
        (["--gb-per-day", "1", "--consumers", "9999999"], "at most 10000"),
        (["--gb-per-day", "1", "--replication-factor", "4"], "--replication-factor: expected 1 to 3, the number of"),
        (["--gb-per-day", "1", "--replication-factor", "0"], "--replication-factor: expected 1 to 3"),
        (["--gb-per-day", "1", "--consumers", "1,1"], "got 3 (the default)"),
        (["--gb-per-day", "1", "--partitions", "0"], "--partitions: expected 1 to 100000, got 0"),
        (["--gb-per-day", "1", "--cloud", "moon"], "cloud must be one of aws"),
        (["--gb-per-day", "1", "--output", "xml"], "output must be one of table, json"),
        ([], "Missing option '--gb-per-day'"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["estimate", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert error in captured.err
    assert captured.err.count("\n") == 1


def test_a_share_of_nearly_all_is_not_shown_as_all(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--consumers", "100,100,98", "--partitions", "10000", "--replication-factor", "1"]
    assert run(["estimate", "--gb-per-day", "1000000", *few]) == 0
    shown = capsys.readouterr().out
    # A hundred GB a day cross.
    assert shown.count(" >99.9% ") == 2
    assert "100.0%" not in shown
    assert "The other <0.1% cross because the consumers are not spread evenly" in shown
