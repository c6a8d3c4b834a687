"""Names of others in tables, texts and errors: one line each, and nothing that a terminal obeys."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from rackassign.cli import ExitCode
from rackassign.cli.app import run
from rackassign.cli.terminal import plain_line, plain_lines, warn
from rackassign.text import strip_control_chars

NAME = "größe\nsecond\x1b[31m\t[b]"
SHOWN = r"größe\nsecond\x1b[31m\t[b]"
TOO_LONG = "a" * 300
HOSTILE = ["a\nb", "a\rb", "a\r\nb", "a\x0bb", "a\x85b", "a\u2028b", "a\u202eb", "a\x1b]0;b\x07", "a\ud800"]


def printed(*cells: object) -> list[str]:
    table = Table("column", show_header=False)
    for cell in cells:
        table.add_row(cell)  # type: ignore[arg-type] # any renderable
    console = Console(file=StringIO(), width=80)
    console.print(table)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def test_only_what_is_no_character_to_print_is_escaped() -> None:
    assert strip_control_chars(NAME) == SHOWN
    assert strip_control_chars("größe [b]") == "größe [b]"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_one_line_of_a_table(name: str) -> None:
    rows = printed(plain_line(name), plain_line("next"))
    assert len(rows) == len(printed("plain", "next"))
    assert plain_line(name).plain.isprintable()


@pytest.mark.parametrize("name", HOSTILE)
def test_several_lines_have_a_name_in_one_of_them(name: str) -> None:
    assert len(plain_lines([name, "second"]).plain.split("\n")) == 2
    assert len(printed(plain_lines([name, "second"]))) == len(printed(plain_lines(["first", "second"])))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_warning_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    warn(f"{name}: rack not known")
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("name", HOSTILE[:-1])
def test_an_error_with_a_name_is_one_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["plan", str(tmp_path / name)], ["plan", f"--{name}"], [name], ["cluster", "down", "--name", name]):
        assert run(words) == 2
        shown = capsys.readouterr()
        assert (shown.out, len(shown.err.splitlines())) == ("", 1)


def test_a_plan_has_one_row_for_each_member(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def table(name: str) -> list[str]:
        scenario = {
            "format": "rackassign/1",
            "name": name,
            "brokers": [{"id": 1, "rack": name}],
            "topics": {"t": [[1], [1]]},
            "members": [{"id": f"{name}{i}", "rack": name, "topics": ["t"]} for i in range(2)],
        }
        file = tmp_path / "group.json"
        file.write_text(json.dumps(scenario))
        assert run(["plan", "--output", "table", str(file)]) == 0
        return capsys.readouterr().out.splitlines()

    rows = table("a\nb")
    assert len(rows) == len(table("a"))
    assert [row.split()[1:4] for row in rows if "nb0" in row] == [[r"a\nb0", "│", r"a\nb"]]


@pytest.mark.parametrize(
    "words",
    [
        ["fleet", TOO_LONG],
        ["fleet", "snapshots", "--html", TOO_LONG],
        ["inspect", "--bootstrap-server", "h:1", "--all-groups", "--html", f"{TOO_LONG}/a.html"],
        ["state", "clean", "--state-dir", TOO_LONG],
        ["cluster", "up", "--name", TOO_LONG],
        ["cluster", "down", "--name", TOO_LONG],
    ],
)
def test_a_name_that_cannot_be_of_a_file_is_one_line(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The same errors are raised in a folder that may not be searched, which a test of root cannot have.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RACKASSIGN_CACHE", str(tmp_path))
    (tmp_path / "up").mkdir()
    assert run(words) == ExitCode.BAD_INPUT
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("rackassign: ")
    assert shown.err.endswith(": File name too long\n")
    assert shown.err.count("\n") == 1
