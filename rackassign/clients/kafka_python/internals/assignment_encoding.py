"""What an assignor answers: the host's own objects, with their bytes made by us.

The host writes an answer field by field through its schema, which for a thousand members takes longer than deciding
what they get. Its coordinator asks an answer for nothing but its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from rackassign.model import Partitions
from rackassign.wire import NEWEST, Assignment, encode_assignment, encode_assignments


def encode_member_assignments(
    target: Mapping[str, Partitions], told: Mapping[str, bytes] | None = None
) -> dict[str, ConsumerProtocolAssignment]:
    """Return an answer for each member.

    Args:
        target: What each gets.
        told: User data that goes with it, for those that have any.
    """
    if told:
        return {
            member: _answer(owned, encode_assignment(Assignment(owned, told.get(member))), told.get(member))
            for member, owned in target.items()
        }
    encoded = encode_assignments(target.values())
    return {member: _answer(owned, data) for (member, owned), data in zip(target.items(), encoded, strict=True)}


def _answer(owned: Partitions, encoded: bytes, told: bytes | None = None) -> ConsumerProtocolAssignment:
    if _Encoded is None:
        return ConsumerProtocolAssignment(NEWEST, _listed(owned), told)
    answer = _Encoded(NEWEST)
    answer.owned, answer.encoded = owned, encoded
    return answer


def _listed(owned: Partitions) -> list[tuple[str, list[int]]]:
    return [(topic, list(ids)) for topic, ids in owned.items()]


def _make_kind() -> Any:
    """Return a kind of the host's assignment that knows its bytes; None if the host's has become another thing.

    `init=False` is how the host derives its own classes from one that has a schema.
    """
    try:

        class Encoded(ConsumerProtocolAssignment, init=False):  # type: ignore[misc, call-arg] # untyped
            owned: Partitions
            encoded: bytes

            @property
            def assigned_partitions(self) -> list[tuple[str, list[int]]]:
                """Partition ids by topic, as the host has them."""
                return _listed(self.owned)

            @assigned_partitions.setter
            def assigned_partitions(self, _default: object) -> None:
                """Refuse nothing: the host sets a default when it makes one."""

            def encode(self, *arguments: Any, **options: Any) -> bytes:
                """Return the bytes; written by the host if they are wanted in another form than it sends."""
                if arguments or options:
                    written: bytes = super().encode(*arguments, **options)
                    return written
                return self.encoded

        Encoded(NEWEST)
    except Exception:  # noqa: BLE001 - then the host's own will do
        return None
    return Encoded


_Encoded = _make_kind()
