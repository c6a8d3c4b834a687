"""What all tests on real brokers share."""

from __future__ import annotations

import gc
import logging
import os
import warnings
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.helpers.kafka.failure_context import failure_context
from tests.helpers.processes import heed_interrupts

heed_interrupts()

# On a busy machine kafka-python 3.0.12 warns hundreds of times in a test that one of its tasks ran for over 0.1 s. The
# report of a failed test would be these lines.
logging.getLogger("kafka.net.selector").setLevel(logging.ERROR)

HERE = Path(__file__).parent

LEAK = "unclosed <socket"
"""kafka-python forgets a connection that it is just making, or that was refused."""


FIRST = ("/spark/", "/admin/test_permissions.py", "/testing/test_local_cluster.py")
"""Tests that share what takes long to start: each at the beginning of what a worker gets, where no other worker
takes tests away."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let no test fail for a socket that kafka-python has left open, and put tests where they are fast."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.filterwarnings(f"ignore:{LEAK}:ResourceWarning"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0"))
    if workers > 1 and all(item.path.is_relative_to(HERE) for item in items):
        items[:] = shared_out(items, workers)


def shared_out(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return tests in an order of which workers get equal parts, each of them with one of the first files in front."""
    files = [[item for item in items if name in str(item.path)] for name in FIRST]
    rest = [item for item in items if not any(item in of for of in files)]
    ordered: list[pytest.Item] = []
    for number, of in enumerate(files):
        wanted = max(0, len(items) * number // workers - len(ordered))
        ordered += rest[:wanted] + of
        rest = rest[wanted:]
    return ordered + rest


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
