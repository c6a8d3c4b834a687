"""Quix Streams: an application whose members read locally, with each topic and its changelogs on one member.

* `RackAwareApplication` is a `quixstreams.Application` that joins its group with an assignor of rackassign.
"""

from rackassign.errors import MissingExtraError

try:
    from rackassign.integrations.quix.application import RackAwareApplication
except ModuleNotFoundError as error:
    if error.name != "quixstreams":
        raise
    raise MissingExtraError("quixstreams", "quix") from None

__all__ = ["RackAwareApplication"]
