"""Help, examples, exit codes and completion of every command."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from rackassign.cli import ExitCode
from rackassign.cli.app import _COMMANDS, app, run

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


def test_the_help_of_the_program_imports_no_client() -> None:
    code = "import sys; from rackassign.cli.app import run; run(['--help']); print(*sys.modules)"
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
