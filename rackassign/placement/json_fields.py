"""Parsed JSON of the files that are kept here, looked at field by field: what is wrong is named by its path."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rackassign.errors import InputError
from rackassign.util.text import short_repr


def mapping(value: Any, path: str) -> dict[str, Any]:  # noqa: ANN401 - parsed JSON
    """Return an object; `InputError` if it is none."""
    if not isinstance(value, dict):
        raise InputError(path, f"expected an object, got {short_repr(value)}")
    return value


def fields(value: Any, path: str, needed: Iterable[str], others: Iterable[str] = ()) -> dict[str, Any]:  # noqa: ANN401
    """Return an object that has all needed fields, and none that is neither needed nor one of the others.

    Raises:
        InputError: It has not, or is none; names the field.
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
    """Return an array; `InputError` if it is none."""
    if not isinstance(value, list):
        raise InputError(path, f"expected an array, got {short_repr(value)}")
    return value


def text(value: Any, path: str) -> str:  # noqa: ANN401 - parsed JSON
    """Return a text; `InputError` if it is none."""
    if not isinstance(value, str):
        raise InputError(path, f"expected text, got {short_repr(value)}")
    return value


def number(value: Any, path: str) -> int:  # noqa: ANN401 - parsed JSON
    """Return a whole number; `InputError` if it is none."""
    if type(value) is not int:
        raise InputError(path, f"expected an integer, got {short_repr(value)}")
    return value


def flag(value: Any, path: str) -> bool:  # noqa: ANN401 - parsed JSON
    """Return true or false; `InputError` if it is neither."""
    if not isinstance(value, bool):
        raise InputError(path, f"expected true or false, got {short_repr(value)}")
    return value
