"""The sequence diagrams of the documentation: one for each idea that is about an order of events."""

from __future__ import annotations

from tools.pictures.sequence import Arrow, Note, Sequence

JOIN = Sequence(
    "The members of a group send their racks, and the leader of the group assigns",
    ("consumer in rack a", "coordinator", "consumer in rack b"),
    (
        Arrow(0, 1, "JoinGroup: topics, rack a"),
        Arrow(2, 1, "JoinGroup: topics, rack b"),
        Arrow(1, 2, "leader: subscriptions of all"),
        Note(2, "its assignor plans for all members"),
        Arrow(2, 1, "SyncGroup: all assignments"),
        Arrow(1, 0, "its own assignment"),
        Arrow(1, 2, "its own assignment"),
    ),
)

COOPERATIVE = Sequence(
    "With the cooperative protocol a partition moves in two rebalances, and has one owner at most",
    ("owner", "coordinator", "new member"),
    (
        Note(0, "owns partitions 0, 1, 2 and 3"),
        Arrow(2, 1, "JoinGroup"),
        Arrow(1, 0, "keep 0 and 1"),
        Arrow(1, 2, "nothing yet: 2 and 3 are withheld"),
        Note(0, "reads 0 and 1; gives up 2 and 3"),
        Arrow(0, 1, "JoinGroup: owns 0 and 1"),
        Arrow(1, 2, "read 2 and 3"),
    ),
)

FOLLOWER = Sequence(
    "A consumer fetches from the leader until that names a follower in the rack of the consumer",
    ("leader in rack b", "consumer in rack a", "follower in rack a"),
    (
        Arrow(1, 0, "Fetch: client.rack is a", "cross"),
        Arrow(0, 1, "read from the follower in rack a"),
        Arrow(1, 2, "Fetch", "local"),
        Arrow(2, 1, "records", "local"),
        Note(1, "after metadata.max.age.ms: asks the leader again"),
    ),
)

RACK_MONITOR = Sequence(
    "The leader of a group requests one rebalance after replicas have moved for good",
    ("brokers", "leader of the group", "other members"),
    (
        Arrow(0, 1, "metadata: racks have changed"),
        Note(1, "waits for 3 s, then asks again"),
        Arrow(0, 1, "metadata: the same racks"),
        Note(1, "a new plan makes more partitions local"),
        Arrow(1, 2, "one rebalance"),
        Note(1, "requests no other one for 10 s"),
    ),
)

REASSIGNMENT = Sequence(
    "A plan is on disk before anything changes, and each step is decided from what brokers describe",
    ("plan file", "rackassign", "controller"),
    (
        Arrow(1, 0, "lists before and after"),
        Arrow(2, 1, "describes partitions"),
        Arrow(1, 2, "new lists of a batch"),
        Note(2, "adds replicas; the old ones serve"),
        Arrow(2, 1, "describes: in sync, old ones removed"),
        Note(1, "killed: the same command goes on from here"),
        Arrow(1, 0, "applied"),
    ),
)

FENCES = Sequence(
    "Readers of a changelog ignore what a former owner writes after the fence of its successor",
    ("former owner", "changelog", "owner"),
    (
        Arrow(0, 1, "fence: epoch 1; commits"),
        Note(0, "is stopped, and removed from the group"),
        Arrow(2, 1, "fence: epoch 2"),
        Arrow(1, 2, "state up to the fence"),
        Arrow(2, 1, "commits of epoch 2"),
        Arrow(0, 1, "resumes: a commit of epoch 1"),
        Note(1, "epoch 1 is ignored by all readers"),
    ),
)

SEQUENCES = {
    "group-protocol": JOIN,
    "cooperative-rebalance": COOPERATIVE,
    "follower-fetching": FOLLOWER,
    "rack-monitor": RACK_MONITOR,
    "reassignment": REASSIGNMENT,
    "fences": FENCES,
}
"""By the name of the file."""
