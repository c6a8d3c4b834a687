"""What stands in a changelog: one change of a key for each record, and in a header who made it, and for what.

======  =======================================================================
header  `rackassign`, 17 bytes, big-endian
======  =======================================================================
kind    8 bits: 0 a change, 1 the last change of its input record, 2 a fence, 3 a heal, 4 a mark, 5 lost
epoch   64 bits: of the owner; each owner's is greater than that of all before it
source  64 bits: offset of the input record that caused it; of a heal and a mark, of the last one that is whole; else -1
======  =======================================================================

The key is the state's with one byte in front, so that all that is no change has a key no state can have. A null value
deletes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from rackassign.errors import WireError

HEADER = "rackassign"

Kind = Literal["change", "last", "fence", "heal", "mark", "lost"]

_KINDS: tuple[Kind, ...] = get_args(Kind)
_FORM = struct.Struct(">bqq")
_STATE = b"\1"
_OTHERS: Mapping[Kind, bytes] = {"fence": b"\0fence", "mark": b"\0mark", "lost": b"\0lost"}

NO_SOURCE = -1


@dataclass(frozen=True, slots=True)
class ChangelogRecord:
    """A record of a changelog.

    Args:
        kind: `change` and `last` are of an input record, the last of it marked; `fence` begins an epoch; `heal` writes
            once more what a key has, because somebody else wrote to it; `mark` says that records up to one have
            changed nothing more; `lost` says that records which had been written are not there any more.
        epoch: Of who wrote it.
        source: Offset of the input record; of a heal and a mark, of the last one all of which is in the state; else -1.
        key: Of the state; empty for what is no change.
        value: Its new value; None if it has none any more.
    """

    kind: Kind
    epoch: int
    source: int = NO_SOURCE
    key: bytes = b""
    value: bytes | None = None

    def header(self) -> bytes:
        """Return the header's value."""
        return _FORM.pack(_KINDS.index(self.kind), self.epoch, self.source)

    def log_value(self) -> bytes | None:
        """Return the value of the record; what is no change has one, since compaction forgets what has none."""
        return _OTHERS.get(self.kind, self.value)

    def log_key(self) -> bytes:
        """Return the key of the record."""
        return _OTHERS.get(self.kind) or _STATE + self.key


def read_change(key: bytes | None, value: bytes | None, header: bytes | None) -> ChangelogRecord:
    """Return what a record of a changelog says.

    Args:
        key: Of the record.
        value: The same.
        header: Value of its header; None if it has none.

    Raises:
        WireError: It is none of ours.
    """
    if header is None or len(header) != _FORM.size:
        raise WireError(0, f"the record has no header {HEADER} of {_FORM.size} bytes")
    kind, epoch, source = _FORM.unpack(header)
    if not 0 <= kind < len(_KINDS):
        raise WireError(0, f"kind {kind}: expected 0 to {len(_KINDS) - 1}")
    if _KINDS[kind] in _OTHERS:
        return ChangelogRecord(_KINDS[kind], epoch, source)
    if not key or key[:1] != _STATE:
        raise WireError(0, "the key of a change does not begin as ours do")
    return ChangelogRecord(_KINDS[kind], epoch, source, key[1:], value)
