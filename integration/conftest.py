"""What all tests on real brokers share."""

from __future__ import annotations

from tests.processes import heed_interrupts

heed_interrupts()
