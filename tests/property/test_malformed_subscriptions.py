"""A leader beside members that send anything at all."""

from __future__ import annotations

import logging
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from rackassign import RackAwareCooperativeStickyAssignor, RackAwareRangeAssignor, RackAwareStickyAssignor
from rackassign.assignor.subscriptions import decode_join
from rackassign.text import WarnOnce
from rackassign.wire import StickyData, Subscription, encode_sticky, encode_subscription
from tests.helpers.fakes.kafka_python import FakeCluster, given_out
from tests.helpers.generators.malformed_inputs import broker_survives, subscriptions

HOSTILE, AT_A_TIME, PARTITIONS = 10_000, 20, 6

CLUSTER = FakeCluster({1: "a", 2: "b"}, {"t": [[1], [2]] * (PARTITIONS // 2), "h": [[1]]})

HONEST = {"m1": (0, 2, 4), "m2": (1, 3, 5)}


def honest(name: str, rack: str) -> SimpleNamespace:
    owned = {"t": HONEST[name]}
    user_data = encode_sticky(StickyData(owned, 4))
    data = encode_subscription(Subscription(("t",), user_data, owned, 4, rack))
    return SimpleNamespace(member_id=name, group_instance_id=None, metadata=data)


@pytest.mark.long
@pytest.mark.parametrize("kind", [RackAwareRangeAssignor, RackAwareStickyAssignor, RackAwareCooperativeStickyAssignor])
def test_whatever_ten_thousand_members_send_the_others_have_their_partitions(
    kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """From the bytes of the join on, with kafka-python's own decoding in between."""
    caplog.set_level(logging.WARNING, "rackassign")
    once = WarnOnce(logging.getLogger("test"))
    assignor = kind(rack="a")
    source = subscriptions("h", "t", PARTITIONS, seed=881)
    broken = 0
    for _ in range(HOSTILE // AT_A_TIME):
        sent = [
            SimpleNamespace(member_id=f"h{i:02}", group_instance_id=None, metadata=data)
            for i, data in enumerate(islice(source, AT_A_TIME))
        ]
        members = [honest("m1", "a"), *sent, honest("m2", "b")]
        join = decode_join(members, assignor, once)
        for member in join:
            member.metadata = ConsumerProtocolSubscription.decode(member.metadata)
        answer = given_out(assignor.assign(CLUSTER, join))
        assert answer.keys() == {member.member_id for member in members}
        places = [place for owned in answer.values() for place in owned]
        assert len(set(places)) == len(places)
        got = {name: tuple(p for topic, p in answer[name] if topic == "t") for name in HONEST}
        if kind is RackAwareCooperativeStickyAssignor:
            # What a member claims by a higher generation it may really have: it is withheld, and given to nobody.
            assert all(set(got[name]) <= set(HONEST[name]) for name in HONEST)
            broken += got != HONEST
        else:
            assert got == HONEST
    assert "failed; the group gets a plain assignment" not in caplog.text
    # Most of it is no claim that counts.
    assert broken < HOSTILE // AT_A_TIME


def test_what_breaks_the_broker_is_told_from_what_does_not() -> None:
    sound = encode_subscription(Subscription(("t",), b"abc", {}, 4, "a"))
    assert broker_survives(sound)
    assert broker_survives(sound[:-1])
    assert broker_survives(b"")
    assert not broker_survives(sound[:2] + b"\xff\xff\xff\xff" + sound[6:])
    assert not broker_survives(sound[:2] + b"\x7f\x00\x00\x00" + sound[6:])
    assert not broker_survives(sound[:6] + b"\xff\xff" + sound[8:])
    some = list(islice(subscriptions("h", "t", PARTITIONS, seed=1), 1000))
    assert 300 < sum(map(broker_survives, some)) < 900
