"""The recovery of a wedged group, without a broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from kafka.admin import MemberToRemove
from kafka.errors import NoError, UnknownError, UnknownMemberIdError

from rackassign.monitoring import RecoveryResult, wedged_group
from tests.helpers.builders import group, member

WEDGED = group(*(member(name, "a", {}) for name in ("m1", "m2", "m3")), state="PreparingRebalance", strategy="")
CALLS: Any = object()


class FakeAdmin:
    """Plays the coordinator: removing a member fails on the remaining ones as long as the culprit is among them."""

    def __init__(self, culprit: str) -> None:
        self.present = [each.id for each in WEDGED.members]
        self.culprit = culprit

    def is_wedged(self) -> bool:
        return self.culprit in self.present

    def remove_group_members(self, _group: str, members: Sequence[MemberToRemove]) -> dict[str, type[Exception]]:
        (wanted,) = (each.member_id for each in members)
        if wanted not in self.present:
            return {wanted: UnknownMemberIdError}
        self.present.remove(wanted)
        if self.is_wedged():
            raise UnknownError
        return {wanted: NoError}


def recovered(monkeypatch: pytest.MonkeyPatch, admin: Any, looks: Sequence[bool] = ()) -> RecoveryResult:
    """Recover the group; `looks` are what the first checks find, as if it were freed after them."""
    found = list(looks)
    monkeypatch.setattr(wedged_group, "describe_group", lambda *_: WEDGED)
    monkeypatch.setattr(wedged_group, "is_wedged", lambda *_: found.pop(0) if found else admin.is_wedged())
    return wedged_group.recover(admin, CALLS, "g")


def test_members_are_removed_until_the_group_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = FakeAdmin("m2")
    assert recovered(monkeypatch, admin) == RecoveryResult(WEDGED.members[:2], WEDGED.members[1])
    assert admin.present == ["m3"]


def test_nothing_is_removed_from_a_group_that_another_process_has_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = FakeAdmin("m2")
    # The other process has begun before this one, and removes the culprit right after the first check of this one.
    admin.present = ["m3"]
    assert recovered(monkeypatch, admin, looks=[True]) == RecoveryResult()
    assert admin.present == ["m3"]
