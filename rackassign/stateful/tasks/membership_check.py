"""Whether this member is still in its group: asked of the coordinator where the answer matters."""

from __future__ import annotations

from typing import Any

from rackassign.clients.kafka_python.internals import membership_of
from rackassign.stateful.changelog.claims import Claim, member_hash
from rackassign.stateful.files.clock import ElapsedTime
from rackassign.util.log_once import WarnOnce

_SESSION_S = 45.0
"""Kafka's session.timeout.ms."""

_ANSWER_MS = 5000


class MembershipCheck:
    """The membership of a consumer, which may have been lost while this process was stopped.

    A member that resumes after more than its session timeout has probably lost its partitions, and its client needs a
    request to find out. Until the coordinator confirms its generation, or it has another one, it processes nothing.

    Args:
        consumer: The group's consumer.
        once: Logs a warning once.
    """

    def __init__(self, consumer: Any, once: WarnOnce) -> None:  # noqa: ANN401 - kafka-python is untyped
        self._consumer = consumer
        self._membership = membership_of(consumer)
        self._once = once
        session_s = None if self._membership is None else self._membership.session_timeout_s()
        self._session_s = _SESSION_S if session_s is None else session_s
        # A machine may have been suspended: Linux' monotonic clock stops then, and the session ends all the same.
        self._asked = ElapsedTime()
        self._doubted: int | None = None

    @property
    def doubted(self) -> bool:
        """Whether the last call of `present` returned False."""
        return self._doubted is not None

    def claim(self, generation: int) -> Claim:
        """Return this member's claim to the partitions of a generation."""
        return Claim(generation=generation, member=member_hash(self._consumer.group_metadata().member_id or ""))

    def present(self, generation: int) -> bool:
        """Return whether this member may process the partitions of its last assignment.

        Args:
            generation: Generation of the last assignment.
        """
        if self._asked.lap() > self._session_s:
            self._doubted = generation
        if self._doubted == generation and not self.confirmed(generation):
            return False
        self._doubted = None
        return True

    def confirmed(self, generation: int) -> bool:
        """Return whether the coordinator confirms that this is the current generation, and that of this member."""
        if self._membership is None:
            self._once.warn("unconfirmed", "kafka-python differs: after a long pause the membership is not checked")
            return True
        return self._membership.confirm(_ANSWER_MS) and self._membership.generation() == generation
