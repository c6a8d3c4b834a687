"""Hypothesis strategies for groups."""

from __future__ import annotations

from hypothesis import strategies as st

from rackassign.model import Broker, Group, Member, Partition, Topology

RACKS = st.sampled_from(["a", "b", "c", "d"])
TOPICS = st.sampled_from(["t0", "t1", "t2", "t3"])
IDS = st.text(st.sampled_from("abc\U0001f600\ufffd-"), min_size=1, max_size=4)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Small clusters: brokers without rack, replicas on brokers nobody knows, topics without partitions."""
    racks = draw(st.lists(st.none() | RACKS, max_size=5))
    brokers = tuple(Broker(i, rack) for i, rack in enumerate(racks))
    replicas = st.lists(st.integers(0, 5), max_size=3).map(tuple)
    partitions = st.builds(Partition, replicas=replicas, leader=st.none() | st.integers(0, 5))
    topics = draw(st.dictionaries(TOPICS, st.lists(partitions, max_size=7).map(tuple), max_size=4))
    return Topology(brokers, topics)


@st.composite
def groups(draw: st.DrawFn) -> Group:
    """Small groups of static and dynamic members, with claims true, stale, doubled and absurd."""
    claims = st.dictionaries(TOPICS, st.lists(st.integers(0, 8), max_size=5, unique=True).map(tuple), max_size=3)
    ids = draw(st.lists(IDS, max_size=6, unique=True))
    members = tuple(
        Member(
            id=member,
            topics=draw(st.frozensets(TOPICS)),
            rack=draw(st.none() | RACKS),
            instance_id=draw(st.none() | st.just(f"static-{member}")),
            owned=draw(claims),
            generation=draw(st.none() | st.integers(0, 3)),
        )
        for member in ids
    )
    return Group(draw(topologies()), members)
