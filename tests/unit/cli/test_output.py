"""Names of others in tables, texts and errors: one line each, and nothing that a terminal obeys.

What is printed of a planned reassignment.

The published schemas: there is one for each command that writes JSON, and they describe what is written.

Help, examples, exit codes and completion of every command.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import typer.main
from jsonschema import Draft202012Validator, ValidationError
from rich.console import Console
from rich.table import Table

from rackassign import scenario
from rackassign.admin.describe import DescribedTopic
from rackassign.bill import snapshots
from rackassign.cli import ExitCode
from rackassign.cli.app import _COMMANDS, app, run
from rackassign.cli.layouts import show_metrics
from rackassign.cli.terminal import plain_line, plain_lines, warn
from rackassign.errors import InputError
from rackassign.model import Broker, Partition, TopicPartition
from rackassign.monitoring.live_groups import RackMap
from rackassign.placement import state_file
from rackassign.placement.cluster_state import ClusterState
from rackassign.placement.constraints import PlacementConstraints
from rackassign.placement.layout import Layout
from rackassign.placement.state_file import PlacementState
from rackassign.reassignment import Journal, ReassignmentRequest, ReplicaMove, journal
from rackassign.reassignment.plan import plan_leader_balance
from rackassign.reassignment.throttle import SavedConfigs
from rackassign.text import strip_control_chars
from tests.helpers.json_schemas import FOLDER, OF_COMMAND, check, schema
from tests.unit.cli.conftest import SCENARIO
from tools.reference import walk_commands

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
        ["bill", TOO_LONG],
        ["bill", "snapshots", "--html", TOO_LONG],
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


BROKERS = (Broker(1, "a"), Broker(2, "b"))


def led_by_one(partitions: int) -> DescribedTopic:
    row = tuple(Partition((1, 2), 1) for _ in range(partitions))
    return DescribedTopic(row, tuple(p.replicas for p in row))


@pytest.mark.parametrize("topics", [None, ["t"], ["t", "u"]])
def test_metrics_of_some_topics_are_printed_with_what_they_count(topics: list[str] | None) -> None:
    state = ClusterState(BROKERS, {"t": led_by_one(2), "u": led_by_one(4)})
    planned = plan_leader_balance(state, PlacementConstraints(), topics)
    out = io.StringIO()
    show_metrics(planned, Console(file=out, width=120))
    lines = [line.strip() for line in out.getvalue().splitlines()]
    # The loads of all topics: u stays with broker 1 if only t may change, and then 2 of 6 leaders are on the other.
    (leaders,) = (line.split() for line in lines if line.startswith("leaders of a broker, most"))
    assert leaders[-2:] == (["2.00", "1.33"] if topics == ["t"] else ["2.00", "1.00"])
    notes = [
        line for line in lines if line.startswith("(loads of brokers and racks are those of all topics of the cluster;")
    ]
    assert len(notes) == (topics == ["t"])


PAGE = (FOLDER.parent / "json-formats.md").read_text("utf-8")
NAMES = sorted(file.stem for file in FOLDER.iterdir())
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_one_and_the_page_has_it(name: str) -> None:
    Draft202012Validator.check_schema(schema(name))
    assert f"](schemas/{name}.json)" in PAGE


def test_each_command_that_writes_json_has_a_schema_and_no_other() -> None:
    writing = {
        " ".join(path[1:])
        for path, command, _ in walk_commands()
        if any("--output" in parameter.opts for parameter in command.params)
    }
    assert writing == OF_COMMAND.keys()
    assert [name for name in writing if f"`{name}`" not in PAGE] == []


def test_what_is_not_documented_is_found() -> None:
    good = {"rack": "a", "changed": [1], "running": []}
    check("cluster-rack", good)
    for bad in ({**good, "more": 1}, {"rack": "a", "changed": [1]}, {**good, "running": ["1"]}):
        with pytest.raises(ValidationError):
            check("cluster-rack", bad)
    # A later version may write more: the published schema accepts that.
    Draft202012Validator(schema("cluster-rack")).validate({**good, "more": 1})


def test_the_plan_file_is_what_its_schema_documents(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    bare = Journal("c", None, {T0: ReplicaMove((1,), (2,))})
    full = Journal(
        "c",
        ReassignmentRequest(("t",), 3, frozenset({5}), rebalance=True, group="g", rules={"leaders": "rack"}),
        {T0: ReplicaMove((1, 2), (2, 3), ((1, 3),))},
        {T1: (1, -1)},
        "begun",
        SavedConfigs(
            {"leader.replication.throttled.rate": "1"}, {"t": {"leader.replication.throttled.replicas": "0:1"}}
        ),
    )
    for each in (bare, full):
        journal.write(file, each)
        check("plan-file", json.loads(file.read_text("utf-8")))


def test_the_state_file_is_what_its_schema_documents(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    for each in (PlacementState(), PlacementState({1: "a", 2: None}, {T0: (1, -1)}, "c")):
        state_file.write(file, each)
        check("state-file", json.loads(file.read_text("utf-8")))


LAYOUT = {"brokers": [{"id": 1, "rack": "a", "weight": 2.0}, {"id": 2, "fenced": True}], "topics": {"t": [[1, 2]]}}
RACKS = {"client_ids": {"x-*": "a"}, "hosts": {"h": "b"}, "subnets": {"10.0.0.0/8": "c"}, "follower_fetchers": ["x-*"]}


@pytest.mark.parametrize(
    ("name", "read", "good", "bad"),
    [
        ("scenario", scenario.read_group, SCENARIO, [{**SCENARIO, "more": 1}, {**SCENARIO, "members": {}}]),
        (
            "layout",
            Layout.read,
            LAYOUT,
            [{**LAYOUT, "more": 1}, {"brokers": []}, {"brokers": [{"id": -1}], "topics": {}}],
        ),
        ("layout", Layout.read, SCENARIO, []),
        (
            "rack-map",
            RackMap.read,
            RACKS,
            [{"racks": {}}, {"hosts": {"h": ""}}, {"hosts": []}, {"follower_fetchers": {}}],
        ),
        ("rack-map", RackMap.read, {}, []),
    ],
)
def test_what_is_read_is_what_the_schema_accepts(
    name: str, read: Callable[[Any], Any], good: dict[str, Any], bad: list[Any]
) -> None:
    published = Draft202012Validator(schema(name))
    published.validate(good)
    read(good)
    for each in bad:
        assert not published.is_valid(each)
        with pytest.raises(InputError):
            read(each)


def test_the_columns_of_snapshots_are_documented() -> None:
    sentence = PAGE.split("no group reads, and the columns ")[1].split(".")[0]
    assert re.findall(r"`(\w+)`", sentence) == snapshots.SCHEMA.names


ROOT = Path(__file__).parents[3]
PROGRAM: Any = typer.main.get_command(app)


def commands(group: Any = PROGRAM, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return the path of each command that is no group."""
    found: list[tuple[str, ...]] = []
    for name in group.list_commands(None):
        command, inner = group.get_command(None, name), (*path, name)
        found += commands(command, inner) if hasattr(command, "commands") else [inner]
    return found


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(list(words)) == ExitCode.DONE
    return capsys.readouterr().out


def examples(help_text: str) -> list[list[str]]:
    """Return the words behind `rackassign` of each example, without what the shell does with the output."""
    lines = [line for line in help_text.partition("Example")[2].splitlines() if line.startswith("    rackassign ")]
    pieces = [piece for line in lines for piece in re.split(r" [|>] ", line)]
    return [shlex.split(piece)[1:] for piece in pieces if "rackassign" in piece]


def parse(words: list[str]) -> None:
    """Parse a command line as `run` does, and run nothing."""
    context, group = PROGRAM.make_context("rackassign", list(words)), PROGRAM
    while hasattr(group, "commands"):
        name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
        context, group = command.make_context(name, rest, parent=context), command


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_every_command_has_an_example_that_parses(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    found = examples(shown(capsys, *path, "--help"))
    assert found
    assert tuple(found[0][: len(path)]) == path or found[1][: len(path)] == list(path)
    for words in found:
        parse(words)


@pytest.mark.parametrize("name", PROGRAM.list_commands(None))
def test_the_help_of_the_program_has_the_first_sentence_of_each_command(name: str) -> None:
    text = " ".join(PROGRAM.get_command(None, name).help.split())
    assert re.split(r"(?<=\.)\s", text)[0] == _COMMANDS[name].help


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_the_help_of_the_program_imports_no_client(word: str) -> None:
    code = f"import sys; from rackassign.cli.app import run; run([{word!r}]); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert not {"kafka", "jgo", "numpy"} & set(done.stdout.split())


def test_an_example_with_a_wrong_option_does_not_parse() -> None:
    with pytest.raises(typer.TyperException, match="No such option: --strat"):
        parse(["plan", "--strat", "range"])


@pytest.mark.parametrize("path", [(), ("cluster",), ("reassign",), *commands()], ids=" ".join)
def test_h_is_help(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, *path, "-h") == shown(capsys, *path, "--help")


def test_the_exit_codes_are_in_the_help_and_in_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "--help")
    assert shown(capsys) == text
    reference = (ROOT / "docs" / "reference" / "commands.md").read_text("utf-8")
    documented = [int(code) for code in re.findall(r"^\| (\d+) \|", reference, re.MULTILINE)]
    assert documented == [code.value for code in ExitCode]
    for code in ExitCode:
        assert f"{code.value}  {code.meaning}" in text


COMPLETIONS = {
    "bash": {"_RACKASSIGN_COMPLETE": "complete_bash", "COMP_WORDS": "rackassign cluster kill", "COMP_CWORD": "2"},
    "zsh": {"_RACKASSIGN_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "rackassign cluster kill"},
    "fish": {
        "_RACKASSIGN_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_ARGS": "rackassign cluster kill",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    },
}
SCRIPT = "import sys; sys.argv[0] = 'rackassign'; from rackassign.cli import main; main()"


@pytest.mark.parametrize("shell", sorted(COMPLETIONS))
def test_a_shell_completes_commands(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env={**os.environ, **COMPLETIONS[shell]}, capture_output=True, check=True
    )
    assert b"kill-rack" in done.stdout
    assert b"start-rack" not in done.stdout


@pytest.mark.parametrize("shell", sorted(COMPLETIONS))
def test_the_script_of_a_shell_is_shown_and_installed(shell: str, tmp_path: Path) -> None:
    given = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", "HOME": str(tmp_path)}
    for option in ("--show-completion", "--install-completion"):
        done = subprocess.run([sys.executable, "-c", SCRIPT, option, shell], env=given, capture_output=True, check=True)
        assert done.stdout
    scripts = [file.read_text("utf-8") for file in tmp_path.rglob("*rackassign*")]
    assert len(scripts) == 1
    assert f"_RACKASSIGN_COMPLETE=complete_{shell}" in scripts[0]
