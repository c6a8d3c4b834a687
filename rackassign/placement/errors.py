"""What keeps replicas from being placed, by what would help."""

from __future__ import annotations

from rackassign.errors import RackassignError


class ReplicaPlacementError(RackassignError):
    """A placement cannot be made with these brokers and rules (KIP-660); asking again does not help."""


class InvalidReplicationFactorError(RackassignError, ValueError):
    """So many replicas cannot be had from these brokers."""


class InvalidPartitionsError(RackassignError, ValueError):
    """So many partitions cannot be placed."""
