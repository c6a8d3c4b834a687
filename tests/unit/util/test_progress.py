"""How progress is shown."""

from __future__ import annotations

from rackassign.testing import Progress


def test_progress_reads_as_a_line() -> None:
    assert str(Progress("Fetching", 1_500_000, 3_000_000)) == "Fetching: 1.5 of 3.0 MB"
    assert str(Progress("Starting")) == "Starting"
    assert str(Progress("Describing groups", 1, 3, unit="")) == "Describing groups: 1 of 3"
