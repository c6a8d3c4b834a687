"""A consumer's fetch responses, before aiokafka gets them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from rackassign.clients.aiokafka.internals.metadata import Consumer
from rackassign.clients.fetch_metrics import FetchedPartition, Observer, count_records
from rackassign.model import TopicPartition
from rackassign.text import WarnOnce, with_version

Step = Callable[[Sequence[FetchedPartition]], Awaitable[None]]
"""What is done before a fetch response is returned; it must end soon."""


def observe_fetches(consumer: Consumer, observer: Observer, once: WarnOnce, *, key: object) -> None:
    """Pass every fetch response to an observer, unless there is one for this key already.

    Shadows `_client.send`, which is looked up for each request and exists from the start.
    """
    sending = _sending(consumer, once)
    if sending is not None:
        sending.observers.setdefault(key, observer)


def before_fetches_return(consumer: Consumer, step: Step, once: WarnOnce) -> None:
    """Do this before aiokafka gets a fetch response; only the first step that is given is done."""
    sending = _sending(consumer, once)
    if sending is not None and sending.step is None:
        sending.step = step


def _sending(consumer: Consumer, once: WarnOnce) -> _Sending | None:
    """Return what a consumer sends requests with, shadowed; None if aiokafka has changed."""
    client = getattr(consumer, "_client", None)
    send = getattr(client, "send", None)
    sending = getattr(send, "__self__", None)
    if isinstance(sending, _Sending):
        return sending
    if send is None or tuple(inspect.signature(send).parameters) != ("node_id", "request", "group"):
        once.warn("fetches", "%s differs: fetches are not observed", with_version("aiokafka"))
        return None
    sending = _Sending(send, once)
    client.send = sending.send  # type: ignore[union-attr]
    return sending


_FETCH = 1
"""API key of fetch requests in Kafka's protocol."""


class _Sending:
    """Passes fetch responses to observers before aiokafka gets them."""

    def __init__(self, send: Callable[..., Awaitable[Any]], once: WarnOnce) -> None:
        self.observers: dict[object, Observer] = {}
        self.step: Step | None = None
        self._send = send
        self._once = once

    async def send(self, node_id: Any, request: Any, **options: Any) -> Any:
        response = await self._send(node_id, request, **options)
        try:
            if getattr(response, "API_KEY", None) == _FETCH and isinstance(node_id, int):
                fetched = _fetched(response)
                for observe in tuple(self.observers.values()):
                    observe(node_id, fetched)
                if self.step is not None:
                    await self.step(fetched)
        except Exception:  # noqa: BLE001 - a response that could not be observed must still be read
            self._once.warn(
                "fetches", "%s differs: a fetch response could not be observed", with_version("aiokafka"), exc_info=True
            )
        return response


_NAMES_FOLLOWERS = 11
"""First version of fetch responses that may name another replica; it comes before the records, which are last."""


def _fetched(response: Any) -> list[FetchedPartition]:
    found: list[FetchedPartition] = []
    for topic, partitions in response.topics:
        for partition, *rest in partitions:
            batches = rest[-1] or b""
            preferred = rest[-2] if response.API_VERSION >= _NAMES_FOLLOWERS else -1
            found.append(
                FetchedPartition(
                    TopicPartition(topic, partition),
                    len(batches),
                    count_records(batches),
                    preferred if preferred >= 0 else None,
                )
            )
    return found
