"""Claims of members, resolved: whatever they claim, and whether it exists."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rackassign.model import Member
from rackassign.solver import NO_MEMBER
from rackassign.strategies.ownership import SEVERAL, resolve_ownership

TOPICS, SIZES = ("a", "b", "c"), (2, 1, 3)

ids = st.sampled_from([0, 1, 2, 3, 2**31 - 1, 2**31, 2**63, 2**70])
claims = st.dictionaries(st.sampled_from(["a", "b", "c", "gone"]), st.lists(ids, max_size=4, unique=True).map(tuple))
generations = st.sampled_from([None, 0, 1, 2])


@given(st.lists(st.tuples(claims, generations, st.frozensets(st.sampled_from(TOPICS))), max_size=5))
def test_claims_are_resolved_as_the_definition_does(
    claimed: list[tuple[dict[str, tuple[int, ...]], int | None, frozenset[str]]],
) -> None:
    members = [
        Member(f"m{i}", topics, owned=owned, generation=generation)
        for i, (owned, generation, topics) in enumerate(claimed)
    ]
    reads = np.asarray([[topic in member.topics for topic in TOPICS] for member in members], bool)
    found = resolve_ownership(members, TOPICS, np.asarray(SIZES), reads.reshape(len(members), len(TOPICS)))
    claimant: list[int] = []
    owner: list[int] = []
    for topic, size in zip(TOPICS, SIZES, strict=True):
        for partition in range(size):
            by_generation: dict[int, list[int]] = {}
            for i, member in enumerate(members):
                if partition in member.owned.get(topic, ()):
                    by_generation.setdefault(-1 if member.generation is None else member.generation, []).append(i)
            newest = by_generation[max(by_generation)] if by_generation else [NO_MEMBER]
            one = newest[0] if len(newest) == 1 else SEVERAL
            claimant.append(one)
            owner.append(one if one >= 0 and topic in members[one].topics else NO_MEMBER)
    assert (found.claimant.tolist(), found.owner.tolist()) == (claimant, owner)


def test_without_topics_nothing_is_claimed() -> None:
    member = Member("m", frozenset({"gone"}), owned={"gone": (0,)}, generation=1)
    found = resolve_ownership([member], (), np.zeros(0, np.int64), np.zeros((1, 0), bool))
    assert (found.claimant.tolist(), found.owner.tolist()) == ([], [])
