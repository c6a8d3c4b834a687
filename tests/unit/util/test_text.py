"""Lists and counts in messages."""

from __future__ import annotations

import pytest

from rackassign.util.text import counted, join_first, join_ids


@pytest.mark.parametrize(("names", "text"), [("", ""), ("a", "a"), ("abc", "a, b, c"), ("abcd", "a, b, c and 1 more")])
def test_only_the_first_names_are_listed(names: str, text: str) -> None:
    assert join_first(list(names), 3) == text


def test_numbers_of_things_and_brokers() -> None:
    assert (counted(1, "topic"), counted(0, "topic"), join_ids([3, 1])) == ("1 topic", "0 topics", "3, 1")
