"""`rackassign state reset` on real brokers: the state is built again from the input, and nothing else is deleted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.errors import CoordinatorNotAvailableError, NoError
from kafka.structs import OffsetAndMetadata

from rackassign.admin.describe import describe_topics
from rackassign.admin.groups import GroupAdmin
from rackassign.cli.app import run
from rackassign.stateful import StatefulConsumer, StateStore
from rackassign.stateful._stores import DEFAULT
from rackassign.strategies.standby import StandbyOptions
from rackassign.testing import Cluster, LocalCluster, create_topic
from rackassign.testing._security import MECHANISM, PASSWORD
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.command import rackassign
from tests.helpers.kafka.permissions import CONFIG, acl, make_users

pytestmark = [pytest.mark.brokers, pytest.mark.local]

TIMEOUT_S = 600.0
SPREAD = [[1, 2], [2, 3]]
COMPACT = {"cleanup.policy": "compact"}


def count(_: Any, store: StateStore) -> None:
    store.put(b"n", b"%d" % (int(store.get(b"n") or 0) + 1))


def begun(topic: str, group: str, folder: Path, **config: Any) -> StatefulConsumer:
    return StatefulConsumer(
        topic, process=count, state_dir=folder, standbys=StandbyOptions(0), group_id=group, **config
    )


def write(bootstrap: str, topic: str, *values: bytes, key: bytes | None = None, headers: Any = ()) -> None:
    with closing(KafkaProducer(bootstrap_servers=bootstrap)) as producer:
        for partition in range(2):
            for value in values:
                producer.send(topic, value, key, list(headers), partition=partition)


def wait_counted(member: StatefulConsumer, topic: str, records: int) -> None:
    def so() -> bool:
        member.poll(100)
        stores = [member.store(tp) for tp in member.active_partitions()]
        return [int(store.get(b"n") or 0) for store in stores] == [records] * 2

    wait_until(so, f"{records} records of each partition of {topic}", timeout_s=TIMEOUT_S)
    member.commit()


def wait_committed(
    admin: KafkaAdminClient, group: str, offsets: dict[int, int], *, member: StatefulConsumer | None = None
) -> None:
    def so() -> bool:
        # What commit() could not send in its two seconds is sent by a poll.
        if member is not None:
            member.poll(100)
        found = {tp.partition: at for tp, at in GroupAdmin(admin).committed_offsets(group).items()}
        return found == offsets

    wait_until(so, f"committed offsets {offsets}")


@pytest.fixture
def admin(rack_cluster: Cluster) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=rack_cluster.bootstrap)) as made:
        yield made


@pytest.mark.long
def test_after_a_reset_the_state_is_that_of_the_whole_input(
    rack_cluster: Cluster,
    make_topic: MakeTopic,
    unique_name: Callable[[], str],
    tmp_path: Path,
    admin: KafkaAdminClient,
) -> None:
    topic, group, server = make_topic(replicas=SPREAD), unique_name(), rack_cluster.bootstrap
    log = f"{group}-{topic}-changelog"
    write(server, topic, *[b"x"] * 10)
    with begun(topic, group, tmp_path, bootstrap_servers=server) as member:
        wait_counted(member, topic, 10)
        wait_committed(admin, group, {0: 10, 1: 10}, member=member)
        admin.alter_group_offsets(f"{group}-o", {TopicPartition(topic, 0): OffsetAndMetadata(1, "", -1)})
        words = ("--group", f"{group}-o", "--changelog", log, "--execute")
        refused = rackassign("state reset", server, *words, code=2)
        assert f'that of group "{group}", whose members read ' in refused.stderr
        refused = rackassign("state reset", server, "--group", group, "--execute", code=2)
        assert f'group "{group}" has 1 member: ' in refused.stderr
        assert "stop all members first" in refused.stderr
    before = sorted(file.name for file in tmp_path.glob("*.sqlite"))
    # If it were kept, the state would have a value that no input record gives it.
    write(server, log, b"1000", key=DEFAULT + b"n")
    planned = json.loads(rackassign("state reset", server, "--group", group, "--output", "json").stdout)
    (row,) = planned["changelogs"]
    assert (row["topic"], row["partitions"], planned["executed"]) == (log, 2, False)
    # Of each partition the count, the progress, the end of the transaction, and the record above.
    assert row["records_at_most"] >= 8
    assert planned["committed_offsets"] == {topic: [0, 1]}
    assert describe_topics(admin, [log])[log].partitions
    wait_committed(admin, group, {0: 10, 1: 10})
    done = rackassign("state reset", server, "--group", group, "--execute")
    assert "deleted 1 changelog and 2 committed offsets" in done.stdout
    assert done.stderr == ""
    assert describe_topics(admin, [log])[log].unknown
    wait_committed(admin, group, {})
    write(server, topic, b"x")
    with begun(topic, group, tmp_path, bootstrap_servers=server) as member:
        wait_counted(member, topic, 11)
    after = sorted(file.name for file in tmp_path.glob("*.sqlite"))
    assert len(before) == len(after) == 2
    assert not set(before) & set(after)


def test_a_reset_that_stopped_behind_the_changelogs_is_completed(
    rack_cluster: Cluster,
    make_topic: MakeTopic,
    unique_name: Callable[[], str],
    tmp_path: Path,
    admin: KafkaAdminClient,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic, group, server = make_topic(replicas=SPREAD), unique_name(), rack_cluster.bootstrap
    words = ["state", "reset", "--bootstrap-server", server, "--group", group, "--execute"]
    write(server, topic, b"x")
    with begun(topic, group, tmp_path, bootstrap_servers=server) as member:
        wait_counted(member, topic, 1)
        wait_committed(admin, group, {0: 1, 1: 1}, member=member)

    def lost(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(GroupAdmin, "delete_offsets", lost)
        assert run(words) == 130
    wait_committed(admin, group, {0: 1, 1: 1})
    assert describe_topics(admin, [f"{group}-{topic}-changelog"])[f"{group}-{topic}-changelog"].unknown
    capsys.readouterr()
    assert run(words) == 0
    assert "deleted 0 changelogs and 2 committed offsets" in capsys.readouterr().out
    wait_committed(admin, group, {})
    assert run(words) == 2
    assert f'"{group}"' in capsys.readouterr().err


@pytest.mark.long
def test_offsets_and_topics_of_others_are_never_deleted(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str], admin: KafkaAdminClient
) -> None:
    topic, group, server = make_topic(replicas=SPREAD), unique_name(), rack_cluster.bootstrap
    offsets = {TopicPartition(topic, 0): OffsetAndMetadata(3, "", -1)}

    def committed() -> bool:
        # The first group of a cluster has no coordinator until the topic of offsets was created and loaded.
        try:
            return set(admin.alter_group_offsets(group, offsets).values()) == {NoError}
        except CoordinatorNotAvailableError:
            return False

    wait_until(committed, "a coordinator")
    log = f"{group}-{topic}-changelog"

    def refused(*words: str) -> str:
        found = rackassign("state reset", server, "--group", group, "--execute", *words, code=2).stderr
        assert found.count("\n") == 1
        wait_committed(admin, group, {0: 3})
        return found

    assert f'group "{group}" has no changelog: ' in refused()
    assert f'there is no consumer group "{group}x" on this cluster; did you mean "{group}"?' in (
        rackassign("state reset", server, "--group", f"{group}x", code=2).stderr
    )
    create_topic(server, log, SPREAD)
    assert "is not a changelog of rackassign, so nothing is deleted: it has cleanup.policy=delete" in refused()
    assert f'did you mean "{log}"?' in (
        rackassign("state reset", server, "--group", group, "--changelog", f"{log}s", code=2).stderr
    )
    compacted = unique_name()
    create_topic(server, compacted, SPREAD, config=COMPACT)
    ours: dict[str, Any] = {"key": DEFAULT + b"n"}
    write(server, compacted, *[b"1"] * 2000, **ours)
    planned = rackassign("state reset", server, "--group", group, "--changelog", compacted, "--output", "json")
    assert json.loads(planned.stdout)["changelogs"] == [{"topic": compacted, "partitions": 2, "records_at_most": 4000}]
    # Among the last records, and with a key that no state has.
    write(server, compacted, b"1", key=b"n")
    write(server, compacted, *[b"1"] * 50, **ours)
    assert "the record at offset 2000 of partition" in refused("--changelog", compacted)
    found = describe_topics(admin, [log, compacted])
    assert all(len(found[name].partitions) == 2 for name in (log, compacted))


TOPIC, GROUP, USER = "lines", "count", "operator"
LOG = f"{GROUP}-{TOPIC}-changelog"
NEEDS = (
    ("READ", "TOPIC", TOPIC),
    ("DELETE", "TOPIC", LOG),
    ("READ", "TOPIC", LOG),
    ("DESCRIBE_CONFIGS", "TOPIC", LOG),
    ("DELETE", "GROUP", GROUP),
    ("READ", "GROUP", GROUP),
)


def users() -> dict[str, tuple[tuple[str, str, str], ...]]:
    """Return users by name: each lacks one permission, of which it has DESCRIBE, and the last one lacks none."""
    found: dict[str, tuple[tuple[str, str, str], ...]] = {}
    for missing in NEEDS:
        rest = tuple(need for need in NEEDS if need != missing)
        less = () if missing[0] == "DESCRIBE_CONFIGS" else (("DESCRIBE", *missing[1:]),)
        found["-".join((USER, *missing[:2], str(missing[2] == LOG)))] = (*rest, *less)
    return {**found, USER: NEEDS}


@pytest.fixture
def secured() -> Iterator[Cluster]:
    with LocalCluster(["a", "b"], listeners={"SECURE": "SASL_SSL"}, config=CONFIG) as made:
        create_topic(made.bootstrap, TOPIC, [[1, 2], [2, 1]])
        needs = ((name, need) for name, permissions in users().items() for need in dict.fromkeys(permissions))
        make_users(made, users(), [acl(name, need) for name, need in needs])
        yield made


@pytest.mark.long
def test_without_one_of_its_permissions_nothing_is_changed_and_the_permission_is_named(
    secured: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = secured.client_config("SECURE")

    def command(what: str, user: str, *words: str) -> tuple[int, str, str]:
        file = tmp_path / "client.properties"
        file.write_text(
            "security.protocol=SASL_SSL\n"
            f"sasl.mechanism={MECHANISM}\n"
            f"sasl.username={user}\n"
            f"sasl.password={PASSWORD}\n"
            f"ssl.ca.location={config['ssl_cafile']}\n"
        )
        server = ["--bootstrap-server", config["bootstrap_servers"], "--command-config", str(file)]
        capsys.readouterr()
        code = run(["state", what, *server, "--group", GROUP, *words])
        return code, *capsys.readouterr()

    write(secured.bootstrap, TOPIC, b"x")
    with closing(KafkaAdminClient(bootstrap_servers=secured.bootstrap)) as admin:
        with begun(TOPIC, GROUP, tmp_path / "state", bootstrap_servers=secured.bootstrap) as member:
            wait_counted(member, TOPIC, 1)
            wait_committed(admin, GROUP, {0: 1, 1: 1})
            code, out, err = command("describe", USER)
            assert code == 0
            assert err == (
                "rackassign: sizes of changelogs are unknown: not allowed: DESCRIBE on the cluster (brokers 1, 2)\n"
            )
            cells = [line.split("│")[4].strip() for line in out.splitlines() if line.startswith("│")]
            assert [cell for cell in cells if cell] == ["?", "?"]
        for (operation, kind, name), user in zip(NEEDS, users(), strict=False):
            code, out, err = command("reset", user, "--execute")
            assert (code, out) == (3, "")
            assert err == f"rackassign: not allowed: {operation} on {kind.lower()} {name}\n"
            assert len(describe_topics(admin, [LOG])[LOG].partitions) == 2
            assert {each.metadata for each in GroupAdmin(admin).commits(GROUP).values()} == {""}
            wait_committed(admin, GROUP, {0: 1, 1: 1})
        code, out, err = command("reset", USER, "--execute")
        assert (code, err) == (0, "")
        assert describe_topics(admin, [LOG])[LOG].unknown
        wait_committed(admin, GROUP, {})
