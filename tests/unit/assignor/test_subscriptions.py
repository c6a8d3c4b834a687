"""What a leader learns of its members in a join."""

from __future__ import annotations

import uuid

import pytest

from rackassign.assignor.subscriptions import is_former_id

ID = str(uuid.UUID(int=7))
NEW = f"one-{uuid.UUID(int=8)}"


@pytest.mark.parametrize(
    ("leader", "instance_id", "member_id", "former"),
    [
        (f"one-{ID}", "one", NEW, True),
        pytest.param(NEW, "one", NEW, False, id="it leads"),
        pytest.param(f"two-{ID}", "one", NEW, False, id="another one leads"),
        pytest.param(f"one-two-{ID}", "one", NEW, False, id="another one leads, whose name begins alike"),
        pytest.param(f"client-{ID}", None, f"client-{uuid.UUID(int=8)}", False, id="not static"),
        pytest.param(ID, "one", NEW, False, id="no name"),
        pytest.param("", "one", NEW, False, id="no leader"),
    ],
)
def test_a_static_leader_that_has_returned_is_known_by_its_former_id(
    leader: str, instance_id: str | None, member_id: str, *, former: bool
) -> None:
    assert is_former_id(leader, instance_id, member_id) is former
