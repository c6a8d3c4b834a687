"""Tests that need a later version of a client than the oldest that is supported.

The reason of such a skip begins with "needs", which the matrix takes as an answer and not as a test that is missing.
"""

from __future__ import annotations

import pytest

from rackassign.clients.aiokafka.internals import FOLLOWS

needs_client_rack = pytest.mark.skipif(not FOLLOWS, reason="needs aiokafka 0.14")
"""Earlier versions of aiokafka fetch from leaders only."""
