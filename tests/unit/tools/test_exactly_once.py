"""The rules about results of transactions find what is lost, repeated and misnumbered, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rackassign.model import TopicPartition
from tools.chaos.checker import RESULT_RULES, check
from tools.chaos.history import Acked, History, Result

INPUT = [Acked(1.0, TopicPartition("input", number % 2), number // 2, number) for number in range(4)]
NUMBERS = (1, 1, 2, 2)
"""What counting the records of each of the two partitions gives."""

RIGHT = [Result(f"RECORD-{number}", NUMBERS[number], committed=True) for number in range(4)]
ABORTED = Result("RECORD-1", 2, committed=False)


def broken(results: Sequence[Result]) -> dict[str, str]:
    return {each.rule: each.what for each in check(History({}, (*INPUT, *results)), RESULT_RULES)}


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([*RIGHT, ABORTED], {}),
        ([Result(each.value, None, committed=True) for each in RIGHT], {}),
        ([*RIGHT, Result("RECORD-3", None, committed=True)], {"repeated results": "1, among them RECORD-3"}),
        ([*RIGHT, Result("other", None, committed=True)], {"repeated results": "1, among them other"}),
        ([*RIGHT[:3], Result("RECORD-3", 3, committed=True)], {"misnumbered results": "2, among them 3, 2"}),
        ([], {"lost results": "4, among them RECORD-0, RECORD-1, RECORD-2, RECORD-3"}),
        (
            [*RIGHT[:1], ABORTED, *RIGHT[2:]],
            {"lost results": "1, among them RECORD-1", "misnumbered results": "1, among them 1"},
        ),
    ],
)
def test_what_is_wrong_with_results_is_found(results: Sequence[Result], expected: dict[str, str]) -> None:
    assert broken(results) == expected
