"""What a leader learns of its members in a join."""

from __future__ import annotations

import logging
import uuid
from types import SimpleNamespace

import pytest

from rackassign.assignor.subscriptions import is_former_id, sanitize_subscriptions
from rackassign.text import WarnOnce
from rackassign.wire import Subscription, decode_subscription, encode_subscription

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


def test_what_a_client_could_not_decode_is_replaced_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    sent = {"m1": Subscription(("t", "no topic"), rack="a"), "m2": Subscription(("t",), rack="b")}
    joined = [SimpleNamespace(member_id=name, metadata=encode_subscription(of)) for name, of in sent.items()]
    joined.append(SimpleNamespace(member_id="m3", metadata=b"\0"))
    once = WarnOnce(logging.getLogger("rackassign.test"))

    for _ in range(2):
        read = sanitize_subscriptions(joined, once)

    assert [read[name].topics for name in ("m1", "m2", "m3")] == [("t",), ("t",), ()]
    assert [decode_subscription(each.metadata).topics for each in joined] == [("t",), ("t",), ()]
    assert [message.split(";")[0].split(":")[0] for message in caplog.messages] == [
        "member m1 subscribes to invalid topic names",
        "member m3 gets no partitions",
    ]
