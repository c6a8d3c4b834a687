"""The semantics of a changelog: which records count, regardless of their writer and of compaction.

Theory of operation
-------------------
A partition has one owner after the other, each with a greater *epoch*, which it begins with a fence. A former owner
that has not noticed continues to write. Records of a lower epoch than the highest one so far are ignored. So is a fence
whose claim is older than that of the owner (`claims`): a former owner that resumes cannot become the owner again. It
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

from collections.abc import Iterator
from dataclasses import dataclass, field

from rackassign.stateful.changelog.claims import Claim, in_order
from rackassign.stateful.changelog.records import NO_COMMIT, ChangelogRecord

NO_EPOCH = -1


@dataclass(slots=True)
class ChangelogReplay:
    """Position in a changelog, and pending changes.

    Args:
        epoch: The greatest epoch so far.
        fences: Number of fences of that epoch; of several owners with the same epoch, the one with the first fence is
            valid.
        commit: Number of the last commit that is completely in the state; -1 for none.
        uncommitted: Changes of the commit after that, by key.
        pending_of: Epoch and number of that commit.
        stale_keys: Keys whose last record does not count.
        fence_overwritten: Whether the last fence does not count.
        lost: Whether a member has reported missing records.
        claim: Claim of the owner; None if it is not known.
    """

    epoch: int = NO_EPOCH
    fences: int = 0
    commit: int = NO_COMMIT
    uncommitted: dict[bytes, bytes | None] = field(default_factory=dict)
    pending_of: tuple[int, int] = (NO_EPOCH, NO_COMMIT)
    stale_keys: set[bytes] = field(default_factory=set)
    fence_overwritten: bool = False
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

    def _spoiled_by(self, change: ChangelogRecord) -> None:
        if change.kind == "fence":
            self.fence_overwritten = True
        else:
            self.stale_keys.add(change.key)

    def _completed(self) -> Iterator[tuple[bytes, bytes | None]]:
        if self.uncommitted:
            yield from self.uncommitted.items()
            self.commit = max(self.commit, self.pending_of[1])
            self.uncommitted = {}

    def keys_to_rewrite(self) -> list[bytes]:
        """Return the keys to be rewritten: by a new owner before anything else, by the current one when possible."""
        return sorted(self.stale_keys.union(self.uncommitted))
