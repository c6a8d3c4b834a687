"""Fetch responses of aiokafka, seen on their way to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from rackassign.clients.aiokafka import internals
from rackassign.text import WarnOnce


def fetch_response(version: int, *rest: Any) -> Any:
    return SimpleNamespace(API_KEY=1, API_VERSION=version, topics=[("t", [(3, 0, 100, *rest)])])


class Client:
    """As much of aiokafka's client as a meter meets."""

    def __init__(self, responses: Mapping[int, Any]) -> None:
        self._responses = responses

    async def send(self, node_id: Any, request: Any, *, group: int = 0) -> Any:
        del request, group
        return self._responses[node_id]


def test_every_fetch_response_is_seen_and_reaches_the_host(warnings: pytest.LogCaptureFixture) -> None:
    responses = {
        1: fetch_response(4, 100, None, b"12345"),
        2: fetch_response(11, 100, 0, None, 3, None),
        3: fetch_response(11, 100, 0, None, -1, b"1234567"),
        4: SimpleNamespace(API_KEY=3),
        5: SimpleNamespace(API_KEY=1, topics=None),
    }
    seen: list[tuple[int, list[tuple[int, int | None]]]] = []
    consumer = SimpleNamespace(_client=Client(responses))
    once = WarnOnce(logging.getLogger("rackassign.t"))
    for _ in range(2):
        internals.observe_fetches(
            consumer,
            lambda broker, parts: seen.append((broker, [(part.size, part.preferred_replica) for part in parts])),
            once,
            key="k",
        )

    async def play() -> None:
        for node, response in responses.items():
            for _ in range(1 + (node == 5)):
                assert await consumer._client.send(node, object(), group=0) is response

    asyncio.run(play())
    assert seen == [(1, [(5, None)]), (2, [(0, 3)]), (3, [(7, None)])]
    assert len(warnings.records) == 1


def test_a_client_that_sends_in_another_way_is_left_alone(warnings: pytest.LogCaptureFixture) -> None:
    def send(request: object) -> object:
        return request

    consumer = SimpleNamespace(_client=SimpleNamespace(send=send))
    internals.observe_fetches(consumer, lambda *_: None, WarnOnce(logging.getLogger("rackassign.t")), key="k")
    internals.observe_fetches(SimpleNamespace(), lambda *_: None, WarnOnce(logging.getLogger("rackassign.t")), key="k")
    assert consumer._client.send is send
    assert [record.getMessage().split(": ", 1)[1] for record in warnings.records] == ["fetches are not observed"] * 2
