"""Faust (faust-streaming): an application whose workers read locally, with standbys of its tables in other racks.

* `RackAwareApp` is a `faust.App` whose consumers fetch from their own rack.
* `RackAwarePartitionAssignor` is the class for Faust's setting `PartitionAssignor`. An app that has it and is no
  `RackAwareApp` reads from leaders, and its partitions are assigned by the racks of those.
"""

from rackassign.errors import MissingExtraError

try:
    # First, since its extra has all that is needed: the extra of aiokafka would not be enough.
    import faust  # noqa: F401

    from rackassign.integrations.faust.app import RackAwareApp
    from rackassign.integrations.faust.assignor import RackAwarePartitionAssignor
except ModuleNotFoundError as error:
    if error.name != "faust":
        raise
    raise MissingExtraError("faust-streaming", "faust") from None

__all__ = ["RackAwareApp", "RackAwarePartitionAssignor"]
