"""Conversion of kafka-python's errors to those of confluent-kafka."""
# ruff: noqa: SLF001 - confluent-kafka names librdkafka's own codes with an underscore; they are public

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException
from kafka.errors import (
    BrokerResponseError,
    CommitFailedError,
    KafkaConnectionError,
    KafkaTimeoutError,
    NodeNotReadyError,
    RetriableError,
)
from kafka.errors import KafkaError as KafkaPythonError

from rackassign.text import describe_error

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
    """Return an exception with an error code of confluent-kafka."""
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
