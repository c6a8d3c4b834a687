"""Producers that can never write again are distinguished from those that can, as far as kafka-python reports it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.producer.transaction_manager import TransactionManager

from rackassign.clients.kafka_python.internals.producers import has_failed


def producer(**manager: object) -> Any:
    return SimpleNamespace(_transaction_manager=SimpleNamespace(**manager))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (producer(has_fatal_error=lambda: True), True),
        (producer(has_fatal_error=lambda: False), False),
        # Not idempotent; of another version; neither.
        (SimpleNamespace(_transaction_manager=None), False),
        (producer(has_fatal_error=True), False),
        (object(), False),
    ],
)
def test_only_a_producer_that_says_so_has_failed(asked: Any, *, expected: bool) -> None:
    assert has_failed(asked) is expected


def test_the_library_that_is_installed_says_so() -> None:
    assert callable(TransactionManager.has_fatal_error)
