"""Assignments as kafka-python's own objects, encoded by rackassign.

kafka-python encodes an assignment field by field through its schema, which for a thousand members takes longer than
planning. Its coordinator uses only the bytes of an assignment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from rackassign.model import Partitions
from rackassign.wire import NEWEST, Assignment, encode_assignment, encode_assignments


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
