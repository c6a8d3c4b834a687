"""The semantics of a changelog: which records count, regardless of their writer and of compaction.

Theory of operation
-------------------
A partition has one owner after the other, each with a greater *epoch*, which it begins with a fence. A former owner
that has not noticed continues to write. Records of a lower epoch than the highest one so far are ignored. So is a fence
whose claim is older than that of the owner (`claims`): a former owner that resumes cannot become the owner again. It
reads its fence back before it writes anything else, so no other records have the epoch of an ignored fence.

The changes of one input record belong together. An owner may die between them. Its successor then processes the record
again, and the existing changes must not count. Changes are *pending* until the last one of their record, or one of a
later record, is read. Changes that are pending when an epoch ends are resolved by the next owner: before anything else,
it *rewrites* each of their keys with its current value. So a rewrite removes its key from the pending changes, a fence
keeps them, and a change means that all of them were rewritten or that the record was complete: compaction may have
removed its last change, but then a later record follows. The remaining pending changes then count, because those that
had to be rewritten are already removed.

A *checkpoint* (`mark`) follows each batch and contains the last complete input record. Compaction may remove all other
traces of it: a deletion is removed without a successor, and some records change nothing. With the checkpoint, the
offset where the input continues is always known from the changelog, independent of commits, and a log that has lost its
end is completed from the input. A rewrite contains the same offset, since it may be all that an owner manages to write.

Keys that a former owner has written are *stale* until the current owner writes them. Such records are ignored here, but
compaction keeps the last record of a key regardless of its writer, and without a rewrite the key would be lost to all
members that restore later. So an owner rewrites stale keys as soon as it reads them, and its successor does if it could
not. Late fences and checkpoints are such records as well: if the valid ones were removed, epochs and sources would
decrease.

An owner may write into a log that has lost what it had written before (deleted, or truncated by brokers that did not
have all of it). The missing records are then between records that count, which no reader can detect: so the owner
writes that records are *lost*.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rackassign.stateful.claims import Claim, in_order
from rackassign.stateful.records import NO_SOURCE, ChangelogRecord

NO_EPOCH = -1


@dataclass(slots=True)
class ChangelogReplay:
    """Position in a changelog, and pending changes.

    Args:
        epoch: The greatest epoch so far.
        fences: Number of fences of that epoch; of several owners with the same epoch, the one with the first fence is
            valid.
        source: The last input record that is completely in the state; -1 for none.
        uncommitted: Changes of the input record after that, by key.
        pending_of: Epoch and offset of that record.
        stale_keys: Keys whose last record does not count.
        fence_overwritten: Whether the last fence does not count.
        checkpoint_missing: Whether the last checkpoint does not count, or is a former owner's.
        lost: Whether a member has reported missing records.
        claim: Claim of the owner; None if it is not known.
    """

    epoch: int = NO_EPOCH
    fences: int = 0
    source: int = NO_SOURCE
    uncommitted: dict[bytes, bytes | None] = field(default_factory=dict)
    pending_of: tuple[int, int] = (NO_EPOCH, NO_SOURCE)
    stale_keys: set[bytes] = field(default_factory=set)
    fence_overwritten: bool = False
    checkpoint_missing: bool = False
    lost: bool = False
    claim: Claim | None = None

    def take(self, change: ChangelogRecord) -> Iterator[tuple[bytes, bytes | None]]:
        """Apply the next record; yield the changed keys with their values, in order."""
        if change.kind == "lost":
            self.lost = True
            return
        if change.epoch < self.epoch or not self._in_order(change):
            self._spoiled_by(change)
            return
        if change.epoch > self.epoch:
            self.epoch, self.fences, self.claim = change.epoch, 0, None
        if change.kind == "fence":
            self.claim = change.claim
            self.fences += 1
            self.fence_overwritten = False
            # The former owner may have died between a record and its checkpoint.
            self.checkpoint_missing = True
            return
        if change.kind in {"rewrite", "mark"}:
            if self.pending_of[1] <= change.source:
                yield from self._completed()
            self.source = max(self.source, change.source)
        if change.kind == "mark":
            self.checkpoint_missing = False
            return
        self.stale_keys.discard(change.key)
        if change.kind == "rewrite":
            self.uncommitted.pop(change.key, None)
            yield change.key, change.value
            return
        if self.pending_of != (change.epoch, change.source):
            yield from self._completed()
        self.uncommitted[change.key] = change.value
        self.pending_of = change.epoch, change.source
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

    def _spoiled_by(self, change: ChangelogRecord) -> None:
        if change.kind == "fence":
            self.fence_overwritten = True
        elif change.kind == "mark":
            self.checkpoint_missing = True
        else:
            self.stale_keys.add(change.key)

    def _completed(self) -> Iterator[tuple[bytes, bytes | None]]:
        if self.uncommitted:
            yield from self.uncommitted.items()
            self.source = max(self.source, self.pending_of[1])
            self.uncommitted = {}

    def keys_to_rewrite(self) -> list[bytes]:
        """Return the keys to be rewritten: by a new owner before anything else, by the current one when possible."""
        return sorted(self.stale_keys.union(self.uncommitted))
