"""What all test runs share: the speed of the machine, measured before the first test."""

from __future__ import annotations

from tests.helpers.machine_speed import headline


def pytest_report_header() -> str:
    """Show by how much timeouts are multiplied."""
    return headline()
