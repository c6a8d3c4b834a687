"""What all commands have in common in a terminal: output, progress, signals, and the end of `--help`."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Display
from rich.text import Text

from rackassign.cli import ExitCode
from rackassign.errors import ConfigError
from rackassign.text import strip_control_chars

if TYPE_CHECKING:
    from rackassign.util.callbacks import Progress


LINE_EVERY_S = 30.0
"""Seconds between two progress lines of a step that counts bytes where no bar can be drawn."""


class ProgressDisplay:
    """One line for each step, a bar for those that count."""

    def __init__(self, display: Display, clock: Callable[[], float] = time.monotonic) -> None:
        # `clock`: seconds of a clock that is never set.
        self._display = display
        self._clock = clock
        self._counted, self._line_at = "", clock()
        self._step = ""
        self._task = display.add_task("", visible=False, total=None)

    def show_step(self, step: str, done: int = 0, total: int = 0) -> None:
        """Show a step; a new one ends the last."""
        if step != self._step:
            if self._step:
                self._display.update(self._task, total=1, completed=1, counted="")
                self._display.stop_task(self._task)
            if not self._display.console.is_terminal:
                self._print(step)
            self._step = step
            self._task = self._display.add_task(step, total=None, counted="")
        if total:
            counted = f"{done / 1e6:.0f} of {total / 1e6:.0f} MB"
            self._update(done, total, counted)
            self._line(counted, over=False)

    def count(self, step: str, done: int, total: int) -> None:
        """Show a step and how far it is, in whatever it counts."""
        self.show_step(step)
        self._update(done, total, f"{done} of {total}")

    def copied(self, step: str, done: int, total: int, arrived: int, bytes_: int) -> None:
        """Show a step, how far it is, and how many bytes of what is on its way have arrived."""
        self.show_step(step)
        counted = f"{done} of {total}"
        if bytes_:
            counted += f", {arrived / 1e6:.0f} of {bytes_ / 1e6:.0f} MB"
            self._update(arrived, bytes_, counted)
        else:
            self._update(done, total, counted)
        self._line(counted, over=done == total)

    def _line(self, counted: str, *, over: bool) -> None:
        """Print the progress of a step where no bar can be drawn: periodically, even if unchanged, and at its end."""
        now = self._clock()
        if self._display.console.is_terminal or not (
            now - self._line_at >= LINE_EVERY_S or (over and counted != self._counted)
        ):
            return
        self._print(f"{self._step}: {counted}", soft_wrap=True)
        self._counted, self._line_at = counted, now

    def _print(self, line: str, *, soft_wrap: bool = False) -> None:
        try:
            self._display.console.print(line, markup=False, highlight=False, soft_wrap=soft_wrap)
        except OSError:
            discard(2)

    def _update(self, done: int, total: int, counted: str) -> None:
        self._display.update(self._task, completed=done, total=total, counted=counted)

    def on_progress(self, progress: Progress) -> None:
        """Show the progress that a long step reports."""
        if progress.unit:
            self.show_step(progress.step, progress.done, progress.total)
        else:
            self.count(progress.step, progress.done, progress.total)


@contextmanager
def progress_display() -> Iterator[ProgressDisplay]:
    """Show steps while a command works; plain lines where stderr is no terminal."""
    console = Console(stderr=True)
    columns = (
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[counted]}"),
        TimeElapsedColumn(),
    )
    with Display(*columns, console=console, disable=not console.is_terminal) as display:
        yield ProgressDisplay(display)


Output = Annotated[str, typer.Option("--output", help="Output format: table or json.")]
HtmlFile = Annotated[
    str, typer.Option("--html", help="HTML file for a report: one page without scripts or network access.")
]


def check_output(output: str, *known: str) -> None:
    """Refuse a form of output that the command does not have; `ConfigError` names those it has."""
    if output not in known:
        raise ConfigError(f"output must be one of {', '.join(known)}, got {output!r}")


def plain_line(text: str) -> Text:
    """Return one line that rich and the terminal show as it is: a name that others have chosen, or a text with names.

    Control characters and line ends are shown escaped, so a name is one line wherever it stands.
    """
    return Text(strip_control_chars(text))


def plain_lines(lines: Iterable[str]) -> Text:
    """Return several lines, each as from `plain_line`."""
    return Text("\n".join(map(strip_control_chars, lines)))


def plain_console() -> Console:
    """Return a console that shows text as it is: names are chosen by others, and brackets are no commands."""
    return Console(highlight=False, markup=False)


def warn(problem: str) -> None:
    """Write one line to stderr; nothing if that cannot be written."""
    write_note(f"rackassign: {problem}")


def write_note(line: str) -> None:
    """Write one line to stderr without control characters; nothing if that cannot be written."""
    # It is None if it was closed before the interpreter started.
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"{strip_control_chars(line)}\n")
        sys.stderr.flush()
    except OSError:
        discard(2)


def discard(descriptor: int) -> None:
    """Let what is written to a descriptor go nowhere, since the interpreter writes what is left when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def check_writable(option: str, name: str) -> None:
    """Refuse a file that cannot be written, before all the work is done; an empty name is none."""
    if not name:
        return
    try:
        problem = _unwritable(Path(name))
    except OSError as error:
        # `pathlib` raises it for a folder that may not be searched, and for a name that is too long.
        problem = error.strerror
    if problem:
        raise ConfigError(f"{option}: cannot write {name}: {problem}")


def _unwritable(file: Path) -> str | None:
    """Return why a file cannot be written; None if nothing is known to prevent it."""
    if file.is_dir():
        return "it is a folder"
    if not file.parent.is_dir():
        return "there is no such folder"
    return None if os.access(file if file.exists() else file.parent, os.W_OK) else "permission denied"


def write_text(option: str, name: str, text: str) -> None:
    """Write a file; `ConfigError` names the option if that fails."""
    try:
        Path(name).write_text(text, "utf-8")
    except OSError as error:
        raise ConfigError(f"{option}: cannot write {name}: {error.strerror}") from None


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """End the block on SIGTERM and SIGHUP, which stop services and closed terminals, as on Ctrl-C."""

    def stop(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    with _handled((signal.SIGTERM, signal.SIGHUP), stop):
        yield


@contextmanager
def terminate_as_exit() -> Iterator[None]:
    """End the process with exit code 0 on SIGTERM and SIGHUP, which are a way to stop it that is no error."""

    def stop(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(ExitCode.DONE)

    with _handled((signal.SIGTERM, signal.SIGHUP), stop):
        yield


@contextmanager
def stop_requested(taking_back: str = "") -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether the block is to end."""
    # `taking_back`: what the block still does once it is to end, so that nothing is left half done. If there is
    # anything, a second signal only prints it, and the next one ends the block at once, as Ctrl-C does.
    asked, printed = False, not taking_back

    def ask(_signal: int, _frame: FrameType | None) -> None:
        nonlocal asked, printed
        if not asked:
            asked = True
        elif not printed:
            printed = True
            # Not through a stream: a signal may come in the middle of what that is writing.
            with suppress(OSError):  # stderr is closed, and what is taken back goes on
                os.write(2, f"rackassign: {taking_back}; once more ends it at once\n".encode())
        else:
            raise KeyboardInterrupt

    with _handled(_ENDING, ask):
        yield lambda: asked


@contextmanager
def _handled(numbers: tuple[signal.Signals, ...], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    # What the caller ignores stays ignored, as nohup expects.
    heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heeded}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


# A paragraph that begins with it keeps its line ends.
_AS_IT_IS = "\b\n"


def examples(*commands: str) -> str:
    """Return the epilog with examples of a command."""
    lines = "".join(f"\n  rackassign {command}" for command in commands)
    return f"{_AS_IT_IS}{'Example' if len(commands) == 1 else 'Examples'}:{lines}"


def exit_codes() -> str:
    """Return the epilog with the exit codes of all commands."""
    lines = "".join(f"\n  {code.value:3}  {code.meaning}" for code in ExitCode)
    return f"{_AS_IT_IS}Exit codes:{lines}"
