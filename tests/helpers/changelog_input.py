"""What input records do to a state, and the state recomputed from all of them."""

from __future__ import annotations

from collections.abc import Iterable

KEYS = [b"a", b"b", b"c"]


def effect(state: dict[bytes, bytes], offset: int) -> dict[bytes, bytes | None]:
    """What an input record does: it depends on the state, so that done twice it does something else."""
    first, second = KEYS[offset % 3], KEYS[(offset // 2) % 3]
    if offset % 7 == 3:
        return {first: None}
    if offset % 5 == 4:
        return {}
    grown = state.get(first, b"") + b"%d," % offset
    return {first: grown} if first == second else {first: grown, second: state.get(second, b"")[-6:] + b"+"}


def recomputed(records: int) -> dict[bytes, bytes]:
    state: dict[bytes, bytes] = {}
    for offset in range(records):
        apply(state, effect(state, offset).items())
    return state


def apply(state: dict[bytes, bytes], changes: Iterable[tuple[bytes, bytes | None]]) -> None:
    for key, value in changes:
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
