"""Followers that a leader names and the metadata do not list."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from rackassign.clients.aiokafka import internals
from rackassign.text import WarnOnce

ONCE = WarnOnce(logging.getLogger("rackassign.t"))


class Client:
    """As much of aiokafka's client as is used; new metadata list all brokers, if any come."""

    def __init__(self, follower: int, *, responds: bool = True) -> None:
        self.listed = {1}
        self.cluster = SimpleNamespace(broker_metadata=lambda broker: broker if broker in self.listed else None)
        self.updates = 0
        self._follower = follower
        self._responds = responds

    async def send(self, node_id: Any, request: Any, *, group: int = 0) -> Any:
        del node_id, request, group
        return SimpleNamespace(
            API_KEY=1, API_VERSION=11, topics=[("t", [(0, 0, 100, 100, 0, None, self._follower, b"")])]
        )

    def force_metadata_update(self) -> asyncio.Future[bool]:
        self.updates += 1
        done = asyncio.get_running_loop().create_future()
        if self._responds:
            self.listed |= {self._follower}
            done.set_result(True)
        return done


def fetched(client: Client, times: int = 2) -> None:
    consumer = SimpleNamespace(_client=client)
    internals.find_unknown_followers(consumer, ONCE)

    async def fetch() -> None:
        for _ in range(times):
            await client.send(1, object())

    asyncio.run(fetch())


def test_metadata_are_requested_once_for_a_follower_that_they_do_not_list() -> None:
    client = Client(follower=2)
    fetched(client)
    assert client.updates == 1


@pytest.mark.parametrize("follower", [1, -1])
def test_metadata_are_not_requested_for_a_known_follower_or_none(follower: int) -> None:
    client = Client(follower)
    fetched(client)
    assert client.updates == 0


def test_a_response_is_returned_if_no_metadata_come(warnings: pytest.LogCaptureFixture) -> None:
    client = Client(follower=2, responds=False)
    fetched(client)
    assert client.updates == 2
    assert not warnings.records


def test_a_client_without_what_is_needed_is_left_alone(warnings: pytest.LogCaptureFixture) -> None:
    send = object()
    consumer = SimpleNamespace(_client=SimpleNamespace(send=send))
    internals.find_unknown_followers(consumer, WarnOnce(logging.getLogger("rackassign.t")))
    assert consumer._client.send is send
    assert "a follower that is back may not be read from" in warnings.messages[0]
