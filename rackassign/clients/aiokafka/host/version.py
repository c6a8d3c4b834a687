"""Which aiokafka it is."""

from __future__ import annotations

from importlib.metadata import version


def host_version() -> str:
    """Name the host and its version, for messages."""
    return f"aiokafka {version('aiokafka')}"
