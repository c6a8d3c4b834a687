"""Requests that change a cluster, through an admin client of kafka-python and without its traps.

A request that fails for want of a connection may have been carried out all the same. So what is asked for a second
time is looked at first: a topic that exists by then, with the replicas that were asked for, was made by us.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kafka import KafkaAdminClient
from kafka.errors import BrokerResponseError, TopicAlreadyExistsError, for_code

from rackassign.admin.authorization import CLUSTER, check_authorized, topic_resource
from rackassign.admin.cluster import MIN_ISR
from rackassign.admin.cluster import describe_topics as described
from rackassign.admin.raw_requests import DEAD, forget_controller
from rackassign.errors import KafkaUnavailableError

_PATIENCE_S = 30.0
"""How long a cluster may be without a controller."""

_PAUSE_S = 0.5

T = TypeVar("T")


class RequestRejectedError(KafkaUnavailableError):
    """The cluster does not do what it was asked for.

    Args:
        what: That was asked for.
        kind: Name of Kafka's error.
        reason: In the broker's own words; may be empty.
    """

    def __init__(self, what: str, kind: str, reason: str) -> None:
        super().__init__(f"{what}: {kind}" + (f": {reason}" if reason else ""))
        self.kind = kind


@dataclass(frozen=True, slots=True)
class TopicValidation:
    """What the cluster says to a topic that is not made yet.

    Args:
        min_isr: `min.insync.replicas` as it would be; None if it does not say.
    """

    min_isr: int | None


class TopicAdmin:
    """Sends to whichever broker takes changes.

    Args:
        admin: To send with.
    """

    def __init__(self, admin: KafkaAdminClient) -> None:
        self._admin = admin

    def validate(
        self, name: str, configs: Mapping[str, str], lists: Sequence[Sequence[int]] | None = None
    ) -> TopicValidation:
        """Have a topic checked; nothing is made.

        Args:
            name: Of the topic.
            configs: Its configuration.
            lists: The replicas of each partition; left out, one replica somewhere.

        Raises:
            RefusedError: It would not be made.
            NotAllowedError: It may not be made, or `min.insync.replicas` of it may not be known.
            KafkaError: As the admin client does.
        """
        said = self.send(lambda: self._create(name, configs, lists, validate_only=True))
        _check(name, said)
        configured = said.get("configs") or {}
        value = configured.get(MIN_ISR, {}).get("value") or configs.get(MIN_ISR)
        if value is None:
            # To some it is made for, and not told of.
            check_authorized(said.get("topic_config_error_code"), "DESCRIBE_CONFIGS", topic_resource([name]))
        return TopicValidation(int(value) if value is not None else None)

    def create(self, name: str, configs: Mapping[str, str], lists: Sequence[Sequence[int]]) -> None:
        """Make a topic with these replicas.

        Raises:
            RefusedError: It is not made.
            NotAllowedError: It may not be made.
            KafkaError: As the admin client does.
        """
        tries = 0

        def ask() -> dict[str, Any]:
            nonlocal tries
            tries += 1
            return self._create(name, configs, lists, validate_only=False)

        said = self.send(ask)
        exists = said["error_code"] == TopicAlreadyExistsError.errno
        if not (exists and tries > 1 and self._lies(name, lists)):
            _check(name, said)

    def add(self, name: str, count: int, lists: Sequence[Sequence[int]], *, validate_only: bool = False) -> None:
        """Add partitions to a topic.

        Args:
            name: Of the topic.
            count: How many it has then.
            lists: The replicas of each that is new.
            validate_only: Check it alone.

        Raises:
            RefusedError: They are not added.
            NotAllowedError: They may not be added.
            KafkaError: As the admin client does.
        """
        wanted = {name: {"count": count, "assignments": [list(row) for row in lists]}}
        tries = 0

        def ask() -> Any:  # noqa: ANN401 - the host is untyped
            nonlocal tries
            tries += 1
            return self._admin.create_partitions(wanted, validate_only=validate_only, raise_errors=False)

        (said,) = self.send(ask).results
        check_authorized(said.error_code, "ALTER", topic_resource([name]))
        if said.error_code and not (tries > 1 and not validate_only and self._ends(name, count, lists)):
            raise RequestRejectedError(f"topic {name}", for_code(said.error_code).__name__, said.error_message or "")

    def _create(
        self, name: str, configs: Mapping[str, str], lists: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> dict[str, Any]:
        counts = {"num_partitions": 1, "replication_factor": 1}
        assigned = {"assignments": {i: list(row) for i, row in enumerate(lists or ())}}
        wanted = {name: {**(counts if lists is None else assigned), "configs": dict(configs)}}
        # By default the host raises the first error it finds.
        answer = self._admin.create_topics(wanted, validate_only=validate_only, raise_errors=False)
        found: dict[str, Any] = answer["topics"][0]
        return found

    def _lies(self, name: str, lists: Sequence[Sequence[int]]) -> bool:
        return self._ends(name, len(lists), lists)

    def _ends(self, name: str, count: int, lists: Sequence[Sequence[int]]) -> bool:
        """Tell whether a topic has so many partitions, and these replicas in the last of them."""
        found = described(self._admin, [name])[name].partitions
        return len(found) == count and [p.replicas for p in found[count - len(lists) :]] == [
            tuple(row) for row in lists
        ]

    def send(self, ask: Callable[[], T]) -> T:
        """Return what `ask` returns, asking again as long as the controller that the host knows is gone.

        Raises:
            KafkaError: As the admin client does.
        """
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return ask()
            except DEAD:
                if time.monotonic() > until:
                    raise
            forget_controller(self._admin)
            time.sleep(_PAUSE_S)


def _check(name: str, said: Mapping[str, Any]) -> None:
    check_authorized(said["error_code"], "CREATE", f"{topic_resource([name])}, or on {CLUSTER}")
    if said["error_code"]:
        error: type[BrokerResponseError] = for_code(said["error_code"])
        raise RequestRejectedError(f"topic {name}", error.__name__, said.get("error_message") or "")
