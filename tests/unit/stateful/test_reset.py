"""What a reset deletes, what it refuses, and that it can be repeated after any failure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from rackassign.admin.admin_client import AuthorizationError
from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.model import TopicPartition
from rackassign.monitoring import GroupDescription, MemberDescription
from rackassign.stateful._changelog import is_change, is_of_earlier_format
from rackassign.stateful.reset import (
    ChangelogDeletion,
    Commit,
    RecordCheck,
    ResetPlan,
    ResetRequest,
    execute_reset,
    plan_reset,
)
from tests.helpers.builders import group

LOG, OTHER = "g-t-changelog", "g-u-changelog"


def member(name: str) -> MemberDescription:
    return MemberDescription(name, f"client-{name}", "10.0.0.1")


@dataclass
class Cluster:
    """A cluster in memory that fails where it is to."""

    groups: dict[str, GroupDescription] = field(default_factory=lambda: {"g": group(name="g", state="Empty")})
    topics: dict[str, int] = field(default_factory=lambda: {"t": 2, "u": 1, LOG: 2, OTHER: 1})
    policies: dict[str, str] = field(default_factory=dict)
    foreign: dict[str, str] = field(default_factory=dict)
    offsets: dict[TopicPartition, Commit] = field(
        default_factory=lambda: {
            TopicPartition("t", 0): Commit(5),
            TopicPartition("t", 1): Commit(6),
            TopicPartition("u", 0): Commit(7),
        }
    )
    denied: set[str] = field(default_factory=set)
    fails_after: int = 99
    did: list[object] = field(default_factory=list)

    def group(self, name: str) -> GroupDescription | None:
        return self.groups.get(name)

    def group_names(self) -> list[str]:
        return [*self.groups]

    def commits(self, group: str) -> dict[TopicPartition, Commit]:
        assert group in self.groups
        return dict(self.offsets)

    def topic_names(self) -> list[str]:
        return [*self.topics]

    def partitions(self, names: Iterable[str]) -> dict[str, int]:
        return {name: self.topics[name] for name in names if name in self.topics}

    def cleanup_policies(self, names: Iterable[str]) -> dict[str, str]:
        return {name: self.policies.get(name, "compact") for name in names}

    def check_records(self, name: str, partitions: int) -> RecordCheck:
        assert partitions == self.topics[name]
        return RecordCheck(10 * partitions, self.foreign.get(name, ""))

    def check_may_delete(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self.denied:
                raise AuthorizationError("DELETE", f"topic {name}")

    def check_may_delete_offsets(self, group: str, topics: Iterable[str]) -> None:
        if group in self.denied:
            raise AuthorizationError("DELETE", f"group {group}")
        assert set(topics) <= set(self.topics)

    def _step(self, what: object) -> None:
        if len(self.did) >= self.fails_after:
            raise KafkaUnavailableError("lost")
        self.did.append(what)

    def mark(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        assert not self.groups[group].members
        self._step("mark")
        self.offsets |= {tp: Commit(offset, marked=True) for tp, offset in offsets.items()}

    def delete_topics(self, names: Iterable[str]) -> None:
        for name in names:
            self._step(name)
            del self.topics[name]

    def delete_offsets(self, group: str, tps: Iterable[TopicPartition]) -> None:
        assert group in self.groups
        for tp in tps:
            self._step(tp)
            del self.offsets[tp]


def planned(cluster: Cluster, *topics: str, changelogs: tuple[str, ...] = (), name: str = "g") -> ResetPlan:
    return plan_reset(cluster, ResetRequest(name, topics, changelogs))


def refusal(cluster: Cluster, *topics: str, changelogs: tuple[str, ...] = (), name: str = "g") -> str:
    with pytest.raises(ConfigError) as found:
        planned(cluster, *topics, changelogs=changelogs, name=name)
    assert not cluster.did
    return str(found.value)


def topics_of(plan: ResetPlan) -> list[str]:
    return sorted({tp.topic for tp in plan.offsets})


def test_all_changelogs_and_offsets_are_planned_and_nothing_is_changed_before_it_is_executed() -> None:
    cluster = Cluster()
    plan = planned(cluster)
    assert plan.changelogs == (ChangelogDeletion(LOG, 2, 20), ChangelogDeletion(OTHER, 1, 10))
    assert plan.offsets == {tp: commit.offset for tp, commit in cluster.offsets.items()}
    assert plan.warnings == ()
    assert not cluster.did
    execute_reset(cluster, plan)
    assert cluster.did == ["mark", LOG, OTHER, *plan.offsets]
    assert (cluster.topics, cluster.offsets) == ({"t": 2, "u": 1}, {})


@pytest.mark.parametrize("step", range(6))
def test_a_reset_that_failed_at_any_step_is_completed_by_the_same_one(step: int) -> None:
    cluster = Cluster(fails_after=step)
    with pytest.raises(KafkaUnavailableError):
        execute_reset(cluster, planned(cluster))
    assert len(cluster.did) == step
    cluster.fails_after = 99
    plan = planned(cluster)
    assert plan.warnings == ()
    execute_reset(cluster, plan)
    assert (cluster.topics, cluster.offsets) == ({"t": 2, "u": 1}, {})


@pytest.mark.parametrize("step", range(4))
def test_the_same_holds_for_named_changelogs(step: int) -> None:
    cluster = Cluster(topics={"t": 2, "u": 1, "one": 2, "two": 1}, fails_after=step)
    with pytest.raises(KafkaUnavailableError):
        execute_reset(cluster, planned(cluster, changelogs=("one", "two")))
    cluster.fails_after = 99
    plan = planned(cluster, changelogs=("one", "two"))
    assert plan.warnings == ()
    execute_reset(cluster, plan)
    assert (cluster.topics, cluster.offsets) == ({"t": 2, "u": 1}, {})


def test_only_named_topics_are_reset() -> None:
    by_topic, by_changelog = planned(Cluster(), "u"), planned(Cluster(), changelogs=(OTHER,))
    for plan in (by_topic, by_changelog):
        assert [each.name for each in plan.changelogs] == [OTHER]
        assert topics_of(plan) == ["u"]
        assert plan.warnings == ()


def test_a_group_with_members_is_refused_and_they_are_named() -> None:
    cluster = Cluster()
    cluster.groups["g"] = group(*map(member, "abcde"), name="g")
    message = (
        'group "g" has 5 members: client-a on 10.0.0.1, client-b on 10.0.0.1, client-c on 10.0.0.1 and 2 more;'
        " stop all members first"
    )
    assert refusal(cluster) == message
    cluster.groups["g"] = group(name="g", state="Empty")
    plan = planned(cluster)
    cluster.groups["g"] = group(member("a"), name="g")
    with pytest.raises(ConfigError, match="has 1 member: client-a on"):
        execute_reset(cluster, plan)
    assert not cluster.did


def test_offsets_of_a_group_without_changelogs_are_never_deleted() -> None:
    """It may be any group of consumers."""
    cluster = Cluster(topics={"t": 2, "u": 1})
    assert refusal(cluster) == (
        f'group "g" has no changelog: {LOG}, {OTHER} do not exist; use --changelog for changelogs with names of their'
        " own"
    )
    assert refusal(cluster, "t").startswith(f'group "g" has no changelog: {LOG} does not exist')
    cluster.topics[LOG] = 2
    plan = planned(cluster)
    assert topics_of(plan) == ["t"]
    assert plan.warnings == (f'topic "u" has no changelog {OTHER}; use --changelog if it has another name',)


@pytest.mark.parametrize(
    ("policy", "foreign", "message"),
    [
        ("delete", "", "it has cleanup.policy=delete"),
        ("compact,delete", "", "it has cleanup.policy=compact,delete"),
        ("compact", "the record at offset 7 of partition 1 is foreign", "the record at offset 7 of partition 1 is"),
    ],
)
def test_nothing_is_deleted_if_one_topic_is_not_a_changelog(policy: str, foreign: str, message: str) -> None:
    cluster = Cluster(policies={OTHER: policy}, foreign={OTHER: foreign})
    expected = f'topic "{OTHER}" is not a changelog of rackassign, so nothing is deleted: {message}'
    assert refusal(cluster).startswith(expected)
    assert refusal(cluster, changelogs=(LOG, OTHER)).startswith(expected)
    assert [each.name for each in planned(cluster, "t").changelogs] == [LOG]


def test_an_input_topic_and_a_topic_of_kafka_are_not_changelogs() -> None:
    cluster = Cluster()
    cluster.topics["__consumer_offsets"] = 50
    assert refusal(cluster, changelogs=("t", LOG)).endswith("it is an input topic of the group")
    assert refusal(cluster, changelogs=("__consumer_offsets",)).endswith("it belongs to Kafka")


def test_a_changelog_of_another_group_with_members_is_refused() -> None:
    cluster = Cluster(groups={"g": group(name="g", state="Empty"), "h": group(name="h", state="Empty")}, offsets={})
    reader = MemberDescription("m", "client", "10.0.0.1", assigned={"t": (0,), "u": (0,)})
    assert planned(cluster, name="h", changelogs=(LOG,)).changelogs
    cluster.groups["g"] = group(reader, name="g")
    message = f'changelog "{LOG}" has the name of that of group "g", whose members read t: stop them first'
    assert refusal(cluster, name="h", changelogs=(LOG,)) == message
    # A group whose name only begins like that of another one.
    cluster.groups["g-x"] = group(name="g-x", state="Empty")
    cluster.topics["g-x-t-changelog"] = 1
    assert planned(cluster, "t", name="g-x").changelogs


def test_without_the_permission_to_delete_one_nothing_is_deleted() -> None:
    cluster = Cluster(denied={OTHER})
    with pytest.raises(AuthorizationError, match=f"not allowed: DELETE on topic {OTHER}"):
        planned(cluster)
    with pytest.raises(AuthorizationError, match="not allowed: DELETE on group g"):
        planned(Cluster(denied={"g"}))


def test_names_that_do_not_exist_are_refused_with_a_similar_one() -> None:
    cluster = Cluster()
    cluster.groups["billing"] = group(name="billing", state="Empty")
    cluster.topics["orders"] = 1
    unknown = 'group: there is no consumer group "biling" on this cluster; did you mean "billing"?'
    assert refusal(cluster, name="biling") == unknown
    assert refusal(cluster, "t", name="biling") == unknown
    assert refusal(cluster, changelogs=(LOG,), name="biling") == unknown
    assert refusal(cluster, name="zzz") == 'group: there is no consumer group "zzz" on this cluster'
    assert refusal(cluster, "ordres") == 'topic "ordres" does not exist on this cluster; did you mean "orders"?'
    cluster.offsets.clear()
    missing = 'changelog "g-t-changelogs" does not exist on this cluster; did you mean "g-t-changelog"?'
    assert refusal(cluster, changelogs=("g-t-changelogs",)) == missing
    assert planned(cluster, changelogs=("g-t-changelogs", OTHER)).warnings == (missing,)


def test_a_group_without_committed_offsets_needs_names() -> None:
    cluster = Cluster(offsets={})
    assert refusal(cluster) == (
        'group "g" has no committed offsets, which name its topics: use --topic, or --changelog for changelogs with'
        " names of their own"
    )
    for plan in (planned(cluster, "t"), planned(cluster, changelogs=(LOG,))):
        assert ([each.name for each in plan.changelogs], plan.offsets) == ([LOG], {})
    execute_reset(cluster, planned(cluster, "t"))
    assert cluster.did == [LOG]


def test_a_group_that_brokers_have_forgotten_is_reset_by_its_topics() -> None:
    cluster = Cluster(groups={}, offsets={})
    plan = planned(cluster, "t")
    execute_reset(cluster, plan)
    assert cluster.did == [LOG]


def test_topics_that_look_like_changelogs_of_the_group_are_named_and_kept() -> None:
    cluster = Cluster()
    cluster.topics |= {"g-old-changelog": 1, "g--changelog": 1, "h-t-changelog": 1, "g-t-changelog-2": 1}
    plan = planned(cluster)
    (warning,) = plan.warnings
    assert warning.startswith('topic "g-old-changelog" is kept, since the group has no committed offsets of its input')
    assert planned(cluster, "t").warnings == ()
    assert "g-old-changelog" not in [each.name for each in plan.changelogs]


def copartitioned() -> Cluster:
    return Cluster(topics={"t": 2, "u": 2, "g-t-u-changelog": 2})


def test_of_co_partitioned_topics_the_changelog_is_named_and_all_offsets_are_deleted() -> None:
    cluster = copartitioned()
    assert "use --changelog" in refusal(cluster)
    plan = planned(cluster, changelogs=("g-t-u-changelog",))
    assert [each.name for each in plan.changelogs] == ["g-t-u-changelog"]
    assert plan.offsets.keys() == cluster.offsets.keys()
    execute_reset(cluster, plan)
    assert (sorted(cluster.topics), cluster.offsets) == (["t", "u"], {})


@pytest.mark.parametrize(
    ("key", "headers", "foreign"),
    [
        (b"\1key", [], False),
        (b"\4", [], False),
        # Of the format before transactions.
        (b"\0fence", [("rackassign", bytes(17))], False),
        (b"key", [], True),
        (None, [], True),
        (b"\1key", [("trace", b"")], True),
    ],
)
def test_records_of_earlier_formats_are_those_of_rackassign(
    key: bytes | None,
    headers: list[tuple[str, bytes]],
    foreign: bool,  # noqa: FBT001 - a parameter
) -> None:
    record = SimpleNamespace(key=key, value=b"value", headers=headers)
    assert (is_change(record) or is_of_earlier_format(record)) != foreign
