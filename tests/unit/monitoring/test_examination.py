"""The examination of a group: what is done in which order, without a broker."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import NoError

from rackassign.cli import ExitCode
from rackassign.cli.app import run
from rackassign.cli.commands import doctor
from rackassign.errors import KafkaUnavailableError
from rackassign.locality import Locality
from rackassign.model import Broker, Partition, Topology
from rackassign.monitoring import (
    BrokerDescription,
    GroupDescription,
    GroupObservation,
    ObservedCluster,
    RecoveryResult,
    examine,
    health,
    wedged_group,
)
from tests.helpers.builders import brokers, group, member

ADMIN: Any = object()
HEALTHY = group(member("m1", "a", {}), state="Stable")
WEDGED = group(member("m1", "a", {}), state="PreparingRebalance", strategy="")


def cluster(
    known: tuple[BrokerDescription, ...], topics: dict[str, tuple[Partition, ...]] | None = None
) -> ObservedCluster:
    """Return a cluster whose replicas are all in sync."""
    given = topics or {}
    in_sync = {topic: tuple(p.replicas for p in row) for topic, row in given.items()}
    return ObservedCluster(known, Topology(tuple(Broker(b.id, b.rack) for b in known), given), in_sync)


@pytest.mark.parametrize("fix", [False, True])
def test_a_wedged_group_is_recovered_only_on_request_and_then_observed_again(
    monkeypatch: pytest.MonkeyPatch, *, fix: bool
) -> None:
    looks = [GroupObservation(each, (each.state,), 0, 10.0) for each in (WEDGED, HEALTHY)]
    removed = RecoveryResult(WEDGED.members, WEDGED.members[0])
    monkeypatch.setattr(health, "GroupAdmin", lambda _: None)
    monkeypatch.setattr(health, "watch", lambda *_, **__: looks.pop(0))
    monkeypatch.setattr(health, "is_wedged", lambda *_: True)
    monkeypatch.setattr(health, "recover", lambda *_: removed)
    monkeypatch.setattr(health, "describe_cluster", lambda *_: cluster(brokers()))
    examined = examine(ADMIN, "g", observe_s=10, fix=fix)
    assert examined.group == (HEALTHY if fix else WEDGED)
    assert examined.recovery == (removed if fix else RecoveryResult())
    assert ("wedged" in {finding.kind for finding in examined.findings}) is not fix


def test_members_that_were_removed_are_named_if_the_connection_is_lost_after_that(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = [GroupObservation(WEDGED, (WEDGED.state,), 0, 10.0)]

    def watch(*_: object, **__: object) -> GroupObservation:
        if not looks:
            raise KafkaUnavailableError("Kafka at x:1 does not respond")
        return looks.pop()

    answers = SimpleNamespace(remove_group_members=lambda _, members: {members[0].member_id: NoError})
    monkeypatch.setattr(doctor, "admin_client", lambda *_: nullcontext(answers))
    monkeypatch.setattr(health, "GroupAdmin", lambda _: None)
    monkeypatch.setattr(health, "watch", watch)
    monkeypatch.setattr(wedged_group, "describe_group", lambda *_: WEDGED)
    for module in (health, wedged_group):
        monkeypatch.setattr(module, "is_wedged", lambda *_: True)
    assert run(["doctor", "--bootstrap-server", "x:1", "--group", "g", "--fix"]) == ExitCode.NO_ANSWER
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "rackassign: removed " in shown.err
    assert "(m1)" in shown.err
    assert "Kafka at x:1 does not respond" in shown.err


def examined_group(
    monkeypatch: pytest.MonkeyPatch, of: GroupDescription, observed: ObservedCluster
) -> health.Examination:
    monkeypatch.setattr(health, "GroupAdmin", lambda _: None)
    monkeypatch.setattr(health, "watch", lambda *_, **__: GroupObservation(of, (of.state,), 0, 0.0))
    monkeypatch.setattr(health, "describe_cluster", lambda *_: observed)
    return examine(ADMIN, "g", observe_s=0)


def printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], examined: health.Examination
) -> list[str]:
    """Return the lines that the command prints of a group without problems."""
    monkeypatch.setattr(doctor, "admin_client", lambda *_: nullcontext())
    monkeypatch.setattr("rackassign.monitoring.examine", lambda *_, **__: examined)
    assert doctor.doctor(bootstrap="b:1", group="g") == 0
    return capsys.readouterr().out.splitlines()


def test_a_dead_broker_that_the_cluster_does_not_list_is_found_by_its_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    observed = cluster(brokers("ab"), {"t": (Partition((1, 3), 1), Partition((2, 1), 2))})
    found = {finding.kind: finding.brokers for finding in examined_group(monkeypatch, HEALTHY, observed).findings}
    assert found == {"brokers-offline": (3,)}


@pytest.mark.parametrize(
    ("racks", "locality", "beginning"),
    [
        ("ab", Locality(2, 0, 0), "100.0 % of its partitions are read in the rack of their reader"),
        ("ba", Locality(0, 2, 0), "0.0 % of its partitions are read in the rack of their reader;"),
    ],
)
def test_a_healthy_group_that_reads_from_other_racks_is_shown_as_that(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], racks: str, locality: Locality, beginning: str
) -> None:
    members = (member("m1", racks[0], {"t": (0,)}), member("m2", racks[1], {"t": (1,)}))
    observed = cluster(brokers("ab"), {"t": (Partition((1,), 1), Partition((2,), 2))})
    examined = examined_group(monkeypatch, group(*members, state="Stable"), observed)
    assert not examined.findings
    assert examined.locality == locality
    healthy, reads = printed(monkeypatch, capsys, examined)
    assert healthy.startswith("g: healthy: 2 members, racks a, b; ")
    assert reads.startswith(beginning)
    assert ("`rackassign inspect --group g` shows" in reads) is (locality.cross > 0)


@pytest.mark.parametrize("replicas", [(1, 2), (1,)])
def test_members_without_a_rack_are_no_problem_where_each_rack_has_a_replica(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], replicas: tuple[int, ...]
) -> None:
    observed = cluster(brokers("ab"), {"t": (Partition(replicas, 1), Partition((2, 1), 2))})
    examined = examined_group(monkeypatch, group(member("m1", None, {"t": (0, 1)}), state="Stable"), observed)
    assert examined.in_each_rack == len(replicas)
    assert [finding.kind for finding in examined.findings] == ([] if len(replicas) > 1 else ["no-rack"])
    if not examined.findings:
        assert printed(monkeypatch, capsys, examined)[1] == (
            "0.0 % of its partitions are read in the rack of their reader, and of 100.0 % it is unknown: client.rack"
            " alone makes all of these local; check that each consumer sets it"
        )


def test_topics_that_cannot_be_described_are_named_beside_what_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    of = group(member("m1", "a", {"t": (0,), "secret": (0,)}), state="Stable")
    known = cluster(brokers("ab"), {"t": (Partition((1,), 1),)})
    for observed, line in (
        (known, "100.0 % of its partitions are read in the rack of their reader; not counted: secret (not allowed)"),
        (cluster(brokers("ab")), "no partition is read now; not counted: secret (not allowed)"),
    ):
        examined = examined_group(monkeypatch, of, replace(observed, missing={"secret": "not allowed"}))
        assert printed(monkeypatch, capsys, examined)[1] == line


@pytest.mark.parametrize(("strategy", "found"), [("rackassign-standby", 1), ("cooperative-sticky", 0)])
def test_a_changelog_that_may_lose_its_last_records_is_found(
    monkeypatch: pytest.MonkeyPatch, strategy: str, found: int
) -> None:
    asked: list[list[str]] = []

    def configs(_: Any, names: list[str], keys: list[str]) -> dict[str, dict[str, str]]:
        asked.append(names)
        return {name: dict.fromkeys(keys, "true") for name in names}

    monkeypatch.setattr(health, "topic_configs", configs)
    observed = cluster(brokers("ab"), {"t": (Partition((1,), 1),)})
    examined = examined_group(
        monkeypatch, group(member("m1", "a", {"t": (0,)}), state="Stable", strategy=strategy), observed
    )
    unclean = [each for each in examined.findings if each.kind == "changelog-unclean"]
    assert len(unclean) == found
    assert asked == [["g-t-changelog"]] * found
    if unclean:
        assert unclean[0].problem.startswith("g-t-changelog has unclean.leader.election.enable=true: ")
