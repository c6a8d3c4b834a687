"""What all test runs share: the speed of the machine, measured before the first test."""

from __future__ import annotations

import pytest

from tests.helpers.machine_speed import headline, machine_factor


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option with which the test of a patch reproduces its defect, with kafka-python alone."""
    parser.addoption(
        "--without-patches",
        action="store_true",
        help="install no patch of kafka-python: the test that a patch names as its proof then fails by its defect",
    )


@pytest.fixture(autouse=True)
def _without_patches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.config.getoption("--without-patches"):
        monkeypatch.setattr("rackassign.clients.kafka_python._consumer.install", lambda *_: None)


def pytest_configure(config: pytest.Config) -> None:
    """Measure the machine before workers of pytest-xdist start, which then have the factor of this run."""
    # None without the option, and a missing one without the plugin.
    machine_factor(workers=config.getoption("numprocesses", None) or 0)


def pytest_report_header() -> str:
    """Show by how much timeouts are multiplied."""
    return headline()
