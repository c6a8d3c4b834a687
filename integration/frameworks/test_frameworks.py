"""The examples with frameworks read locally, and lose nothing when a member is killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rackassign.testing import Cluster
from tools.run_examples import EXAMPLES, Example, run

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.frameworks]


BLIND = {"fastapi", "faststream"}
"""Whose own assignors know no racks and deal partitions out in turn. With the leaders of `tools.run_examples` they read
a third locally, whatever the order of the members. What Faust's assignor gives depends on that order."""


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_reads_locally_and_loses_nothing(
    rack_cluster: Cluster, unique_name: Callable[[], str], tmp_path: Path, example: Example
) -> None:
    example.install()
    found = []
    for ours in (False, True):
        folder = tmp_path / ("with" if ours else "without")
        folder.mkdir()
        found.append(run(rack_cluster, example, unique_name(), folder, ours=ours))
    without, with_ours = found
    assert with_ours.local >= without.local - 0.001, found
    if example.name in BLIND:
        assert without.local == pytest.approx(1 / 3, abs=0.03), without
    assert with_ours.local > 0.95, with_ours
    assert (without.lost, with_ours.lost) == (0, 0)
