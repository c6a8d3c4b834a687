"""What all test runs share: the speed of the machine, measured before the first test."""

from __future__ import annotations

from importlib import import_module

import pytest

from tests.helpers.machine_speed import headline, machine_factor


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option with which the test of a patch reproduces its defect, with kafka-python alone."""
    parser.addoption(
        "--without-patches",
        action="store_true",
        help="install no patch of kafka-python: the test that a patch names as its proof then fails by its defect",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Measure the machine before workers of pytest-xdist start, which then have the factor of this run."""
    if config.getoption("--without-patches"):
        # Imported with the option only: coverage measures nothing that is imported before it starts.
        consumer = import_module("rackassign.clients.kafka_python._consumer")
        setattr(consumer, "install", lambda *_: None)  # noqa: B010 - mypy knows it as a function
    # None without the option, and a missing one without the plugin.
    machine_factor(workers=config.getoption("numprocesses", None) or 0)


def pytest_report_header() -> str:
    """Show by how much timeouts are multiplied."""
    return headline()
