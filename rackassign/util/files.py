"""Files that are written for later: locked between processes, replaced atomically, and read field by field.

A lock (`flock`) belongs to the open file, not to the process: it is released when the last descriptor of that open file
is closed. A child process that inherits the descriptor therefore keeps the lock of a parent that has ended, and a crash
leaves no lock behind.

A file that is a symbolic link stays one: what it leads to is replaced, and the lock file is beside that.

Fields of parsed JSON are checked one by one: a value of another type is an `InputError` that names the path of the
field.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from rackassign.errors import ConfigError, InputError
from rackassign.text import short_repr


def object_field(value: Any, path: str) -> dict[str, Any]:  # noqa: ANN401 - parsed JSON
    if not isinstance(value, dict):
        raise InputError(path, f"expected an object, got {short_repr(value)}")
    return value


def object_fields(value: Any, path: str, needed: Iterable[str], others: Iterable[str] = ()) -> dict[str, Any]:  # noqa: ANN401
    """Return an object with all needed fields, and no other fields than those and the optional ones."""
    fields, joint = object_field(value, path), "." if path else ""
    for name in sorted(needed):
        if name not in fields:
            raise InputError(path, f"the field {short_repr(name)} is missing")
    for name in fields:
        if name not in {*needed, *others}:
            known = ", ".join(sorted({*needed, *others}))
            raise InputError(f"{path}{joint}{name}", f"unknown field; known are {known}")
    return fields


def array_field(value: Any, path: str) -> list[Any]:  # noqa: ANN401 - parsed JSON
    if not isinstance(value, list):
        raise InputError(path, f"expected an array, got {short_repr(value)}")
    return value


def text_field(value: Any, path: str) -> str:  # noqa: ANN401 - parsed JSON
    if not isinstance(value, str):
        raise InputError(path, f"expected text, got {short_repr(value)}")
    return value


def number_field(value: Any, path: str) -> int:  # noqa: ANN401 - parsed JSON
    if type(value) is not int:
        raise InputError(path, f"expected an integer, got {short_repr(value)}")
    return value


def bool_field(value: Any, path: str) -> bool:  # noqa: ANN401 - parsed JSON
    if not isinstance(value, bool):
        raise InputError(path, f"expected true or false, got {short_repr(value)}")
    return value


def lock(file: int | IO[Any]) -> None:
    """Lock an open file; wait as long as another open file has the lock."""
    fcntl.flock(file, fcntl.LOCK_EX)


def try_lock(file: int | IO[Any]) -> bool:
    """Lock an open file unless another open file has the lock; return whether it is locked."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def locked(file: Path, *, wait: bool) -> Iterator[None]:
    """Lock a file's name against other processes during the block; the file need not exist, but its folder must."""
    target = _target(file)
    try:
        handle = target.with_name(f".{target.name}.lock").open("w")
    except OSError as error:
        raise ConfigError(f"cannot create a lock file beside {file}: {error.strerror}") from None
    with handle:
        try:
            if wait:
                lock(handle)
            elif not try_lock(handle):
                raise ConfigError(f"another process is using {file}")
        except OSError as error:
            # Some network file systems have no locks.
            raise ConfigError(f"cannot lock the file beside {file}: {error.strerror}") from None
        yield


def create_folder(file: Path) -> None:
    """Create the folder of a file: of a symbolic link, that of the file it leads to."""
    try:
        _target(file).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}") from None


def write_file(file: Path, text: str) -> None:
    """Write a file atomically: readers, and any process after a crash, find the old text or the new one."""
    target = _target(file)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as to:
                to.write(text)
                to.flush()
                os.fsync(to.fileno())
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}") from None


def _target(file: Path) -> Path:
    """Return the file that is meant: where a symbolic link leads, or else the file itself."""
    # Not `Path.is_symlink`, which raises OSError for a name that is too long.
    return Path(os.path.realpath(file)) if os.path.islink(file) else file  # noqa: PTH114
