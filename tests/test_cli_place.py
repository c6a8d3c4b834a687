"""`rackassign place` shows placers side by side, without a cluster."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from rackassign.cli.app import run

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
    assert run(["place", file, "--compare", "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["placers"]) == ["optimal", "kafka", "striped"]
    assert found["now"]["sharing"] == found["now"]["gone_with_rack"] == 9
    exact = found["placers"]["optimal"]
    assert (exact["sharing"], exact["replicas_per_broker"], exact["leaders_per_broker"]) == (0, 1.0, 1.0)
    # What a KRaft controller does here: three of nine brokers lead all.
    assert found["placers"]["striped"]["leaders_per_broker"] == 3.0
    assert exact["moved"] == 18
    assert run(["place", file, "--compare"]) == 0
    shown = capsys.readouterr().out
    assert "leaders of a broker, most / mean" in shown
    assert "█" in shown


def test_a_layout_is_read_from_stdin(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(RESONANT)))
    assert run(["place", "--placer", "kafka", "--rf", "2", "--output", "json"]) == 0
    (made,) = json.loads(capsys.readouterr().out)["placers"].values()
    assert {len(replicas) for replicas in made["topics"]["t"]} == {2}


@pytest.mark.parametrize(
    ("layout", "words", "problem"),
    [
        ([], [], "expected an object, got an array of 0"),
        ({"brokers": [{"id": "x"}], "topics": {}}, [], 'brokers[0].id: expected an integer, got "x"'),
        (RESONANT, ["--placer", "nobody"], 'placer "nobody"'),
        (RESONANT, ["--rf", "10"], "10"),
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
    assert run(["place", written(layout, tmp_path), *words]) == 2
    said = capsys.readouterr().err
    assert problem in said
    assert said.count("\n") == 1


def test_a_file_that_is_not_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["place", "/nowhere/layout.json"]) == 2
    assert capsys.readouterr().err == "rackassign: cannot read /nowhere/layout.json: No such file or directory\n"
