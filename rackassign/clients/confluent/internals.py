"""Group metadata in librdkafka's serialized form, in which producers of confluent-kafka take it for a transaction.

It is the one form of librdkafka that is not documented, and is needed nevertheless. confluent-kafka hands the metadata
of a member from a consumer to a producer as bytes that librdkafka writes (`rd_kafka_consumer_group_metadata_write`) and
reads. It offers no other way to create them, and the consumer of this package is not a member of the group itself. The
form, in confluent-kafka 2.8.0 to 2.16.1:

    "CGMDv2:"  generation  group ID  member ID  is the instance ID null?  instance ID

The generation is an int32 in the byte order of the machine, the question is answered by one byte, 1 or 0, and a string
ends with a zero byte. A null instance ID is left out.

The form is compared with what the installed librdkafka writes, before it is used. If they differ, the call that needs
it is refused; everything else works.
"""

from __future__ import annotations

import struct

from confluent_kafka import Consumer

from rackassign.text import with_version

_MAGIC = b"CGMDv2:"
_NO_GENERATION = -1


def serialize_group_metadata(group_id: str, generation: int, member_id: str, instance_id: str | None) -> bytes:
    """Return the metadata of a member as librdkafka reads them, for `send_offsets_to_transaction` (KIP-447).

    Args:
        group_id: Group of the member.
        generation: Generation of its assignment.
        member_id: Its member ID in that generation.
        instance_id: Its `group.instance.id`; None for a dynamic member.
    """
    strings = b"".join(text.encode() + b"\0" for text in (group_id, member_id))
    instance = b"\1" if instance_id is None else b"\0" + instance_id.encode() + b"\0"
    return _MAGIC + struct.pack("=i", generation) + strings + instance


def form_difference(group_id: str, instance_id: str | None) -> str | None:
    """Return why the installed librdkafka would not read this form; None if it would.

    A consumer that has not joined is asked for its own metadata, with the same group and instance. It is given no
    broker, so it connects to nothing.
    """
    instance = {} if instance_id is None else {"group.instance.id": instance_id}
    sample = Consumer({"group.id": group_id, **instance})
    try:
        written = sample.consumer_group_metadata()
    finally:
        sample.close()
    if written == serialize_group_metadata(group_id, _NO_GENERATION, "", instance_id):
        return None
    return f"{with_version('confluent-kafka')} writes the metadata of a group in another form than 2.8.0 to 2.16.1"


__all__ = ["form_difference", "serialize_group_metadata"]
