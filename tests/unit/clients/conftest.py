"""What the tests of clients share."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, "rackassign")
    return caplog
