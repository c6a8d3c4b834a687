"""Showing on stderr what a long step is doing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Display

if TYPE_CHECKING:
    from rackassign.testing import Progress


class Steps:
    """One line for each step, a bar for those that count.

    Args:
        display: Where the lines are drawn.
    """

    def __init__(self, display: Display) -> None:
        self._display = display
        self._step = ""
        self._task = display.add_task("", visible=False, total=None)

    def say(self, step: str, done: int = 0, total: int = 0) -> None:
        """Show a step; a new one ends the last."""
        if step != self._step:
            if self._step:
                self._display.update(self._task, total=1, completed=1, counted="")
                self._display.stop_task(self._task)
            if not self._display.console.is_terminal:
                self._display.console.print(step, markup=False, highlight=False)
            self._step = step
            self._task = self._display.add_task(step, total=None, counted="")
        if total:
            self._update(done, total, f"{done / 1e6:.0f} of {total / 1e6:.0f} MB")

    def count(self, step: str, done: int, total: int) -> None:
        """Show a step and how far it is, in whatever it counts."""
        self.say(step)
        self._update(done, total, f"{done} of {total}")

    def copied(self, step: str, done: int, total: int, arrived: int, bytes_: int) -> None:
        """Show a step, how far it is, and how many bytes of what is on its way have arrived."""
        self.say(step)
        counted = f"{done} of {total}"
        if bytes_:
            self._update(arrived, bytes_, f"{counted}, {arrived / 1e6:.0f} of {bytes_ / 1e6:.0f} MB")
        else:
            self._update(done, total, counted)

    def _update(self, done: int, total: int, counted: str) -> None:
        self._display.update(self._task, completed=done, total=total, counted=counted)

    def heard(self, progress: Progress) -> None:
        """Show the progress of a cluster being made."""
        self.say(progress.step, progress.done, progress.total)


@contextmanager
def steps() -> Iterator[Steps]:
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
        yield Steps(display)
