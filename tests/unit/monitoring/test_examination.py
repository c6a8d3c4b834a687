"""The examination of a group: what is done in which order, without a broker."""

from __future__ import annotations

from typing import Any

import pytest

from rackassign.monitoring import GroupObservation, RecoveryResult, examination, examine
from tests.helpers.builders import brokers, group, member

ADMIN: Any = object()
HEALTHY = group(member("m1", "a", {}), state="Stable")
WEDGED = group(member("m1", "a", {}), state="PreparingRebalance", strategy="")


@pytest.mark.parametrize("fix", [False, True])
def test_a_wedged_group_is_recovered_only_on_request_and_then_observed_again(
    monkeypatch: pytest.MonkeyPatch, *, fix: bool
) -> None:
    looks = [GroupObservation(each, (each.state,), 0, 10.0) for each in (WEDGED, HEALTHY)]
    removed = RecoveryResult(WEDGED.members, WEDGED.members[0])
    monkeypatch.setattr(examination, "GroupAdmin", lambda _: None)
    monkeypatch.setattr(examination, "watch", lambda *_, **__: looks.pop(0))
    monkeypatch.setattr(examination, "is_wedged", lambda *_: True)
    monkeypatch.setattr(examination, "recover", lambda *_: removed)
    monkeypatch.setattr(examination, "describe_brokers", lambda _: brokers())
    examined = examine(ADMIN, "g", observe_s=10, fix=fix)
    assert examined.group == (HEALTHY if fix else WEDGED)
    assert examined.recovery == (removed if fix else RecoveryResult())
    assert ("wedged" in {finding.kind for finding in examined.findings}) is not fix
