"""What all test runs share: the speed of the machine, measured before the first test."""

from __future__ import annotations

import pytest

from tests.helpers.machine_speed import headline, machine_factor


def pytest_configure(config: pytest.Config) -> None:
    """Measure the machine before workers of pytest-xdist start, which then have the factor of this run."""
    # None without the option, and a missing one without the plugin.
    machine_factor(workers=config.getoption("numprocesses", None) or 0)


def pytest_report_header() -> str:
    """Show by how much timeouts are multiplied."""
    return headline()
