"""What a producer needs to commit this consumer's offsets in a transaction (KIP-447)."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from rackassign.clients.confluent.errors import NOT_IMPLEMENTED, kafka_exception
from rackassign.clients.confluent.group_member import GroupMember
from rackassign.clients.confluent.internals import form_difference, serialize_group_metadata
from rackassign.clients.confluent.rebalance import RebalanceHandler


class TransactionMetadata:
    """The group metadata of one consumer, for `send_offsets_to_transaction` of producers of confluent-kafka.

    Their generation is that of the assignment whose records are delivered, and not the newest one of the group: with
    the newest one, the broker would accept offsets of partitions that it has given to others.

    Args:
        group_id: Group of the consumer.
        instance_id: Its `group.instance.id`; None for a dynamic member.
        member: Member that joins the group.
        rebalances: Handler with the assignment that is followed.
    """

    def __init__(
        self, group_id: str, instance_id: str | None, member: GroupMember, rebalances: RebalanceHandler
    ) -> None:
        self._group_id = group_id
        self._instance_id = instance_id
        self._member = member
        self._rebalances = rebalances
        self._form_checked = False

    def current(self) -> bytes:
        """Return the metadata as of now.

        Raises:
            KafkaException: There is no assignment, or librdkafka serializes metadata in another form.
        """
        following = self._rebalances.following
        if following is None or self._member.lost():
            reason = "this consumer has no assignment in its group: abort the transaction, and poll"
            # Without a generation the broker would accept the offsets of any member.
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID, reason, txn_requires_abort=True))
        if not self._form_checked:
            difference = form_difference(self._group_id, self._instance_id)
            if difference is not None:
                raise kafka_exception(NOT_IMPLEMENTED, difference)
            self._form_checked = True
        return serialize_group_metadata(self._group_id, following.generation, following.member_id, self._instance_id)
