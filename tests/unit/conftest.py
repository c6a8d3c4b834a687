"""What all unit tests share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

CLIENTS = ("kafka.", "aiokafka")
"""Loggers of clients, whose threads an integration test may have left to end in the worker that runs it before."""


@pytest.fixture(autouse=True)
def only_own_records(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Keep what clients log out of the records that a test counts."""

    def own(record: logging.LogRecord) -> bool:
        return not record.name.startswith(CLIENTS)

    caplog.handler.addFilter(own)
    yield
    caplog.handler.removeFilter(own)
