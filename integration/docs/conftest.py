"""Pages of the documentation that are followed on the shared cluster."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from rackassign.testing import Cluster
from tests.helpers.kafka.documented_page import Page

OpenPage = Callable[..., AbstractContextManager[Page]]


@pytest.fixture
def open_page(rack_cluster: Cluster, unique_name: Callable[[], str], tmp_path: Path) -> OpenPage:
    """A function that opens a page, with the shared cluster, topics and groups of the test, and racks that exist."""

    def opened(document: str, **names: str) -> AbstractContextManager[Page]:
        return Page(document, tmp_path, rack_cluster.bootstrap, names, {"billing": unique_name(), "use1-az1": "a"})

    return opened
