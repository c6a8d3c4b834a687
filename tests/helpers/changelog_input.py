"""What commits do to a state, and the state recomputed from all of them."""

from __future__ import annotations

from collections.abc import Iterable

from rackassign.stateful._processing import Progress
from rackassign.stateful._stores import DEFAULT, PROGRESS

KEYS = [DEFAULT + b"a", DEFAULT + b"b", DEFAULT + b"c"]


def effect(state: dict[bytes, bytes], number: int) -> dict[bytes, bytes | None]:
    """What a commit does: it depends on the state, so that done twice it does something else."""
    first, second = KEYS[number % 3], KEYS[(number // 2) % 3]
    progress = {PROGRESS: Progress({"t": number + 1}).encode()}
    if number % 7 == 3:
        return {first: None, **progress}
    if number % 5 == 4:
        return {**progress}
    grown = state.get(first, b"") + b"%d," % number
    more = {} if first == second else {second: state.get(second, b"")[-6:] + b"+"}
    return {first: grown, **more, **progress}


def recomputed(commits: int) -> dict[bytes, bytes]:
    state: dict[bytes, bytes] = {}
    for number in range(commits):
        apply(state, effect(state, number).items())
    return state


def apply(state: dict[bytes, bytes], changes: Iterable[tuple[bytes, bytes | None]]) -> None:
    for key, value in changes:
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
