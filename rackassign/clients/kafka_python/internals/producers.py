"""The end of a producer that cannot be waited for, or cannot write any more."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from kafka.errors import KafkaError

_ENDS_S = 2.0


def discard(producer: Any) -> None:
    """Close a producer soon, whatever it has under way; records that are not written yet are given up.

    `KafkaProducer.close` flushes first. While records are under way it raises an error after its timeout, and leaves
    its thread and its connections as they are. So `_sender.force_close()` is called before, which makes it give up,
    as `close` itself does after that. If the method is missing, the producer ends with the process.
    """
    force_close = getattr(getattr(producer, "_sender", None), "force_close", None)
    if callable(force_close):
        force_close()
    with suppress(KafkaError):
        producer.close(_ENDS_S)


def has_failed(producer: Any) -> bool:
    """Return whether a producer can never write again.

    An idempotent producer (kafka-python 3.0.12) fails for good with an error that it does not retry, even if the cause
    passes: an unknown error of a broker, a missing permission, or the timeout of its request for a producer ID. After
    that it refuses all records. Without `_transaction_manager.has_fatal_error()` that is not known, and False.
    """
    ask = getattr(getattr(producer, "_transaction_manager", None), "has_fatal_error", None)
    return callable(ask) and ask() is True
