"""What all tests share."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.helpers.examples import examples
from tests.helpers.html_checks import browse, chromium
from tests.helpers.processes import heed_interrupts

__all__ = ["browse", "chromium"]

# Timing never decides a test, and a failure in CI must be the same failure at a desk.
UNTIMED: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}

heed_interrupts()


# After that of the whole repository, which measures the machine for a run with so many workers.
@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """Load the settings of properties, before any module with one is imported."""
    many = examples(100)
    settings.register_profile("default", **UNTIMED, max_examples=many)
    settings.register_profile("ci", **UNTIMED, max_examples=many, derandomize=True, print_blob=True)
    settings.load_profile("ci" if os.environ.get("CI") == "true" else "default")
