"""What all tests on real brokers share."""

from __future__ import annotations

import gc
import logging
import os
import warnings
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from rackassign.testing._machine import reserve_ports
from tests.helpers.kafka.failure_context import failure_context
from tests.helpers.processes import heed_interrupts

heed_interrupts()

# On a busy machine kafka-python 3.0.12 warns hundreds of times in a test that one of its tasks ran for over 0.1 s. The
# report of a failed test would be these lines.
logging.getLogger("kafka.net.selector").setLevel(logging.ERROR)

HERE = Path(__file__).parent

LEAK = "unclosed <socket"
"""kafka-python forgets a connection that it is just making, or that was refused."""


FIRST = (
    *("/spark/", "/admin/test_permissions.py"),
    *("/testing/test_local_cluster.py", "/reassignment/test_reassignment.py"),
)
"""Tests that share what takes long to start, and some that take minutes: at the beginning of what a worker gets, where
no other worker takes tests away, and nothing waits for them at the end."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let no test fail for a socket that kafka-python has left open, and put tests where they are fast."""
    for item in items:
        # Also those that need no brokers: a socket may be collected while a later test of the worker runs.
        item.add_marker(pytest.mark.filterwarnings(f"ignore:{LEAK}:ResourceWarning"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0"))
    if workers > 1:
        items[:] = shared_out(items, workers)


def shared_out(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return tests in an order of which workers get equal parts, one after the other.

    Every second worker begins with tests on brokers, its share of them, and the others with what needs none: those
    compute while tests on brokers wait. Each worker with tests on brokers has a cluster of its own, which takes 10 s of
    a processor to start, and a seventh of one while it is idle. A worker that has nothing left takes the last tests of
    another one, and these need no brokers while there are such.
    """
    on_brokers = sorted((item for item in items if item.path.is_relative_to(HERE)), key=kind_of_brokers)
    others = [item for item in items if not item.path.is_relative_to(HERE)]
    where = {item: f"/{item.path.relative_to(HERE).as_posix()}" for item in on_brokers}
    files = [[item for item in on_brokers if name in where[item]] for name in FIRST]
    rest = [item for item in on_brokers if not any(item in of for of in files)]
    hosts = -(-workers // 2)
    share = -(-len(on_brokers) // hosts)
    ordered: list[pytest.Item] = []
    for number in range(workers):
        if number % 2 == 0:
            first = [item for of in files[number // 2 :: hosts] for item in of]
            wanted = max(0, share - len(first))
            ordered += first + rest[:wanted]
            rest = rest[wanted:]
        left = max(0, len(items) * (number + 1) // workers - len(ordered))
        ordered += others[:left]
        others = others[left:]
    return ordered + rest + others


def kind_of_brokers(item: pytest.Item) -> tuple[bool, str]:
    """Return whether brokers have the plug-in, and their version; a worker has one such cluster at a time."""
    named = getattr(item, "callspec", None)
    version = None if named is None else named.params.get("kafka_version")
    return item.get_closest_marker("broker_plugins") is not None, version or ""


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


COORDINATOR = "kafka.coordinator"
LATE = "failed due to coordinator rebalance"
"""What kafka-python 3.0 logs if the next rebalance has begun before a member asked for its assignment."""


@pytest.fixture
def late(caplog: pytest.LogCaptureFixture) -> Callable[[], int]:
    """Tell how often the next rebalance had begun before a member of this process asked for its assignment.

    A cooperative group changes in two rebalances: members give up, others take over. A member that has given up asks
    for the second at once. Another one that was not as far joins it with what it has yet to give up, and the group
    needs one more.
    """
    caplog.set_level(logging.INFO, COORDINATOR)
    return lambda: sum(r.name == COORDINATOR and LATE in r.getMessage() for r in caplog.records)


@pytest.fixture
def first_port() -> int:
    """A port that is free, as are those after it, so that tests do not meet a cluster of this machine."""
    while True:
        reserved = reserve_ports(1)
        first = reserved.numbers[0]
        reserved.close()
        row = reserve_ports(5, range(first, first + 5))
        row.close()
        if not row.refused:
            return first
