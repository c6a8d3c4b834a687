"""What is used of confluent-kafka and is not in its documentation: error codes of librdkafka, and group metadata.

Errors of kafka-python, which is the member of the group, get the codes that a member of librdkafka would raise.

Group metadata have a serialized form, in which producers take them for a transaction. It is the one form of librdkafka
that is not documented, and is needed nevertheless. confluent-kafka hands the metadata
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
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, KafkaException
from kafka.errors import (
    BrokerResponseError,
    CommitFailedError,
    KafkaConnectionError,
    KafkaTimeoutError,
    NodeNotReadyError,
    RetriableError,
)
from kafka.errors import KafkaError as KafkaPythonError

from rackassign.text import describe_error, with_version

FAIL = KafkaError._FAIL
INVALID_ARG = KafkaError._INVALID_ARG
NO_OFFSET = KafkaError._NO_OFFSET
NOT_IMPLEMENTED = KafkaError._NOT_IMPLEMENTED
STATE = KafkaError._STATE
TIMED_OUT = KafkaError._TIMED_OUT
TRANSPORT = KafkaError._TRANSPORT
UNKNOWN_PARTITION = KafkaError._UNKNOWN_PARTITION

_LOCAL: tuple[tuple[type[KafkaPythonError], int], ...] = (
    (KafkaTimeoutError, TIMED_OUT),
    (KafkaConnectionError, TRANSPORT),
    (NodeNotReadyError, TRANSPORT),
)


def kafka_exception(code: int, reason: str) -> KafkaException:
    return KafkaException(KafkaError(code, reason))


def to_confluent_error(error: KafkaPythonError) -> KafkaError:
    """Convert an error of kafka-python to one of confluent-kafka; error codes of brokers are equal in both."""
    reason = describe_error(error)
    if isinstance(error, CommitFailedError):
        # It wraps the broker's error. Without one kafka-python sent no request, as it is no member.
        cause = error.args[0] if error.args else None
        return KafkaError(_code(cause) if isinstance(cause, KafkaPythonError) else KafkaError.UNKNOWN_MEMBER_ID, reason)
    return KafkaError(_code(error), reason, retriable=isinstance(error, RetriableError))


def _code(error: KafkaPythonError) -> int:
    for kind, code in _LOCAL:
        if isinstance(error, kind):
            return code
    return error.errno if isinstance(error, BrokerResponseError) and isinstance(error.errno, int) else FAIL


@contextmanager
def translate_errors() -> Iterator[None]:
    """Convert errors of kafka-python in the block to `KafkaException`."""
    try:
        yield
    except KafkaPythonError as error:
        raise KafkaException(to_confluent_error(error)) from error


_MAGIC = b"CGMDv2:"
_NO_GENERATION = -1


def serialize_group_metadata(group_id: str, generation: int, member_id: str, instance_id: str | None) -> bytes:
    """Return the metadata of a member as librdkafka reads them, for `send_offsets_to_transaction` (KIP-447)."""
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
