"""What a changelog means: which of its records count, whoever wrote them and however much of it compaction has left.

Theory of operation
-------------------
Owners come one after the other, each with a greater *epoch*, which it begins with a fence. A former owner that does not
know yet writes on; what is of a lower epoch than one that was seen counts for nothing.

The changes of one input record belong together. An owner may die between them: then its successor does the record
again, and what is there of it must not count. Changes *pend* until the last of their record, or one of a later record,
is there. What pends when an epoch ends is resolved by what the next owner does: it *heals* (writes once more) each key
of it, before anything else. So a heal removes its key from what pends, a fence leaves it, and a change means that all
of it was healed, or was whole: compaction may have taken the last change, but then something follows. Then what pends
counts, for what had to be healed is gone from it.

Behind whatever was written together comes a *mark* that says which record is the last that is whole. Compaction may
forget all else of it: a deletion goes without a successor, and some records change nothing. With the mark, where the
input goes on is always known from here, whatever was committed, and a log that has lost its end is made up for from the
input. A heal says the same, since it may be all that an owner has come to write.

Keys to which a former owner wrote are *spoiled* until somebody who may writes to them. Such records are ignored here;
but compaction keeps the last record of a key whoever wrote it, and without a heal the key would be lost to all who
begin anew. So an owner heals what is spoiled as soon as it sees it, and its successor does where it could not. Fences
and marks that come late are such records as well: with those gone that count, epochs and sources would go back.

An owner may write into a log that has lost what it had written before (deleted, or cut by brokers that had not all of
it). What is missing then stands between records that count, and nobody can tell: so the owner says that it is *lost*.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rackassign.stateful.records import NO_SOURCE, ChangelogRecord

NO_EPOCH = -1


@dataclass(slots=True)
class ChangelogReplay:
    """How far a changelog was read, and what pends.

    Args:
        epoch: The greatest seen.
        fences: How many of that epoch were seen; of several owners with one epoch, whose fence is the first runs.
        source: The last input record of which all is in the state; -1 for none.
        uncommitted: Changes of the input record after that, by key.
        pending_of: The epoch and the offset of that record.
        stale_keys: Keys whose last record is none that counts.
        fence_overwritten: Whether the last fence is none that counts.
        checkpoint_missing: Whether the last mark is none that counts, or of who ran it before.
        lost: Whether somebody has found that records are missing.
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

    def take(self, change: ChangelogRecord) -> Iterator[tuple[bytes, bytes | None]]:
        """Take in the next record; yield the keys whose values change by it, in order."""
        if change.kind == "lost":
            self.lost = True
            return
        if change.epoch < self.epoch:
            self._spoiled_by(change)
            return
        if change.epoch > self.epoch:
            self.epoch, self.fences = change.epoch, 0
        if change.kind == "fence":
            self.fences += 1
            self.fence_overwritten = False
            # Who came before may have died between a record and its mark.
            self.checkpoint_missing = True
            return
        if change.kind in {"heal", "mark"}:
            if self.pending_of[1] <= change.source:
                yield from self._completed()
            self.source = max(self.source, change.source)
        if change.kind == "mark":
            self.checkpoint_missing = False
            return
        self.stale_keys.discard(change.key)
        if change.kind == "heal":
            self.uncommitted.pop(change.key, None)
            yield change.key, change.value
            return
        if self.pending_of != (change.epoch, change.source):
            yield from self._completed()
        self.uncommitted[change.key] = change.value
        self.pending_of = change.epoch, change.source
        if change.kind == "last":
            yield from self._completed()

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

    def to_heal(self) -> list[bytes]:
        """Return the keys that a new owner writes once more before anything else, and a running one when it can."""
        return sorted(self.stale_keys.union(self.uncommitted))
