"""The format of changelog records: one change of a key each, with its owner and input record in a header.

======  =======================================================================
header  `rackassign`, 17 bytes, big-endian
======  =======================================================================
kind    8 bits: 0 change, 1 last change of its input record, 2 fence, 3 rewrite, 4 checkpoint, 5 lost
epoch   64 bits: epoch of the owner, which is greater than that of all earlier owners
source  64 bits: offset of the input record; of a rewrite or checkpoint, of the last complete one; otherwise -1
======  =======================================================================

The key is that of the state with a one-byte prefix, so that records that are no changes have keys that no state can
have. A null value deletes the key. The value of a fence ends with the claim of its writer, 24 bytes (`claims`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from rackassign.errors import WireError
from rackassign.stateful.claims import Claim

HEADER = "rackassign"

Kind = Literal["change", "last", "fence", "rewrite", "mark", "lost"]

_KINDS: tuple[Kind, ...] = get_args(Kind)
_FORM = struct.Struct(">bqq")
_CLAIM = struct.Struct(">qqq")
_STATE = b"\1"
_OTHERS: Mapping[Kind, bytes] = {"fence": b"\0fence", "mark": b"\0mark", "lost": b"\0lost"}

NO_SOURCE = -1


@dataclass(frozen=True, slots=True)
class ChangelogRecord:
    """A record of a changelog.

    Args:
        kind: `change` and `last` belong to an input record, whose last change is marked; `fence` begins an epoch;
            `rewrite` repeats the value of a key that another member has written; `mark` is a checkpoint: input records
            up to that one have no further changes; `lost` states that records which had been written no longer exist.
        epoch: Epoch of the writer.
        source: Offset of the input record; for `rewrite` and `mark`, of the last one that is completely in the state;
            otherwise -1.
        key: Key of the state; empty if the record is no change.
        value: Its new value; None if it is deleted.
        claim: Claim of the writer of a fence; None if it is not known.
    """

    kind: Kind
    epoch: int
    source: int = NO_SOURCE
    key: bytes = b""
    value: bytes | None = None
    claim: Claim | None = None

    def header(self) -> bytes:
        """Return the header's value."""
        return _FORM.pack(_KINDS.index(self.kind), self.epoch, self.source)

    def log_value(self) -> bytes | None:
        """Return the value of the record; other records than changes have one, since compaction removes null values."""
        value = _OTHERS.get(self.kind, self.value)
        return value if self.claim is None or value is None else value + _CLAIM.pack(*self.claim)

    def log_key(self) -> bytes:
        """Return the key of the record."""
        return _OTHERS.get(self.kind) or _STATE + self.key


def read_change(key: bytes | None, value: bytes | None, header: bytes | None) -> ChangelogRecord:
    """Decode a record of a changelog.

    Args:
        key: Key of the record.
        value: Value of the record.
        header: Value of its header; None without one.

    Raises:
        WireError: It is not a changelog record of rackassign.
    """
    if header is None or len(header) != _FORM.size:
        raise WireError(0, f"the record has no header {HEADER} of {_FORM.size} bytes")
    kind, epoch, source = _FORM.unpack(header)
    if not 0 <= kind < len(_KINDS):
        raise WireError(0, f"kind {kind}: expected 0 to {len(_KINDS) - 1}")
    if _KINDS[kind] in _OTHERS:
        return ChangelogRecord(_KINDS[kind], epoch, source, claim=_claim(_KINDS[kind], value))
    if not key or key[:1] != _STATE:
        raise WireError(0, "the key of a change has no prefix of rackassign")
    return ChangelogRecord(_KINDS[kind], epoch, source, key[1:], value)


def _claim(kind: Kind, value: bytes | None) -> Claim | None:
    packed = (value or b"")[len(_OTHERS[kind]) :]
    return Claim(*_CLAIM.unpack(packed)) if kind == "fence" and len(packed) == _CLAIM.size else None
