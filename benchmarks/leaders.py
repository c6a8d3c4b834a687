"""Leaders of a group to compare: rackassign, kafka-python's own assignors, and Java's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.protocol.consumer import JoinGroupResponse
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from benchmarks.leader_join import cluster_of
from rackassign.model import Group, Partitions
from rackassign.scenario import write_group
from rackassign.strategies import Options, plan_cooperative
from tests.helpers.java.assignor_peer import JavaPeer, JavaRaisedError, PeerLostError

if TYPE_CHECKING:
    from typing_extensions import Self

TIMEOUT_S = 20.0
"""Java's general builder may go round in circles for ever."""


class NoAnswerError(Exception):
    """The assignor raised, or did not come to an end."""


class Leader(Protocol):
    """Decides for a group.

    Args:
        name: For people.
        cooperative: Whether members keep what they own while they join, and what moves is withheld first.
    """

    name: str
    cooperative: bool

    def assign(self, group: Group) -> Mapping[str, Partitions]:
        """Return what each member gets in this rebalance.

        Raises:
            NoAnswerError: There is no answer.
        """


class Ours:
    """`plan_cooperative`.

    Args:
        options: Its options.
        kind: What tells it from the defaults, for people.
    """

    cooperative = True

    def __init__(self, options: Options | None = None, kind: str = "") -> None:
        self._options = options or Options()
        self.name = f"rackassign cooperative-sticky{kind}"

    def assign(self, group: Group) -> Mapping[str, Partitions]:
        """Plan."""
        return plan_cooperative(group, self._options).assignment


class KafkaPython:
    """An assignor of kafka-python: told of each member's last assignment, then asked, as its coordinator does it.

    Args:
        kind: The class, `CooperativeStickyAssignor` or `StickyPartitionAssignor`.
    """

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self.name = f"kafka-python {kind.name}"
        self.cooperative = kind is CooperativeStickyAssignor

    @classmethod
    def both(cls) -> tuple[KafkaPython, KafkaPython]:
        """Return the cooperative and the eager one."""
        return cls(CooperativeStickyAssignor), cls(StickyPartitionAssignor)

    def assign(self, group: Group) -> Mapping[str, Partitions]:
        """Send all joins over the wire and let the leader decide."""
        joined = []
        for member in group.members:
            assignor = self._kind()
            if member.generation is not None:
                owned = [(topic, list(ids)) for topic, ids in member.owned.items()]
                # Version 3 has all the fields there are.
                assignor.on_assignment(ConsumerProtocolAssignment(3, owned, b""), member.generation)
            sent = ConsumerProtocolSubscription.decode(assignor.metadata(sorted(member.topics)).encode())
            joined.append(
                JoinGroupResponse.JoinGroupResponseMember(member_id=member.id, group_instance_id=None, metadata=sent)
            )
        decided = self._kind().assign(cluster_of(group.topology), joined)
        return {
            member: {topic: tuple(sorted(ids)) for topic, ids in answer.assigned_partitions}
            for member, answer in decided.items()
        }


class Java:
    """Kafka's `CooperativeStickyAssignor`. For a `with` block.

    Raises:
        NoJdkError: On entering: there is no JDK.
    """

    name = "Java cooperative-sticky"
    cooperative = True

    def __init__(self) -> None:
        self._peer: JavaPeer | None = None

    def __enter__(self) -> Self:
        self._peer = JavaPeer().__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._peer is not None:
            self._peer.__exit__()
            self._peer = None

    def assign(self, group: Group) -> Mapping[str, Partitions]:
        """Ask; a JVM that gives no answer is replaced."""
        if self._peer is None:
            self._peer = JavaPeer().__enter__()
        try:
            return self._peer.assign(write_group(group), "cooperative-sticky", timeout_s=TIMEOUT_S).assignment
        except JavaRaisedError as error:
            raise NoAnswerError(str(error)) from None
        except PeerLostError as error:
            self.__exit__()
            raise NoAnswerError(str(error)) from None
