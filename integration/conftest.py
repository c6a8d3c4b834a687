"""What all tests on real brokers share."""

from __future__ import annotations

import gc
import warnings
from pathlib import Path

import pytest

from tests.helpers.processes import heed_interrupts

heed_interrupts()

HERE = Path(__file__).parent

LEAK = "unclosed <socket"
"""kafka-python forgets a connection that it is just making, or that was refused."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let no test fail for a socket that kafka-python has left open, in it or in another one before it."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.filterwarnings(f"ignore:{LEAK}:ResourceWarning"))


def pytest_sessionfinish() -> None:
    """Let go of what was left open, before pytest looks for it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", LEAK, ResourceWarning)
        gc.collect()
