"""The format of changelog records: one change of a key each, with its owner and commit in a header.

======  =======================================================================
header  `rackassign`, 17 bytes, big-endian
======  =======================================================================
kind    8 bits: 8 change, 9 last change of its commit, 10 fence, 11 rewrite, 12 lost
epoch   64 bits: epoch of the owner, which is greater than that of all earlier owners
commit  64 bits: number of the commit; of a rewrite, of the last complete one; otherwise -1
======  =======================================================================

Kinds below 8 were those of a format in which each input record was a commit of its own: such records are ignored.

The key is that of the state, whose first byte is never 0 (`keys`). Records that are no changes have keys that begin
with 0. A null value deletes the key. The value of a fence ends with the claim of its writer, 24 bytes (`claims`).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from rackassign.errors import WireError
from rackassign.stateful.changelog.claims import Claim
from rackassign.stateful.stores.keys import is_state_key

HEADER = "rackassign"

Kind = Literal["change", "last", "fence", "rewrite", "lost"]

_KINDS: tuple[Kind, ...] = get_args(Kind)
_FORM = struct.Struct(">bqq")
_CLAIM = struct.Struct(">qqq")
_FIRST = 8
_NUMBERS: Mapping[Kind, int] = {kind: number for number, kind in enumerate(_KINDS, _FIRST)}
_OTHERS: Mapping[Kind, bytes] = {"fence": b"\0fence", "lost": b"\0lost"}

NO_COMMIT = -1

DELETES_MS = 86_400_000
"""How long a changelog keeps the records of deletions (`delete.retention.ms`) by default, in milliseconds."""

LARGEST_BYTES = 1_000_000
"""Size of a key and a value; the limits of producers and of brokers are a little larger by default."""


@dataclass(frozen=True, slots=True)
class ChangelogRecord:
    """A record of a changelog.

    Args:
        kind: `change` and `last` belong to a commit, whose last change is marked; `fence` begins an epoch; `rewrite`
            repeats the value of a key that another member has written; `lost` states that records which had been
            written no longer exist.
        epoch: Epoch of the writer.
        commit: Number of the commit; for `rewrite`, of the last one that is completely in the state; otherwise -1.
        key: Key of the state (`keys`); empty if the record is no change.
        value: Its new value; None if it is deleted.
        claim: Claim of the writer of a fence; None if it is not known.
        offset: Its offset in the changelog; -1 if it was not read from there.
    """

    kind: Kind
    epoch: int
    commit: int = NO_COMMIT
    key: bytes = b""
    value: bytes | None = None
    claim: Claim | None = None
    offset: int = field(default=-1, compare=False)

    def header(self) -> bytes:
        """Return the header's value."""
        return _FORM.pack(_NUMBERS[self.kind], self.epoch, self.commit)

    def log_value(self) -> bytes | None:
        """Return the value of the record; other records than changes have one, since compaction removes null values."""
        value = _OTHERS.get(self.kind, self.value)
        return value if self.claim is None or value is None else value + _CLAIM.pack(*self.claim)

    def log_key(self) -> bytes:
        """Return the key of the record."""
        return _OTHERS.get(self.kind) or self.key

    def digest(self) -> int:
        """Return a number of 56 bits that another record at the same offset does not have."""
        value = self.log_value()
        parts = (self.header(), self.log_key(), b"" if value is None else b"\0" + value)
        content = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return int.from_bytes(hashlib.blake2b(content, digest_size=7).digest(), "big")


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
    number, epoch, commit = _FORM.unpack(header)
    if not _FIRST <= number < _FIRST + len(_KINDS):
        raise WireError(0, f"kind {number}: expected {_FIRST} to {_FIRST + len(_KINDS) - 1}")
    kind = _KINDS[number - _FIRST]
    if kind in _OTHERS:
        return ChangelogRecord(kind, epoch, commit, claim=_claim(kind, value))
    if not key or not is_state_key(key):
        raise WireError(0, "the key of a change has no prefix of rackassign")
    return ChangelogRecord(kind, epoch, commit, key, value)


def is_of_earlier_format(header: bytes | None) -> bool:
    """Return whether a record has the header of an earlier format, whose records are not read any more."""
    return header is not None and len(header) == _FORM.size and header[0] < _FIRST


def _claim(kind: Kind, value: bytes | None) -> Claim | None:
    packed = (value or b"")[len(_OTHERS[kind]) :]
    return Claim(*_CLAIM.unpack(packed)) if kind == "fence" and len(packed) == _CLAIM.size else None
