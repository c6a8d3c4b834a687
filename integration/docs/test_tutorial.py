"""The tutorial, step by step, as a user runs it in an empty folder."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rackassign.testing import LocalCluster
from tests.helpers.kafka.documented_page import INSTALLED, Page
from tests.helpers.machine_speed import scaled_ms

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.docs]

_SHARE = re.compile(r"^([abc]): (\d+)% of the bytes were local$", re.MULTILINE)


def shares(shown: str) -> list[int]:
    """Return the local share of each zone."""
    found = _SHARE.findall(shown)
    assert sorted(zone for zone, _ in found) == ["a", "b", "c"], shown
    return [int(share) for _, share in found]


def test_each_step_does_what_it_promises(
    rack_cluster_session: LocalCluster, first_port: int, unique_name: Callable[[], str], tmp_path: Path
) -> None:
    del rack_cluster_session  # it has seen to the jars, or skipped
    name = unique_name().replace("-", "_")
    names = {
        "cluster up": f"cluster up --port {first_port} --name {name}",
        "cluster down": f"cluster down --name {name}",
        "consumer_timeout_ms=15_000": f"consumer_timeout_ms={scaled_ms(15_000)}",
    }
    with Page("docs/tutorial.md", tmp_path, f"localhost:{first_port}", names) as page:
        page.leave(INSTALLED, 5)
        with page.started() as cluster:
            cluster.wait_for_output("bootstrap")
            page.write()
            page.write()
            assert sum(shares(page.run(environment=ONE_LINE))) < 90 * 3
            page.write()
            # The rest are metadata, and what was read before a follower was known.
            assert min(shares(page.run(environment=ONE_LINE))) >= 95
            page.write()
            page.run()
            assert "100.0 %" in page.run(commands=2)
            page.run()
            assert cluster.wait() == 0


ONE_LINE = {"PYTHONUNBUFFERED": "1"}
