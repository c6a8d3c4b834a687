"""What all tests on real brokers share."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.helpers.kafka.failure_context import failure_context
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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the groups of a test that has failed, and the last lines of brokers and members."""
    report = yield
    if report.failed and call.when == "call" and item.path.is_relative_to(HERE):
        report.sections += failure_context(item)
    return report


def pytest_sessionfinish() -> None:
    """Let go of what was left open, before pytest looks for it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", LEAK, ResourceWarning)
        gc.collect()
