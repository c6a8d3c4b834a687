"""Keys pressed in a terminal, read without waiting for the end of a line."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_SEQUENCES = {
    "[A": "up",
    "OA": "up",
    "[B": "down",
    "OB": "down",
    "[5~": "page up",
    "[6~": "page down",
    "[H": "home",
    "OH": "home",
    "[1~": "home",
    "[F": "end",
    "OF": "end",
    "[4~": "end",
}
"""Escape sequences of terminals, without the escape character."""

_CONTROLS = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace"}

_AT_ONCE = 256

Keys = Callable[[float], list[str]]
"""Waits up to some seconds for keys, and returns them: a character, or a name such as `up` or `escape`."""


@contextmanager
def pressed_keys() -> Iterator[Keys | None]:
    """Yield a function that reads keys; None if stdin is no terminal. Ctrl-C interrupts as usual."""
    if sys.stdin is None:
        # It was closed before the interpreter started, as after `command <&-`.
        yield None
        return
    try:
        import termios  # noqa: PLC0415 - not on Windows
        import tty  # noqa: PLC0415 - the same

        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (ImportError, OSError, ValueError):
        # termios.error is an OSError only by its numbers, so it is caught below.
        yield None
        return
    except termios.error:
        yield None
        return
    tty.setcbreak(descriptor)

    def read(wait_s: float) -> list[str]:
        ready, _, _ = select.select([descriptor], [], [], wait_s)
        return decode_keys(os.read(descriptor, _AT_ONCE).decode("utf-8", "replace")) if ready else []

    try:
        yield read
    finally:
        # A terminal that was closed has nothing to restore.
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def decode_keys(text: str) -> list[str]:
    """Return the keys that a terminal has sent; an unknown sequence is ignored."""
    keys: list[str] = []
    while text:
        if text[0] != "\x1b":
            key = _CONTROLS.get(text[0], text[0])
            if len(key) > 1 or key.isprintable():
                keys.append(key)
            text = text[1:]
            continue
        text = text[1:]
        length = _length(text)
        if not length:
            keys.append("escape")
        elif text[:length] in _SEQUENCES:
            keys.append(_SEQUENCES[text[:length]])
        text = text[length:]
    return keys


def _length(text: str) -> int:
    """Return the length of the sequence behind an escape character; 0 if there is none."""
    if text[:1] == "O":
        return min(2, len(text))
    if text[:1] != "[":
        return 0
    # A control sequence ends with a character from @ to ~ (ECMA-48).
    return next((i + 1 for i, c in enumerate(text) if i and "@" <= c <= "~"), len(text))
