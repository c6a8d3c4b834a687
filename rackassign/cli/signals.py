"""Signal handling of commands that run for long."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from rackassign.cli.exit_codes import ExitCode

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
    """Yield a function that returns whether the block is to end.

    Args:
        taking_back: What the block still does once it is to end, so that nothing is left half done. If there is
            anything, a second signal only prints it, and the next one ends the block at once, as Ctrl-C does.
    """
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
