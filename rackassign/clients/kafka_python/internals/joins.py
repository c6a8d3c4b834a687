"""A leader's join: loading what a plan needs, encoding assignments, and problems that a client cannot fix.

What a plan needs is loaded while the response to the join is held back, beside the IO thread.

kafka-python encodes an assignment field by field through its schema, which for a thousand members takes longer than
planning. Its coordinator uses only the bytes of an assignment.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from kafka.errors import InconsistentGroupProtocolError, UnknownError
from kafka.future import Future
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from rackassign.clients.kafka_python.internals.attributes import Consumer
from rackassign.model import Partitions
from rackassign.text import WarnOnce, with_version
from rackassign.wire import NEWEST, Assignment, encode_assignment, encode_assignments

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
    """
    # `load` runs once, on a thread of its own. It may raise, as `assign` handles the same error again.
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
        released = Future()
        sent.add_callback(partial(self._respond, released))
        sent.add_errback(released.failure)
        return released

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


def encode_member_assignments(
    target: Mapping[str, Partitions], user_data: Mapping[str, bytes] | None = None
) -> dict[str, ConsumerProtocolAssignment]:
    """Return the encoded assignment of each member.

    Args:
        target: Partitions of each member.
        user_data: User data of members that have any.
    """
    if user_data:
        return {
            member: _answer(owned, encode_assignment(Assignment(owned, user_data.get(member))), user_data.get(member))
            for member, owned in target.items()
        }
    encoded = encode_assignments(target.values())
    return {member: _answer(owned, data) for (member, owned), data in zip(target.items(), encoded, strict=True)}


def _answer(owned: Partitions, encoded: bytes, user_data: bytes | None = None) -> ConsumerProtocolAssignment:
    if _Encoded is None:
        return ConsumerProtocolAssignment(NEWEST, _listed(owned), user_data)
    return _Encoded.of(owned, encoded)


def _listed(owned: Partitions) -> list[tuple[str, list[int]]]:
    return [(topic, list(ids)) for topic, ids in owned.items()]


def _make_kind() -> Any:
    """Return a subclass of kafka-python's assignment with encoded bytes; None if its class has changed.

    kafka-python derives its own classes from one that has a schema with `init=False`, as here.
    """
    try:

        class Encoded(ConsumerProtocolAssignment, init=False):  # type: ignore[misc, call-arg] # untyped
            owned: Partitions
            encoded: bytes
            set_by_constructor: ClassVar[Sequence[tuple[str, Any]]]

            @classmethod
            def of(cls, owned: Partitions, encoded: bytes) -> Any:
                """Return an assignment as kafka-python's constructor makes it, which iterates over its schema."""
                answer = cls.__new__(cls)
                for name, value in cls.set_by_constructor:
                    setattr(answer, name, value)
                answer.owned, answer.encoded = owned, encoded
                return answer

            @property
            def assigned_partitions(self) -> list[tuple[str, list[int]]]:
                """Partition IDs by topic, in kafka-python's form."""
                return _listed(self.owned)

            @assigned_partitions.setter
            def assigned_partitions(self, _default: object) -> None:
                """Accept and ignore any value: kafka-python sets a default when it creates an instance."""

            def encode(self, *arguments: Any, **options: Any) -> bytes:
                """Return the bytes; kafka-python encodes them if another form than the usual one is requested."""
                if arguments or options:
                    written: bytes = super().encode(*arguments, **options)
                    return written
                return self.encoded

        made = Encoded(NEWEST)
        slots = {name for kind in Encoded.__mro__ for name in getattr(kind, "__slots__", ())} - {"assigned_partitions"}
        Encoded.set_by_constructor = [(name, getattr(made, name)) for name in sorted(slots)]
    except Exception:  # noqa: BLE001 - then kafka-python's own class is used
        return None
    return Encoded


_Encoded = _make_kind()


_ENOUGH = 3
"""Number of consecutive joins that fail inside the broker before the warning: a single one may be accidental."""


def warn_on_join_response(consumer: Consumer, once: WarnOnce) -> None:
    """Warn if the broker assigns instead of a member, refuses its strategies, or fails at each join.

    Shadows `_coordinator._process_join_group_response`. A response without error and without a leader comes from a
    group with a KIP-848 member: seen with Apache Kafka 4.3, where a group of classic members always has a leader.
    """
    coordinator: Any = getattr(consumer, "_coordinator", None)
    original = getattr(coordinator, "_process_join_group_response", None)
    if original is None or tuple(inspect.signature(original).parameters) != ("response", "send_time"):
        once.warn("signs", "%s differs: join responses are not checked", with_version("kafka-python"))
        return
    failed = 0

    def process_join_group_response(response: Any, send_time: float) -> Any:
        nonlocal failed
        try:
            failed = failed + 1 if response.error_code == UnknownError.errno else 0
            _warn(coordinator.group_id, response, failed, once)
            if response.error_code == InconsistentGroupProtocolError.errno:
                _warn_of_strategies(coordinator, once)
        except Exception:  # noqa: BLE001 - what cannot be read here must still be processed
            once.warn(
                "signs", "%s differs: a join response cannot be read", with_version("kafka-python"), exc_info=True
            )
        return original(response, send_time)

    coordinator._process_join_group_response = process_join_group_response


def _warn(group: str, response: Any, failed: int, once: WarnOnce) -> None:
    if response.error_code == 0 and not response.leader:
        once.warn(
            "next generation",
            "a member of group %s uses the new consumer protocol (KIP-848): the broker assigns then, and ignores racks"
            " unless it has the broker plug-in. `rackassign doctor --group %s` shows details",
            *(group, group),
        )
    if failed == _ENOUGH:
        once.warn(
            "wedged",
            "the broker fails at each join of group %s: a member with a malformed subscription may have broken it."
            " `rackassign doctor --group %s --fix` frees such a group",
            *(group, group),
        )


def _warn_of_strategies(coordinator: Any, once: WarnOnce) -> None:
    """Warn that the member cannot join, and why: the error that kafka-python raises names no strategy."""
    once.warn(
        "strategies",
        "the broker does not let this member into group %s: none of its strategies (%s) is"
        " one that all members of the group have. `rackassign doctor --group %s` shows theirs. Choose the assignor"
        " with the same name, or move the group in two rolling restarts",
        *(coordinator.group_id, ", ".join(coordinator._assignors), coordinator.group_id),
    )
