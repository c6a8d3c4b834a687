"""The comparison of results with an input."""

from __future__ import annotations

import pytest

from tools.chaos.exactly_once import Outcome, compare

GIVEN = {b"a": 1, b"b": 1, b"c": 2}
RIGHT = {b"A": 1, b"B": 1, b"C": 2}


@pytest.mark.parametrize(
    ("visible", "all_results", "lost", "repeated", "aborted"),
    [
        (RIGHT, RIGHT, 0, 0, 0),
        (RIGHT, {**RIGHT, b"A": 3}, 0, 0, 2),
        ({**RIGHT, b"A": 3}, {**RIGHT, b"A": 3}, 0, 2, 0),
        ({b"A": 1, b"C": 1}, {b"A": 1, b"C": 2}, 2, 0, 1),
        ({**RIGHT, b"d": 1}, RIGHT, 0, 1, 0),
        ({}, {}, 4, 0, 0),
    ],
)
def test_lost_and_repeated_results_are_counted(
    visible: dict[bytes, int], all_results: dict[bytes, int], lost: int, repeated: int, aborted: int
) -> None:
    assert compare(GIVEN, visible, all_results) == Outcome(4, lost, repeated, aborted)
