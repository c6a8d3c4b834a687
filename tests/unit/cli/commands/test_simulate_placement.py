"""`rackassign place` without a cluster, and what the other commands of placement print and refuse without one."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rackassign.cli.app import run
from rackassign.cli.commands.placement import show_new
from rackassign.cli.layouts import show_rest
from rackassign.model import TopicPartition
from rackassign.placement.create_topic import CreateResult, PolicyPlacement
from rackassign.placement.layout import Layout
from rackassign.reassignment import ReassignmentPlan
from tests.helpers.json_schemas import parsed

RESONANT = {
    "brokers": [{"id": i, "rack": rack} for i, rack in enumerate("aaabbbccc", 1)],
    "topics": {"t": [[1, 2, 3]] * 9},
}


def written(layout: Any, tmp_path: Path) -> str:
    file = tmp_path / "layout.json"
    file.write_text(json.dumps(layout), "utf-8")
    return str(file)


def test_placers_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(RESONANT, tmp_path)
    assert run(["simulate-placement", file, "--compare", "--output", "json"]) == 0
    found = parsed("simulate-placement", capsys.readouterr().out)
    assert list(found["placers"]) == ["optimal", "kafka", "striped"]
    assert found["now"]["sharing"] == found["now"]["gone_with_rack"] == 9
    exact = found["placers"]["optimal"]
    assert (exact["sharing"], exact["replicas_per_broker"], exact["leaders_per_broker"]) == (0, 1.0, 1.0)
    # What a KRaft controller does here: three of nine brokers lead all.
    assert found["placers"]["striped"]["leaders_per_broker"] == 3.0
    assert exact["moved"] == 18
    assert run(["simulate-placement", file, "--compare"]) == 0
    shown = capsys.readouterr().out
    assert "leaders of a broker, most / mean" in shown
    assert "█" in shown


def test_a_layout_is_read_from_stdin(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(RESONANT).encode())))
    assert run(["simulate-placement", "--placer", "kafka", "--replication-factor", "2", "--output", "json"]) == 0
    (made,) = parsed("simulate-placement", capsys.readouterr().out)["placers"].values()
    assert {len(replicas) for replicas in made["topics"]["t"]} == {2}


def test_names_are_shown_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = {"brokers": [{"id": 1, "rack": "[/x]"}, {"id": 2, "rack": "b"}], "topics": {"[/t]": [[1, 2]]}}
    assert run(["simulate-placement", written(odd, tmp_path)]) == 0
    assert "[/x]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ["create-topic", "t", "--add-partitions", "1", "--config", "a=b"],
            "--partitions, --config and --allow-placeholders are for a new topic",
        ),
        (
            ["create-topic", "t", "--add-partitions", "1", "--partitions", "2"],
            "--partitions, --config and --allow-placeholders are for a new topic",
        ),
        (
            ["create-topic", "t", "--add-partitions", "1", "--allow-placeholders"],
            "--partitions, --config and --allow-placeholders are for a new topic",
        ),
        (["create-topic", "t", "--add-partitions", "0"], "Invalid value for '--add-partitions'"),
        (["create-topic", "t", "--config", "a=b", "--config", "a=c"], 'config: "a" is given twice'),
        (["create-topic", "t", "--config", "a"], "config: expected KEY=VALUE"),
        (["balance-leaders", "--balance-by", "x"], 'balance-by: expected broker, rack, mixed, got "x"'),
    ],
)
def test_what_cannot_be_asked_for_is_said_before_anybody_is_asked(
    words: list[str],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run([*words, "--bootstrap-server", "127.0.0.1:1"]) == 2
    assert capsys.readouterr().err.startswith(f"rackassign: {problem}")
    assert list(tmp_path.iterdir()) == []


def shown(show: Callable[[Console], None]) -> str:
    console = Console(file=io.StringIO(), width=200, highlight=False, markup=False)
    show(console)
    text = console.file
    assert isinstance(text, io.StringIO)
    return text.getvalue()


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (((1, -1),), "t: 1 partition made, 1 of them with replicas missing; 1 replica waits for a broker: "),
        (((1, -1), (2, -1)), "t: 2 partitions made, 2 of them with replicas missing; 2 replicas wait for a broker: "),
    ],
)
def test_one_is_not_told_as_many(rows: tuple[tuple[int, ...], ...], told: str) -> None:
    new = CreateResult("t", 0, PolicyPlacement(rows), 1)
    assert told in shown(lambda console: show_new(new, console, made=True))


def test_what_is_left_out_and_what_is_doubted_is_shown_whatever_changes() -> None:
    layout = Layout((), {})
    places = {TopicPartition("[/t]", 0): "is being reassigned"}
    waiting, over = {TopicPartition("u", 0): (1, -1)}, frozenset({TopicPartition("u", 1)})
    planned = ReassignmentPlan(layout, layout, {}, waiting, places, 0, 0, ("of [b]that[/b]",), over)
    assert shown(lambda console: show_rest(planned, console)).splitlines() == [
        "left out: [/t]-0: is being reassigned",
        "1 replica waits for a broker that can take it",
        "1 partition waits for a broker no longer",
        "not proven optimal: of [b]that[/b]",
    ]


@pytest.mark.parametrize(
    ("layout", "words", "problem"),
    [
        ([], [], "expected an object, got an array of 0"),
        ({"brokers": [{"id": "x"}], "topics": {}}, [], 'brokers[0].id: expected an integer, got "x"'),
        (RESONANT, ["--placer", "nobody"], 'placer "nobody"'),
        (RESONANT, ["--replication-factor", "10"], "10"),
        (
            {**RESONANT, "topics": {"t": [[1], [1, 2]]}},
            ["--placer", "kafka"],
            "its partitions differ in their replicas",
        ),
    ],
)
def test_what_cannot_be_placed_is_said(
    layout: Any, words: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate-placement", written(layout, tmp_path), *words]) == 2
    said = capsys.readouterr().err
    assert problem in said
    assert said.count("\n") == 1


def test_a_file_that_is_not_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate-placement", "/nowhere/layout.json"]) == 2
    assert capsys.readouterr().err == "rackassign: cannot read /nowhere/layout.json: No such file or directory\n"
