"""Validation of parsed JSON from rackassign's files, field by field; errors name the path of the field."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rackassign.errors import InputError
from rackassign.text import short_repr


def mapping(value: Any, path: str) -> dict[str, Any]:  # noqa: ANN401 - parsed JSON
    """Return an object; raise `InputError` for anything else."""
    if not isinstance(value, dict):
        raise InputError(path, f"expected an object, got {short_repr(value)}")
    return value


def fields(value: Any, path: str, needed: Iterable[str], others: Iterable[str] = ()) -> dict[str, Any]:  # noqa: ANN401
    """Return an object with all needed fields, and no other fields than those and the optional ones.

    Raises:
        InputError: A field is missing or unknown, or it is no object; the message names the field.
    """
    found, joint = mapping(value, path), "." if path else ""
    for name in sorted(needed):
        if name not in found:
            raise InputError(path, f"the field {short_repr(name)} is missing")
    for name in found:
        if name not in {*needed, *others}:
            known = ", ".join(sorted({*needed, *others}))
            raise InputError(f"{path}{joint}{name}", f"unknown field; known are {known}")
    return found


def array(value: Any, path: str) -> list[Any]:  # noqa: ANN401 - parsed JSON
    """Return an array; raise `InputError` for anything else."""
    if not isinstance(value, list):
        raise InputError(path, f"expected an array, got {short_repr(value)}")
    return value


def text(value: Any, path: str) -> str:  # noqa: ANN401 - parsed JSON
    """Return a text; raise `InputError` for anything else."""
    if not isinstance(value, str):
        raise InputError(path, f"expected text, got {short_repr(value)}")
    return value


def number(value: Any, path: str) -> int:  # noqa: ANN401 - parsed JSON
    """Return an integer; raise `InputError` for anything else."""
    if type(value) is not int:
        raise InputError(path, f"expected an integer, got {short_repr(value)}")
    return value


def flag(value: Any, path: str) -> bool:  # noqa: ANN401 - parsed JSON
    """Return a boolean; raise `InputError` for anything else."""
    if not isinstance(value, bool):
        raise InputError(path, f"expected true or false, got {short_repr(value)}")
    return value
