"""Quix Streams: an application whose members read locally, with each topic and its changelogs on one member.

* `RackAwareApplication` is a `quixstreams.Application` that joins its group with an assignor of rackassign.
"""

from rackassign.errors import MissingExtraError

try:
    # First, since its extra has all that is needed: another extra of a client would not be enough.
    import quixstreams  # noqa: F401

    from rackassign.integrations.quix.application import RackAwareApplication
except ModuleNotFoundError as error:
    if error.name not in {"quixstreams", "confluent_kafka"}:
        raise
    raise MissingExtraError("quixstreams", "quix") from None

__all__ = ["RackAwareApplication"]
