"""Reading of files that users name, with one line for what is wrong with one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from rackassign import scenario
from rackassign.errors import ConfigError, InputError

T = TypeVar("T")


def standard_input() -> BinaryIO:
    """Return standard input.

    Raises:
        ConfigError: It is closed.
    """
    # As after `command <&-`.
    if sys.stdin is None:
        raise ConfigError("standard input is closed")
    return sys.stdin.buffer


def read_text(file: str, *, dash: bool = False) -> str:
    """Return what is in a file.

    Args:
        file: Its name.
        dash: Whether - is standard input.

    Raises:
        ConfigError: It cannot be read, or is no text.
    """
    piped = dash and file == "-"
    try:
        read = standard_input().read() if piped else Path(file).read_bytes()
        # Some editors begin a file with a byte order mark.
        return read.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{'standard input' if piped else file} is not UTF-8") from None


def read_json(file: str, read: Callable[[Any], T]) -> T:
    """Return what a file of JSON means.

    Args:
        file: Its name.
        read: Makes what is meant of parsed JSON; raises InputError, which names the field.

    Raises:
        ConfigError: It cannot be read, or is no such JSON; names the file.
    """
    text = read_text(file)
    try:
        return read(scenario.parse(text))
    except InputError as error:
        raise ConfigError(f"{file}: {error}") from None
