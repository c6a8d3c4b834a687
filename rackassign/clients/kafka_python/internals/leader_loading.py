"""Loading of what a plan needs while the response to a leader's join is held back, beside the IO thread."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Any

from kafka.future import Future

from rackassign.clients.kafka_python.internals.attributes import Consumer
from rackassign.text import WarnOnce, with_version

_KEY = "_rackassign_loading"
_DIFFERS = "%s differs: what a plan needs is loaded on its IO thread"


def load_before_leading(
    consumer: Consumer, protocols: Collection[str], load: Callable[[], None], once: WarnOnce
) -> None:
    """Call `load` on a thread once this member is elected leader, and let the join go on after that.

    kafka-python calls `assign` on its IO thread, in one step with the response to the join. Without this, an import
    in `assign` would stop fetches and the commits of other partitions. Shadows `_coordinator._manager.send`, which
    returns a `Future`, and the response of a JoinGroup request (`leader`, `member_id`, `protocol_name`) is passed on
    later: for kafka-python the broker has responded later. Done once for a consumer; if kafka-python differs, `load`
    is left to `assign`.

    Args:
        consumer: The consumer.
        protocols: Names of the assignors that need it.
        load: Called once, on a thread of its own. It may raise, as `assign` handles the same error again.
        once: Logger for warnings.
    """
    manager: Any = getattr(getattr(consumer, "_coordinator", None), "_manager", None)
    send = getattr(manager, "send", None)
    if not protocols or _KEY in vars(consumer):
        return
    if (
        send is None
        or tuple(inspect.signature(send).parameters) != ("request", "node_id", "request_timeout_ms")
        or not callable(getattr(manager, "call_soon", None))
    ):
        once.warn("loading", _DIFFERS, with_version("kafka-python"))
        return
    loading = _Loading(manager.call_soon, frozenset(protocols), load, once)

    def send_or_hold(request: Any, node_id: Any = None, request_timeout_ms: Any = None) -> Any:
        sent = send(request, node_id, request_timeout_ms)
        if loading.done or type(request).__name__ != "JoinGroupRequest":
            return sent
        return loading.hold(sent)

    manager.send = send_or_hold
    consumer.__dict__[_KEY] = loading


class _Loading:
    """Holds responses back until `load` has returned once."""

    def __init__(
        self, call_soon: Callable[..., Any], protocols: frozenset[str], load: Callable[[], None], once: WarnOnce
    ) -> None:
        self.done = False
        self._call_soon = call_soon
        self._protocols = protocols
        self._load = load
        self._once = once

    def hold(self, sent: Any) -> Any:
        """Return a future that has the response to a join, or its error."""
        held = Future()
        sent.add_callback(partial(self._respond, held))
        sent.add_errback(held.failure)
        return held

    def _respond(self, held: Any, response: Any) -> None:
        """Pass a response on, behind `load` if it elects this member. Called on the IO thread."""
        if self.done or not self._elected(response):
            held.success(response)
            return
        loading = threading.Thread(target=self._run, args=(held, response), name="rackassign-load", daemon=True)
        try:
            loading.start()
        except RuntimeError:
            # No thread can be started now. Then `assign` loads, as a response that is held for ever ends the group.
            held.success(response)

    def _elected(self, response: Any) -> bool:
        try:
            return response.leader == response.member_id and response.protocol_name in self._protocols
        except Exception:  # noqa: BLE001 - a response that is not passed on would end the membership
            self._once.warn("loading", _DIFFERS, with_version("kafka-python"), exc_info=True)
            return False

    def _run(self, held: Any, response: Any) -> None:
        # The plan fails for the same reason then, and that is handled and logged.
        with suppress(Exception):
            self._load()
        self.done = True

        def respond() -> None:
            held.success(response)

        # The consumer may have been closed meanwhile, and its IO loop with it.
        with suppress(Exception):
            self._call_soon(respond)
