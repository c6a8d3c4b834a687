"""What members were assigned in each generation, and how a member sees itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kafka import KafkaConsumer

from rackassign import RackAwareRangeAssignor
from rackassign.model import TopicPartition
from rackassign.testing.harness import Owned, to_owned


class State(NamedTuple):
    """How a member sees itself."""

    id: str = ""
    generation: int = -1
    resting: bool = False
    """It has what it was given last and does not mean to join again."""
    owned: Owned = frozenset()


class Given(NamedTuple):
    """The assignment of a member in a generation."""

    generation: int
    owned: Owned


class Recorder(RackAwareRangeAssignor):
    """Our range assignor, which keeps what it decided: for each time it led, what each member id got."""

    def __init__(self, rack: str) -> None:
        super().__init__(rack)
        self.decided: list[dict[str, Owned]] = []

    def assign(self, cluster: Any, members: Any) -> Any:
        decided = super().assign(cluster, members)
        self.decided.append({member: _owned(assignment) for member, assignment in decided.items()})
        return decided


def note_assignments(consumer: KafkaConsumer, note: Callable[[Given], None]) -> None:
    """Record the assignment of each generation, with any assignors."""
    for assignor in consumer._coordinator._assignors.values():
        _note(assignor, note)


def _note(assignor: Any, note: Callable[[Given], None]) -> None:
    original = assignor.on_assignment

    def on_assignment(assignment: Any, generation: int) -> None:
        note(Given(generation, frozenset(TopicPartition(*tp) for tp in assignment.partitions())))
        original(assignment, generation)

    assignor.on_assignment = on_assignment


def state_of(consumer: KafkaConsumer) -> State:
    group = consumer.group_metadata()
    return State(
        str(group.member_id),
        group.generation_id,
        group.state == "<stable>" and not consumer._coordinator.need_rejoin(),
        to_owned(consumer.assignment()),
    )


def _owned(assignment: Any) -> Owned:
    return frozenset(TopicPartition(topic, p) for topic, ids in assignment.assigned_partitions for p in ids)
