"""Claims to a partition, and which of two is newer, by the order of the group.

A fence contains the claim of its writer: the generation of the assignment by which it took the partition. In one
generation a partition has one owner, so an owner of a later generation has the newer claim, and a former owner that
resumes has an older one, whenever it writes it.

Two things break the order of generations. A group that was deleted begins again at generation 1, and a static member
that restarts gets its former assignment in the same generation under another ID. Either member sees a claim in the log
that is not older than its own. If the coordinator confirms *after that* that its generation is the current one, the
claim in the log is a former one in spite of its generation. The member then begins a new *term*, and terms count before
generations.
"""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple


class Claim(NamedTuple):
    """A claim to a partition.

    Args:
        term: Number of times that the order of generations was broken.
        generation: Generation of the assignment by which the partition was taken.
        member: Hash of the member's ID.
    """

    term: int = 0
    generation: int = -1
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
