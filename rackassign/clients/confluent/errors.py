"""Errors of kafka-python as those that users of confluent-kafka know."""
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
from kafka.errors import KafkaError as HostError

FAIL = KafkaError._FAIL
INVALID_ARG = KafkaError._INVALID_ARG
NO_OFFSET = KafkaError._NO_OFFSET
NOT_IMPLEMENTED = KafkaError._NOT_IMPLEMENTED
STATE = KafkaError._STATE
TIMED_OUT = KafkaError._TIMED_OUT
TRANSPORT = KafkaError._TRANSPORT
UNKNOWN_PARTITION = KafkaError._UNKNOWN_PARTITION

_LOCAL: tuple[tuple[type[HostError], int], ...] = (
    (KafkaTimeoutError, TIMED_OUT),
    (KafkaConnectionError, TRANSPORT),
    (NodeNotReadyError, TRANSPORT),
)


def kafka_exception(code: int, reason: str) -> KafkaException:
    """Return an exception with one of the codes of confluent-kafka."""
    return KafkaException(KafkaError(code, reason))


def to_confluent_error(error: HostError) -> KafkaError:
    """Return what kafka-python says in the terms of confluent-kafka; the codes of brokers are the same in both."""
    reason = f"{type(error).__name__}: {error}"
    if isinstance(error, CommitFailedError):
        # It wraps what the broker said. Without that the host did not even ask, being no member.
        cause = error.args[0] if error.args else None
        return KafkaError(_code(cause) if isinstance(cause, HostError) else KafkaError.UNKNOWN_MEMBER_ID, reason)
    return KafkaError(_code(error), reason, retriable=isinstance(error, RetriableError))


def _code(error: HostError) -> int:
    for kind, code in _LOCAL:
        if isinstance(error, kind):
            return code
    return error.errno if isinstance(error, BrokerResponseError) and isinstance(error.errno, int) else FAIL


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise what kafka-python raises in the block as a `KafkaException`."""
    try:
        yield
    except HostError as error:
        raise KafkaException(to_confluent_error(error)) from error
