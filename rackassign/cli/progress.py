"""Showing on stderr what a long step is doing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Display

if TYPE_CHECKING:
    from rackassign.util.progress import Progress


LINE_EVERY_S = 30.0
"""Seconds between two progress lines of a step that counts bytes where no bar can be drawn."""


class ProgressDisplay:
    """One line for each step, a bar for those that count.

    Args:
        display: Where the lines are drawn.
        clock: Seconds of a clock that is never set.
    """

    def __init__(self, display: Display, clock: Callable[[], float] = time.monotonic) -> None:
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
                self._display.console.print(step, markup=False, highlight=False)
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
        self._display.console.print(f"{self._step}: {counted}", markup=False, highlight=False, soft_wrap=True)
        self._counted, self._line_at = counted, now

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
