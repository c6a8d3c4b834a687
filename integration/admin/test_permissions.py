"""On a secured cluster with ACLs each command works with what it needs, and says in one line what is missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from kafka import KafkaAdminClient

from rackassign import RackAwareConsumer
from rackassign.admin.alter import ReassignmentAdmin
from rackassign.admin.describe import cluster_id, describe_topics
from rackassign.cli.app import run
from rackassign.model import TopicPartition
from rackassign.placement.cluster_state import RATES, THROTTLED
from rackassign.placement.state_file import read
from rackassign.reassignment import Journal, ReplicaMove, journal
from rackassign.testing import Cluster, LocalCluster, create_topic
from rackassign.testing._security import MECHANISM, PASSWORD
from rackassign.testing.harness import wait_until
from tests.helpers.kafka.consumers import CONSUMER, consumers, polled, settled
from tests.helpers.kafka.permissions import CONFIG, Permission, access, acl, make_users

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.long]

TOPIC, GROUP, SERVED = "orders", "billing", "served"

CLUSTER = ("CLUSTER", "kafka-cluster")
DESCRIBE_CLUSTER, BROKER_CONFIGS = ("DESCRIBE", *CLUSTER), ("DESCRIBE_CONFIGS", *CLUSTER)
DESCRIBE, CONFIGS, ALTER = ((operation, "TOPIC", TOPIC) for operation in ("DESCRIBE", "DESCRIBE_CONFIGS", "ALTER"))
DESCRIBE_GROUP = ("DESCRIBE", "GROUP", GROUP)

AUDIT = (DESCRIBE, CONFIGS, DESCRIBE_CLUSTER, BROKER_CONFIGS)
ADD = (ALTER, CONFIGS, DESCRIBE_CLUSTER)
READING = (DESCRIBE_GROUP, DESCRIBE, BROKER_CONFIGS)
MEASURING = (*READING, DESCRIBE_CLUSTER)


def creating(topic: str) -> tuple[Permission, ...]:
    return (("CREATE", "TOPIC", topic), ("DESCRIBE_CONFIGS", "TOPIC", topic))


def but(permissions: Sequence[Permission], missing: Permission) -> tuple[Permission, ...]:
    assert missing in permissions
    return tuple(permission for permission in permissions if permission != missing)


@dataclass(frozen=True)
class Case:
    """A command, what its user may do, and how it ends."""

    words: tuple[str, ...]
    permissions: tuple[Permission, ...]
    code: int = 0
    # The lines by which it tells of problems; empty for none.
    said: str = ""


def refused(words: tuple[str, ...], permissions: tuple[Permission, ...], what: str) -> Case:
    return Case(words, permissions, 3, f"rackassign: not allowed: {re.escape(what)}")


AUDIT_ONE, AUDIT_ALL = ("audit", "--topic", TOPIC), ("audit",)
ADD_ONE = ("create-topic", TOPIC, "--replication-factor", "2", "--add-partitions", "1")
INSPECT = ("inspect", "--group", GROUP, "--interval", "1")
SNAPSHOT, SNAPSHOT_ALL = ("snapshot", "--group", GROUP), ("snapshot", "--all-groups")
DOCTOR = ("doctor", "--group", GROUP)
DOCTOR_SERVED = ("doctor", "--group", SERVED)
TOP = ("top", "--group", GROUP, "--iterations", "1", "--interval", "1")
BILL = ("bill", "--interval", "1")
EXPORTER = ("exporter", "--group", GROUP, "--listen", "127.0.0.1:0")

NO_SELECTOR = r"rackassign: 3 of 3 brokers do not report .* \(not allowed: DESCRIBE_CONFIGS on the cluster\): .*"
NO_SIZES = "\n".join(
    f"rackassign: broker {broker} does not report the sizes of its logs: not allowed: DESCRIBE on the cluster"
    for broker in (1, 2)
)
SOME_GROUPS = "rackassign: groups that may not be described are not listed: not allowed: DESCRIBE on the cluster"
NO_TOPIC = rf"rackassign: (billing: )?topic {TOPIC} is not described: not allowed: DESCRIBE on topic {TOPIC}"

CASES = {
    "audit": Case(AUDIT_ONE, AUDIT),
    "audit-without-describe": refused(AUDIT_ONE, but(AUDIT, DESCRIBE), f"DESCRIBE on topic {TOPIC}"),
    "audit-without-configs": refused(AUDIT_ONE, but(AUDIT, CONFIGS), f"DESCRIBE_CONFIGS on topic {TOPIC}"),
    "audit-without-cluster": refused(AUDIT_ONE, but(AUDIT, DESCRIBE_CLUSTER), "DESCRIBE on the cluster"),
    "audit-without-rates": refused(AUDIT_ONE, but(AUDIT, BROKER_CONFIGS), "DESCRIBE_CONFIGS on the cluster"),
    "audit-all": Case(AUDIT_ALL, AUDIT),
    "audit-all-without-describe": Case(AUDIT_ALL, but(AUDIT, DESCRIBE)),
    "audit-all-without-configs": refused(AUDIT_ALL, but(AUDIT, CONFIGS), f"DESCRIBE_CONFIGS on topic {TOPIC}"),
    "create": Case(("create-topic", "made-1", "--replication-factor", "2"), creating("made-1")),
    "create-min-isr-given": Case(
        ("create-topic", "made-2", "--replication-factor", "2", "--config", "min.insync.replicas=1"),
        creating("made-2")[:1],
    ),
    "create-by-cluster": Case(
        ("create-topic", "made-3", "--replication-factor", "2"),
        (("CREATE", *CLUSTER), ("DESCRIBE_CONFIGS", "TOPIC", "made-3")),
    ),
    "create-without-create": refused(
        ("create-topic", "new-1", "--replication-factor", "2"),
        creating("new-1")[1:],
        "CREATE on topic new-1, or on the cluster",
    ),
    "create-without-configs": refused(
        ("create-topic", "new-2", "--replication-factor", "2"), creating("new-2")[:1], "DESCRIBE_CONFIGS on topic new-2"
    ),
    "add": Case(ADD_ONE, ADD),
    "add-without-describe": refused(ADD_ONE, but(ADD, ALTER), f"DESCRIBE on topic {TOPIC}"),
    "add-without-alter": refused(ADD_ONE, (*but(ADD, ALTER), DESCRIBE), f"ALTER on topic {TOPIC}"),
    "add-without-configs": refused(ADD_ONE, but(ADD, CONFIGS), f"DESCRIBE_CONFIGS on topic {TOPIC}"),
    "add-without-cluster": refused(ADD_ONE, but(ADD, DESCRIBE_CLUSTER), "DESCRIBE on the cluster"),
    "snapshot": Case(SNAPSHOT, but(READING, BROKER_CONFIGS)),
    "snapshot-without-group": refused(SNAPSHOT, but(READING, DESCRIBE_GROUP), f"DESCRIBE on group {GROUP}"),
    "snapshot-without-topic": Case(SNAPSHOT, (DESCRIBE_GROUP,), said=NO_TOPIC),
    "snapshot-all": Case(SNAPSHOT_ALL, (DESCRIBE_CLUSTER, DESCRIBE_GROUP, DESCRIBE)),
    "snapshot-all-without-cluster": Case(SNAPSHOT_ALL, (DESCRIBE_GROUP, DESCRIBE), said=SOME_GROUPS),
    "snapshot-all-without-group": Case(
        SNAPSHOT_ALL,
        (DESCRIBE_CLUSTER, DESCRIBE),
        said=f"rackassign: {GROUP}: not allowed: DESCRIBE on group {GROUP}",
    ),
    "inspect": Case(INSPECT, MEASURING),
    "inspect-without-group": refused(INSPECT, but(MEASURING, DESCRIBE_GROUP), f"DESCRIBE on group {GROUP}"),
    "inspect-without-topic": Case(INSPECT, but(MEASURING, DESCRIBE), said=NO_TOPIC),
    "inspect-without-selectors": Case(INSPECT, but(MEASURING, BROKER_CONFIGS), said=NO_SELECTOR),
    "inspect-all-without-cluster": Case(
        ("inspect", "--all-groups", "--interval", "0"), but(MEASURING, DESCRIBE_CLUSTER), said=SOME_GROUPS
    ),
    "inspect-without-sizes": Case(INSPECT, but(MEASURING, DESCRIBE_CLUSTER), said=NO_SIZES),
    "bill": Case(BILL, MEASURING),
    "bill-without-sizes": Case(BILL, but(MEASURING, DESCRIBE_CLUSTER), said=f"{SOME_GROUPS}\n{NO_SIZES}"),
    "doctor": Case(DOCTOR, (DESCRIBE_GROUP, BROKER_CONFIGS)),
    "doctor-without-group": refused(DOCTOR, (BROKER_CONFIGS,), f"DESCRIBE on group {GROUP}"),
    "doctor-without-selectors": Case(DOCTOR, (DESCRIBE_GROUP,), 1),
    "doctor-served": Case(DOCTOR_SERVED, (("DESCRIBE", "GROUP", SERVED), DESCRIBE, BROKER_CONFIGS), 1),
    "doctor-served-without-topic": refused(
        DOCTOR_SERVED,
        (("DESCRIBE", "GROUP", SERVED), BROKER_CONFIGS),
        f"DESCRIBE on all topics of group {SERVED}",
    ),
    "top": Case(TOP, MEASURING),
    "top-without-group": refused(TOP, but(MEASURING, DESCRIBE_GROUP), f"DESCRIBE on group {GROUP}"),
    "exporter-without-group": Case(
        EXPORTER,
        but(MEASURING, DESCRIBE_GROUP),
        3,
        f"rackassign: not allowed: DESCRIBE on group {GROUP}",
    ),
}


LISTS, OTHERS = ((1, 2), (1, 2)), ((3, 1), (3, 1))
"""Of a topic that a repair is played on; as it is, and as it is to be."""

CHANGING = (("DESCRIBE", "TOPIC"), ("ALTER", "CLUSTER"))
SLOWING = (*CHANGING, ("ALTER_CONFIGS", "TOPIC"), ("ALTER_CONFIGS", "CLUSTER"))
LOOKING = (("DESCRIBE", "TOPIC"), ("DESCRIBE_CONFIGS", "TOPIC"))
REPAIRS = {
    "reassign plan": (*LOOKING, ("DESCRIBE", "CLUSTER")),
    "reassign apply": CHANGING,
    "reassign apply --throttle 50M": SLOWING,
    "reassign rollback": CHANGING,
    "reassign rollback --throttle 50M": SLOWING,
    "balance-leaders --dry-run": (*LOOKING, ("DESCRIBE", "CLUSTER")),
    "balance-leaders": (*LOOKING, ("ALTER", "CLUSTER")),
}
"""What commands need, on a topic and on the cluster."""

COMES_WITH = {"ALTER": "DESCRIBE", "ALTER_CONFIGS": "DESCRIBE_CONFIGS"}


def repair_cases() -> Iterator[tuple[str, Case]]:
    """Yield each command with all it needs, and with one permission less; each has a topic of the name of its case."""
    for command, needs in REPAIRS.items():
        name, words = command.replace(" --", "-").replace(" ", "-"), command.split()
        yield name, repair_case(name, words, needs)
        for operation, kind in needs:
            rest, less = [need for need in needs if need != (operation, kind)], COMES_WITH.get(operation)
            short = f"{name}-{operation}-{kind}"
            if less:
                yield f"{short}-alone", repair_case(f"{short}-alone", words, (*rest, (less, kind)), (operation, kind))
            yield short, repair_case(short, words, rest, (less or operation, kind))


def repair_case(
    name: str, words: list[str], permissions: Sequence[tuple[str, str]], missing: tuple[str, str] | None = None
) -> Case:
    chosen = () if words[1:2] in (["apply"], ["rollback"]) else ("--topic", name)
    granted = tuple((what, *CLUSTER) if kind == "CLUSTER" else (what, kind, name) for what, kind in permissions)
    if missing is None:
        return Case((*words, *chosen), granted)
    what, kind = missing
    return refused((*words, *chosen), granted, f"{what} on {'the cluster' if kind == 'CLUSTER' else f'topic {name}'}")


HALF = "half-a-repair"
"""Of a topic that may be repaired and, after it, of one that may not be seen."""

OF_REPAIRS = {
    HALF: refused(
        ("reassign", "apply", "--batch-size", "1"),
        (("DESCRIBE", "TOPIC", HALF), ("ALTER", *CLUSTER)),
        f"DESCRIBE on topic {TOPIC}",
    ),
    **dict(repair_cases()),
}
CASES |= OF_REPAIRS
FOR_GROUP = ("reassign", "plan", "--near-group", GROUP)
CASES |= {
    "plan-for-group": Case(FOR_GROUP, (*AUDIT, DESCRIBE_GROUP)),
    "plan-for-group-without-group": refused(FOR_GROUP, AUDIT, f"DESCRIBE on group {GROUP}"),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster on which a user each has the permissions of a case, and that all of it knows."""
    with LocalCluster(["a", "b", "c"], listeners={"SECURE": "SASL_SSL"}, config=CONFIG) as made:
        create_topic(made.bootstrap, TOPIC, [[1, 2], [2, 3]])
        for name in OF_REPAIRS:
            create_topic(made.bootstrap, name, LISTS)
        acls = [acl(name, permission) for name, case in CASES.items() for permission in case.permissions]
        make_users(made, CASES, acls)
        yield made


@pytest.fixture(scope="module")
def group(cluster: Cluster) -> Iterator[str]:
    """A group of two members at rest."""

    def member(rack: str) -> RackAwareConsumer:
        return RackAwareConsumer(
            TOPIC, bootstrap_servers=cluster.bootstrap, group_id=GROUP, client_rack=rack, **CONSUMER
        )

    with ExitStack() as opened:
        members = opened.enter_context(consumers(partial(member, "a"), partial(member, "b")))
        wait_until(settled(members, TOPIC, 2), "the group is at rest")
        opened.enter_context(polled(members))
        yield GROUP


Ended = Callable[[str], str]


@pytest.fixture
def command(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ended:
    """Run the command of a case as its user, check how it ends, and return what it prints."""

    def call(name: str) -> str:
        case, config = CASES[name], access(cluster, name)
        file = tmp_path / "client.properties"
        file.write_text(
            "security.protocol=SASL_SSL\n"
            f"sasl.mechanism={MECHANISM}\n"
            f"sasl.username={name}\n"
            f"sasl.password={PASSWORD}\n"
            f"ssl.ca.location={config['ssl_cafile']}\n"
        )
        words = [*case.words, "--bootstrap-server", config["bootstrap_servers"], "--command-config", str(file)]
        if case.words[0] in {"audit", "create-topic", "reassign"}:
            words += ["--state-file", str(tmp_path / "state.json")]
        if case.words[0] in {"reassign", "balance-leaders"}:
            words += ["--plan-file", str(tmp_path / "plan.json")]
        capsys.readouterr()
        code = run(words)
        said = capsys.readouterr()
        assert code == case.code, said.err
        # Beside what is being done.
        problems = [line for line in said.err.splitlines() if line.startswith("rackassign: ")]
        assert re.fullmatch(case.said, "\n".join(problems), re.IGNORECASE), said.err
        return said.out

    return call


def whole(cluster: Cluster, topic: str) -> int:
    """Return the number of partitions of a topic; 0 if there is none."""
    with closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap)) as admin:
        return len(describe_topics(admin, [topic])[topic].partitions)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("audit")])
def test_audit(command: Ended, name: str, tmp_path: Path) -> None:
    printed = command(name)
    if CASES[name].code:
        assert not printed
    elif name == "audit-all-without-describe":
        assert "0 topics, 0 partitions: nothing is wrong; there is no topic, or none that may be described" in printed
    else:
        assert "1 topic, 2 partitions: nothing is wrong" in printed
    assert not (tmp_path / "state.json").exists()


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("create")])
def test_create(command: Ended, cluster: Cluster, name: str, tmp_path: Path) -> None:
    command(name)
    state, topic = tmp_path / "state.json", CASES[name].words[1]
    if CASES[name].code:
        assert not state.exists()
        assert whole(cluster, topic) == 0
    else:
        assert read(state).brokers == {1: "a", 2: "b", 3: "c"}
        wait_until(lambda: whole(cluster, topic) == 1, "the new topic")


@pytest.fixture(scope="module")
def served(cluster: Cluster) -> Iterator[str]:
    """A group to which the broker assigns."""
    config = {"bootstrap.servers": cluster.bootstrap, "group.id": SERVED, "group.protocol": "consumer"}
    with ExitStack() as opened:
        member = Consumer(config)
        opened.callback(member.close)
        member.subscribe([TOPIC])
        wait_until(lambda: member.poll(0.1) is None and bool(member.assignment()), "a member with something to read")
        yield SERVED


OF_GROUPS = [name for name in CASES if name not in OF_REPAIRS and not name.startswith(("audit", "create", "add"))]


@pytest.mark.parametrize("name", [name for name in OF_GROUPS if SERVED not in CASES[name].words])
def test_what_looks_at_groups(command: Ended, group: str, name: str) -> None:
    printed = command(name)
    assert bool(printed) == (CASES[name].code != 3 and name != "snapshot-all-without-group")
    # A bill has only what crosses racks, and nothing is written here.
    assert not printed or group in printed or name.startswith("bill")


@pytest.mark.parametrize("name", [name for name in OF_GROUPS if SERVED in CASES[name].words])
def test_groups_that_the_broker_assigns(command: Ended, served: str, name: str) -> None:
    printed = command(name)
    assert bool(printed) == (CASES[name].code != 3)
    assert not printed or served in printed


@dataclass(frozen=True)
class Traces:
    """What a repair could leave on a cluster, of one topic."""

    lists: tuple[tuple[int, ...], ...]
    moving: bool
    throttles: dict[str, str]


def traces(admin: KafkaAdminClient, topic: str) -> Traces:
    hands = ReassignmentAdmin(admin)
    return Traces(
        tuple(partition.replicas for partition in describe_topics(admin, [topic])[topic].partitions),
        bool(hands.list_reassignments()),
        {**hands.cluster_configs(RATES), **hands.topic_configs([topic], THROTTLED)[topic]},
    )


@pytest.mark.parametrize("name", OF_REPAIRS)
def test_repair(command: Ended, cluster: Cluster, name: str, tmp_path: Path) -> None:
    file, case = tmp_path / "plan.json", CASES[name]
    untouched = Traces(LISTS, moving=False, throttles={})
    with closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap)) as admin:
        given = None
        if case.words[1] in {"apply", "rollback"}:
            apply = case.words[1] == "apply"
            lists = zip(LISTS, OTHERS, strict=True)
            moves = {
                TopicPartition(name, i): ReplicaMove(*(row if apply else row[::-1])) for i, row in enumerate(lists)
            }
            if name == HALF:
                moves[TopicPartition(TOPIC, 0)] = ReplicaMove((1, 2), (1, 3))
            given = Journal(cluster_id(admin), moves=moves, phase="planned" if apply else "applied")
            journal.write(file, given)
        command(name)
        if case.code:
            # A broker may not have heard yet that throttles were removed.
            wait_until(lambda: traces(admin, name) == untouched, "the cluster as it was")
            assert not (file.exists() and journal.read(file).open)
            assert given is None or journal.read(file) == given
            assert not (tmp_path / "state.json").exists()
        elif given is not None:
            assert journal.read(file).phase == ("applied" if given.phase == "planned" else "rolled-back")
            wait_until(lambda: traces(admin, name) == Traces(OTHERS, moving=False, throttles={}), "the other lists")
        elif case.words[0] == "balance-leaders" and "--dry-run" not in case.words:
            wait_until(lambda: {row[0] for row in traces(admin, name).lists} == {1, 2}, "two that lead")
        else:
            # What the case before has done may be news to a broker.
            wait_until(lambda: traces(admin, name) == untouched, "the cluster as it was")


@pytest.mark.parametrize("name", [*(name for name in CASES if name.startswith("add-")), "add"])
def test_add(command: Ended, cluster: Cluster, name: str, tmp_path: Path) -> None:
    """The last to be played, and the one that is allowed the last of all: it changes what the others look at."""
    before = whole(cluster, TOPIC)
    command(name)
    assert (tmp_path / "state.json").exists() == (not CASES[name].code)
    wait_until(lambda: whole(cluster, TOPIC) == before + (not CASES[name].code), "so many partitions")
