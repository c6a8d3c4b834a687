"""Topics of test clusters."""

from __future__ import annotations

import pytest

from rackassign.errors import ConfigError
from rackassign.testing import create_topic


@pytest.mark.parametrize("assignments", [[], [[1], []]])
def test_a_topic_needs_replicas(assignments: list[list[int]]) -> None:
    with pytest.raises(ConfigError, match="at least one broker"):
        create_topic("127.0.0.1:1", "t", assignments)
