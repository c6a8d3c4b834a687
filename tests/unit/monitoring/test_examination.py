"""The examination of a group: what is done in which order, without a broker."""

from __future__ import annotations

from typing import Any

import pytest

from rackassign.admin.cluster import DescribedTopic
from rackassign.model import Partition
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
    monkeypatch.setattr(examination, "describe_topics", lambda *_: {})
    examined = examine(ADMIN, "g", observe_s=10, fix=fix)
    assert examined.group == (HEALTHY if fix else WEDGED)
    assert examined.recovery == (removed if fix else RecoveryResult())
    assert ("wedged" in {finding.kind for finding in examined.findings}) is not fix


def test_a_dead_broker_that_the_cluster_does_not_list_is_found_by_its_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "GroupAdmin", lambda _: None)
    monkeypatch.setattr(examination, "watch", lambda *_, **__: GroupObservation(HEALTHY, ("Stable",), 0, 0.0))
    monkeypatch.setattr(examination, "describe_brokers", lambda _: brokers("ab"))
    described = DescribedTopic((Partition((1, 3), 1), Partition((2, 1), 2)))
    monkeypatch.setattr(examination, "describe_topics", lambda *_: {"t": described})
    found = {finding.kind: finding.brokers for finding in examine(ADMIN, "g", observe_s=0).findings}
    assert found == {"brokers-offline": (3,)}
