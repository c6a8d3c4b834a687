"""What all test runs share: the speed of the machine, measured before the first test."""

from __future__ import annotations

from tests.helpers.machine_speed import headline, machine_factor


def pytest_configure() -> None:
    """Measure the machine before workers of pytest-xdist start, which then have the factor of this run."""
    machine_factor()


def pytest_report_header() -> str:
    """Show by how much timeouts are multiplied."""
    return headline()
