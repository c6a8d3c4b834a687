"""Responses to fetches and joins, observed on their way to aiokafka.

The rack that a consumer fetches with, found from its coordinator.

Followers that a leader names and the metadata do not list.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from rackassign.clients.aiokafka import patches
from rackassign.clients.aiokafka.internals import Membership, fetch_rack
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
        patches.observe_fetches(
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
    patches.observe_fetches(consumer, lambda *_: None, WarnOnce(logging.getLogger("rackassign.t")), key="k")
    patches.observe_fetches(SimpleNamespace(), lambda *_: None, WarnOnce(logging.getLogger("rackassign.t")), key="k")
    assert consumer._client.send is send
    assert [record.getMessage().split(": ", 1)[1] for record in warnings.records] == [
        "fetches are not observed, and joins and timeouts may end the consumer"
    ] * 2


class Fetcher:
    def __init__(self, subscriptions: object, **attributes: Any) -> None:
        self._subscriptions = subscriptions
        vars(self).update(attributes)

    async def fetch(self) -> None:
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("attributes", "rack"),
    [({"_client_rack": "a"}, "a"), ({"_client_rack": None}, ""), ({"_client_rack": 7}, ""), ({}, "")],
)
def test_the_fetcher_with_the_same_subscription_is_asked(attributes: dict[str, Any], rack: str) -> None:
    async def play() -> str | None:
        mine = object()
        fetchers = [Fetcher(object(), _client_rack="other"), Fetcher(mine, **attributes)]
        tasks = [asyncio.ensure_future(each.fetch()) for each in fetchers]
        await asyncio.sleep(0)
        try:
            return fetch_rack(Membership(SimpleNamespace(_subscription=mine)))
        finally:
            for task in tasks:
                task.cancel()

    assert asyncio.run(play()) == rack


ONCE = WarnOnce(logging.getLogger("rackassign.t"))


class StaleClient:
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


def fetched(client: StaleClient, times: int = 2) -> None:
    consumer = SimpleNamespace(_client=client)
    patches.find_unknown_followers(consumer, ONCE)

    async def fetch() -> None:
        for _ in range(times):
            await client.send(1, object())

    asyncio.run(fetch())


@pytest.mark.parametrize(
    ("follower", "responds", "updates"),
    [
        pytest.param(2, True, 1, id="once for one that they do not list"),
        pytest.param(2, False, 2, id="again if none come"),
        pytest.param(1, True, 0, id="not for one that they list"),
        pytest.param(-1, True, 0, id="not for none"),
    ],
)
def test_metadata_are_requested_for_a_follower_that_they_do_not_list(
    follower: int, updates: int, warnings: pytest.LogCaptureFixture, *, responds: bool
) -> None:
    client = StaleClient(follower, responds=responds)
    fetched(client)
    assert client.updates == updates
    assert not warnings.records


def test_a_client_without_what_is_needed_is_left_alone(warnings: pytest.LogCaptureFixture) -> None:
    send = object()
    consumer = SimpleNamespace(_client=SimpleNamespace(send=send))
    patches.find_unknown_followers(consumer, WarnOnce(logging.getLogger("rackassign.t")))
    assert consumer._client.send is send
    assert "a follower that is back may not be read from" in warnings.messages[0]


def test_a_coordinator_that_commits_in_another_way_is_left_alone(warnings: pytest.LogCaptureFixture) -> None:
    class Coordinator:
        async def _do_commit_offsets(self, assignment: object, offsets: object, more: object) -> None:
            raise NotImplementedError

    coordinator = Coordinator()

    patches.end_commits(coordinator, WarnOnce(logging.getLogger("t")))

    (warning,) = warnings.records
    assert "differs" in warning.message
    assert not vars(coordinator)
