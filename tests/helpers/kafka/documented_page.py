"""A page of the documentation, whose commands and programs are run from the first to the last."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from inspect import iscoroutinefunction
from itertools import chain
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any

from rackassign.testing.harness import wait_until
from tests.helpers.documents import ROOT, RUNNABLE, Block, Command, blocks, missing_lines
from tests.helpers.machine_speed import scaled_s

if TYPE_CHECKING:
    from typing_extensions import Self

_TIMEOUT_S = 600.0
_BROKERS = re.compile(r"\bbroker:9092\b|\blocalhost:9092\b|(?<=\")\.\.\.(?=\")")
_OUTSIDE = re.compile(r"(?<![\w.])/(?:data|mnt|var)/")
"""A folder that a page names and a test must not write to."""
_NAP = re.compile(r"\bsleep (\d+)")

Step = Command | Block

INSTALLED = "what it installs is installed"
"""Reason to leave out a command of pip."""


class Page:
    """A page, as a reader follows it: the next command or program is run, or left out with a reason.

    A context manager. If it ends without an error, each of the page's commands and programs has to be dealt with.
    """

    def __init__(
        self,
        document: str,
        folder: Path,
        bootstrap: str,
        names: Mapping[str, str] = MappingProxyType({}),
        usual: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        # `usual`: the same of all pages; a page need not have these words.
        self.folder = folder
        self.bootstrap = bootstrap
        self._names = {**usual, **names}
        found = [block for block in blocks(document) if block.language in RUNNABLE]
        whole = "".join(block.text for block in found)
        absent = [name for name in names if not re.search(_word(name), whole)]
        assert not absent, f"{document} has nothing of {absent}"
        self._steps: list[Step] = [*chain.from_iterable(map(_steps, found))]
        self._open = ExitStack()
        self._started = 0
        self._environment = {
            **os.environ,
            "COLUMNS": "80",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.close()
        if error is None:
            assert not self._steps, f"not run: {[step.place for step in self._steps]}"

    def adapted(self, text: str) -> str:
        """Return a command or a program for this cluster and for the speed of this machine."""
        for name, own in self._names.items():
            text = re.sub(_word(name), lambda _, own=own: own, text)  # type: ignore[misc]
        assert not _OUTSIDE.search(text), f"outside of its folder: {text}"
        text = _BROKERS.sub(self.bootstrap, text)
        return _NAP.sub(lambda found: f"sleep {scaled_s(float(found[1])):.0f}", text)

    def leave(self, reason: str, steps: int = 1) -> None:
        """Leave out commands or programs, for a reason that is stated."""
        assert reason
        assert len(self._steps) >= steps
        del self._steps[:steps]

    def leave_to(self, test: str) -> None:
        """Leave the next program to another test, which has to name the page."""
        step = self._steps.pop(0)
        page = Path(step.place.partition(":")[0]).name
        assert page in (ROOT / test).read_text("utf-8"), f"{test} runs nothing of {page}"

    def run(
        self, code: int = 0, *, commands: int = 1, more: str = "", environment: dict[str, str] | None = None
    ) -> str:
        """Run the next command, and check how it ends and that it shows what the page shows; return its output."""
        found = [self._next_command() for _ in range(commands)]
        done = subprocess.run(
            ["/bin/bash", "-c", "\n".join(_with_options(self.adapted(each.text), more) for each in found)],
            check=False,
            cwd=self.folder,
            env=self._environment | (environment or {}),
            stderr=subprocess.STDOUT,
            stdout=subprocess.PIPE,
            text=True,
            timeout=_TIMEOUT_S,
        )
        assert done.returncode == code, f"{found[-1].place}: {found[-1].text}: {done.returncode}\n{done.stdout}"
        for each in found:
            self._check_output(each, done.stdout)
        return done.stdout

    @contextmanager
    def started(self, code: int | None = None, *, more: str = "") -> Iterator[Running]:
        """Run the next command as in another terminal; end it with the block, as Ctrl-C does."""
        # `code`: with which it is to end; None if that does not matter.
        command = self._next_command()
        with self._running(["/bin/bash", "-c", f"exec {_with_options(self.adapted(command.text), more)}"]) as running:
            yield running
        assert code in {None, running.wait()}, running.output()
        self._check_output(command, running.output())

    @contextmanager
    def beside(self, command: str) -> Iterator[Running]:
        """Run a command that the page takes for granted; end it with the block, as Ctrl-C does."""
        with self._running(["/bin/bash", "-c", f"exec {command}"]) as running:
            yield running

    def write(self) -> None:
        """Write the next program into the file that the page names."""
        block = self._next_program()
        assert block.title, f"{block.place} names no file"
        (self.folder / block.title).write_text(self.adapted(block.text), "utf-8")

    def text(self) -> str:
        """Return the next program, for a test that runs it together with others."""
        return self.adapted(self._next_program().text)

    def execute(self, **names: Any) -> dict[str, Any]:
        """Run the next program in this process, and return its names; what it leaves open is closed with the page."""
        block = self._next_program()
        defined = {"__name__": "documented", **names}
        code = compile(self.adapted(block.text), block.place, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        exec(code, defined)  # noqa: S102 - our own documentation
        for name, value in defined.items():
            if name not in names and not isinstance(value, type) and callable(getattr(value, "close", None)):
                self._open.callback(value.close)
        return defined

    def execute_in_loop(self, **names: Any) -> dict[str, Any]:
        """Run the next program within an event loop; its clients are stopped before the loop ends."""

        async def run() -> dict[str, Any]:
            defined = self.execute(**names)
            for value in defined.values():
                if iscoroutinefunction(getattr(value, "stop", None)) and not isinstance(value, type):
                    await value.stop()
            return defined

        return asyncio.run(run())

    @contextmanager
    def program(self, *, before: str = "", after: str = "") -> Iterator[Running]:
        """Run the next program in a process of its own; end it with the block, as Ctrl-C does."""
        block = self._next_program()
        file = self.folder / f"program_{block.line}.py"
        file.write_text("\n".join([before, self.adapted(block.text), after]), "utf-8")
        with self._running([sys.executable, str(file)]) as running:
            yield running

    @contextmanager
    def _running(self, words: list[str]) -> Iterator[Running]:
        self._started += 1
        log = self.folder / f"output_{self._started}"
        with (
            log.open("wb") as out,
            subprocess.Popen(
                words,
                cwd=self.folder,
                env=self._environment | {"PYTHONUNBUFFERED": "1"},
                start_new_session=True,
                stderr=subprocess.STDOUT,
                stdout=out,
            ) as process,
        ):
            running = Running(process, log)
            try:
                yield running
            finally:
                running.end()

    def _next_command(self) -> Command:
        step = self._steps.pop(0)
        assert isinstance(step, Command), f"{step.place} is no command"
        return step

    def _next_program(self) -> Block:
        step = self._steps.pop(0)
        assert isinstance(step, Block), f"{step.place} is no program"
        return step

    def _check_output(self, command: Command, output: str) -> None:
        # A terminal shows that Ctrl-C was pressed.
        shown = [self.adapted(line.removeprefix("^C")) for line in command.shown]
        missing = missing_lines(shown, output)
        assert not missing, f"{command.place}: {command.text}: {missing} is not shown by it:\n{output}"


class Running:
    """A command or a program that runs."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    def output(self) -> str:
        """Return what it has shown so far."""
        return self._log.read_text("utf-8", "replace")

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for a condition; fail if the process ends before."""

        def look() -> bool:
            met = bool(condition())
            assert met or self._process.poll() is None, f"ended before {what}:\n{self.output()}"
            return met

        wait_until(look, what)

    def wait_for_output(self, text: str) -> None:
        self.wait_until(lambda: text in self.output(), f"{text!r} shown")

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self._process.kill()

    def wait(self) -> int:
        """Wait until it ends by itself; return its exit code."""
        return self._process.wait(_TIMEOUT_S)

    def end(self) -> int:
        """End it as Ctrl-C does, and all that it has started; return its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            return self._process.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            raise


def _word(name: str) -> str:
    return rf"(?<![\w/-]){re.escape(name)}(?!\w)"


def _steps(block: Block) -> list[Step]:
    return [*block.commands] if block.language == "console" else [block]


def _with_options(command: str, options: str) -> str:
    """Return a command with further options, in front of a comment or a redirection."""
    if not options:
        return command
    words, separator, rest = command.partition(" > ")
    return f"{words} {options}{separator}{rest}"
