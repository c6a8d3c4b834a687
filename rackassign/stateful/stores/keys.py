"""The keys of a task's state: each begins with the store that it belongs to.

=========================  ==================================================
first bytes                store
=========================  ==================================================
1                          the store without a name
2, length and name         a named store
3, length and name         a named store with a time to live, whose values begin with the time at which they expire
4                          the progress of the task (`progress`), a single key
=========================  ==================================================

So standbys and `rackassign state` can interpret a changelog without knowing the stores of the application.
"""

from __future__ import annotations

DEFAULT = b"\1"
PROGRESS = b"\4"

EXPIRY_BYTES = 8
"""Values of a store with a time to live begin with the time at which they expire, in milliseconds."""

_NAMED, _EXPIRING = 2, 3
LONGEST_NAME = 100


def store_prefix(name: str, *, expiring: bool) -> bytes:
    """Return the first bytes of the keys of a named store."""
    encoded = name.encode()
    return bytes((_EXPIRING if expiring else _NAMED, len(encoded))) + encoded


def is_state_key(key: bytes) -> bool:
    """Return whether a key has one of the forms above."""
    return bool(key) and (1 <= key[0] <= _EXPIRING or key == PROGRESS)


def expires(key: bytes) -> bool:
    """Return whether the value of a key begins with the time at which it expires."""
    return key[0] == _EXPIRING


def behind(prefix: bytes) -> bytes | None:
    """Return the first key behind all those with a prefix; None if there is none."""
    shorter = prefix.rstrip(b"\xff")
    # No key with this beginning is greater than the beginning with its last byte increased.
    return shorter[:-1] + bytes([shorter[-1] + 1]) if shorter else None


def expiry_of(value: bytes) -> int:
    """Return when a value of a store with a time to live expires, in milliseconds; 0 if it has no time."""
    return int.from_bytes(value[:EXPIRY_BYTES], "big", signed=True)
