"""The rack that a consumer fetches with, found from its coordinator."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rackassign.clients.aiokafka.internals import Membership, fetch_rack


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


@pytest.mark.parametrize("coordinator", [SimpleNamespace(), SimpleNamespace(_subscription=object())])
def test_without_a_fetcher_nothing_is_known(coordinator: Any) -> None:
    async def play() -> str | None:
        return fetch_rack(Membership(coordinator))

    assert asyncio.run(play()) is None
