"""Changelogs: the format of their records, the claims in them, and which records count when one is read.

A changelog defines the state of a task, whichever member wrote it. This module only computes.

Claims
------
A fence contains the claim of its writer: the generation of the assignment by which it took the partition. In one
generation a partition has one owner, so an owner of a later generation has the newer claim, and a former owner that
resumes has an older one, whenever it writes it.

Two things break the order of generations. A group that was deleted begins again at generation 1, and a static member
that restarts gets its former assignment in the same generation under another ID. Either member sees a claim in the log
that is not older than its own. If the coordinator confirms *after that* that its generation is the current one, the
claim in the log is a former one in spite of its generation. The member then begins a new *term*, and terms count before
generations.

Format
------
A record is one change of a key, with its owner and commit in a header.

======  =======================================================================
header  `rackassign`, 17 bytes, big-endian
======  =======================================================================
kind    8 bits: 8 change, 9 last change of its commit, 10 fence, 11 rewrite, 12 lost
epoch   64 bits: epoch of the owner, which is greater than that of all earlier owners
commit  64 bits: number of the commit; of a rewrite, of the last complete one; otherwise -1
======  =======================================================================

Kinds below 8 were those of a format in which each input record was a commit of its own: such records are ignored.

The key is that of the state, whose first byte is never 0 (`_stores`). Records that are no changes have keys that begin
with 0. A null value deletes the key. The value of a fence ends with the claim of its writer, 24 bytes.

Theory of operation
-------------------
A partition has one owner after the other, each with a greater *epoch*, which it begins with a fence. A former owner
that has not noticed continues to write. Records of a lower epoch than the highest one so far are ignored. So is a fence
whose claim is older than that of the owner: a former owner that resumes cannot become the owner again. It
reads its fence back before it writes anything else, so no other records have the epoch of an ignored fence.

A *commit* contains the changes of all input records since the last one, each key once, with its last value, and the
progress of the task (`progress`) as its last change. That one is sent once all others are written, because a producer
that gives a batch up may write the ones behind it. Commits have increasing numbers. The changes of a commit belong
together. An owner may die between them. Its successor then processes the same records again, and the existing changes
must not count. Changes are *pending* until the last one of their commit, or one of a later commit, is read. Changes
that are pending when an epoch ends are resolved by the next owner: before anything else, it *rewrites* each of their
keys with its current value. So a rewrite removes its key from the pending changes, a fence keeps them, and a change
means that all of them were rewritten or that the commit was complete: compaction may have removed its last change, but
then a later commit follows. The remaining pending changes then count, because those that had to be rewritten are
already removed.

That all changes of a record have one commit is all that counting it once needs: state and progress change together,
however many records they are of. Between two commits only the last value of a key can be observed by a successor, so
the earlier ones need not be written.

The progress is a key as any other, which each commit changes. So the offset where the input continues is always known
from the changelog, independent of committed offsets, and a log that has lost its end is completed from the input. The
last progress also has the number of the last complete commit, even if compaction removes all else of it (a deletion is
removed without a successor).

Keys that a former owner has written are *stale* until the current owner writes them. Such records are ignored here, but
compaction keeps the last record of a key regardless of its writer, and without a rewrite the key would be lost to all
members that restore later. So an owner rewrites stale keys as soon as it reads them, and its successor does if it could
not. A late fence is such a record as well: if the valid one was removed, epochs would decrease.

An owner may write into a log that has lost what it had written before (deleted, or truncated by brokers that did not
have all of it). The missing records are then between records that count, which no reader can detect: so the owner
writes that records are *lost*.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal, NamedTuple, get_args

from rackassign.errors import WireError
from rackassign.stateful._stores import is_state_key


class Claim(NamedTuple):
    term: int = 0
    generation: int = -1
    # Hash of the member's ID.
    member: int = 0


def member_hash(member_id: str) -> int:
    """Return a hash of a member's ID, of 63 bits."""
    return int.from_bytes(sha256(member_id.encode()).digest()[:8], "big") >> 1


def in_order(claim: Claim | None, last: Claim | None) -> bool:
    """Return whether a claim is newer than the last one, or is its repetition; any is newer than an unknown one."""
    if claim is None or last is None:
        return True
    return claim[:2] > last[:2] or claim == last


def continued(claim: Claim, last: Claim | None) -> Claim | None:
    """Return a claim in the term of the last one; None if it is newer only in another term."""
    if last is None:
        return claim
    found = claim._replace(term=last.term)
    return found if in_order(found, last) else None


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
    # `change` and `last` belong to a commit, whose last change is marked; `fence` begins an epoch; `rewrite` repeats
    # the value of a key that another member has written; `lost` states that records which had been written no longer
    # exist.
    kind: Kind
    epoch: int
    # Number of the commit; for `rewrite`, of the last one that is completely in the state; otherwise -1.
    commit: int = NO_COMMIT
    # The key is empty if the record is no change, and the value None if the key is deleted. The claim is that of the
    # writer of a fence, None if it is not known. The offset is -1 if the record was not read from the changelog.
    key: bytes = b""
    value: bytes | None = None
    claim: Claim | None = None
    offset: int = field(default=-1, compare=False)

    def header(self) -> bytes:
        return _FORM.pack(_NUMBERS[self.kind], self.epoch, self.commit)

    def log_value(self) -> bytes | None:
        """Return the value of the record; other records than changes have one, since compaction removes null values."""
        value = _OTHERS.get(self.kind, self.value)
        return value if self.claim is None or value is None else value + _CLAIM.pack(*self.claim)

    def log_key(self) -> bytes:
        return _OTHERS.get(self.kind) or self.key

    def digest(self) -> int:
        """Return a number of 56 bits that another record at the same offset does not have."""
        value = self.log_value()
        parts = (self.header(), self.log_key(), b"" if value is None else b"\0" + value)
        content = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return int.from_bytes(hashlib.blake2b(content, digest_size=7).digest(), "big")


def read_change(key: bytes | None, value: bytes | None, header: bytes | None) -> ChangelogRecord:
    """Decode a record of a changelog; raise a WireError if it is none of rackassign."""
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


NO_EPOCH = -1


@dataclass(slots=True)
class ChangelogReplay:
    """Position in a changelog, and pending changes."""

    # The greatest epoch so far, and the number of its fences: of several owners, the one with the first fence is valid.
    epoch: int = NO_EPOCH
    fences: int = 0
    # Number of the last commit that is completely in the state, and changes, epoch and number of the one after that.
    commit: int = NO_COMMIT
    uncommitted: dict[bytes, bytes | None] = field(default_factory=dict)
    pending_of: tuple[int, int] = (NO_EPOCH, NO_COMMIT)
    # Keys whose last record does not count, and whether the last fence does not.
    stale_keys: set[bytes] = field(default_factory=set)
    fence_overwritten: bool = False
    # Whether a member has reported missing records.
    lost: bool = False
    # Of the owner; None if it is not known.
    claim: Claim | None = None

    def take(self, change: ChangelogRecord) -> Iterator[tuple[bytes, bytes | None]]:
        """Apply the next record; yield the changed keys with their values, in order."""
        if change.kind == "lost":
            self.lost = True
            return
        if change.epoch < self.epoch or not self._in_order(change):
            if change.kind == "fence":
                self.fence_overwritten = True
            else:
                self.stale_keys.add(change.key)
            return
        if change.epoch > self.epoch:
            self.epoch, self.fences, self.claim = change.epoch, 0, None
        if change.kind == "fence":
            self.claim = change.claim
            self.fences += 1
            self.fence_overwritten = False
            return
        self.stale_keys.discard(change.key)
        if change.kind == "rewrite":
            if self.pending_of[1] <= change.commit:
                yield from self._completed()
            self.commit = max(self.commit, change.commit)
            self.uncommitted.pop(change.key, None)
            yield change.key, change.value
            return
        if self.pending_of != (change.epoch, change.commit):
            yield from self._completed()
        self.uncommitted[change.key] = change.value
        self.pending_of = change.epoch, change.commit
        if change.kind == "last":
            yield from self._completed()

    def _in_order(self, change: ChangelogRecord) -> bool:
        """Return whether a record is no fence, or one that begins or repeats an epoch validly."""
        if change.kind != "fence":
            return True
        if change.epoch == self.epoch:
            # Behind its records only after compaction, and otherwise repeated by the owner.
            return self.claim is None or change.claim == self.claim
        return in_order(change.claim, self.claim)

    def _completed(self) -> Iterator[tuple[bytes, bytes | None]]:
        if self.uncommitted:
            yield from self.uncommitted.items()
            self.commit = max(self.commit, self.pending_of[1])
            self.uncommitted = {}

    def keys_to_rewrite(self) -> list[bytes]:
        """Return the keys to be rewritten: by a new owner before anything else, by the current one when possible."""
        return sorted(self.stale_keys.union(self.uncommitted))
