"""What the doctor says of real groups on real brokers, and that it frees a wedged one."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest
from confluent_kafka import Consumer, ShareConsumer
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.admin import MemberToRemove
from kafka.errors import UnknownError

from rackassign import RackAwareConsumer, RackAwareCooperativeStickyAssignor, RackAwareRangeAssignor
from rackassign.admin.groups import GroupAdmin
from rackassign.cli.app import run
from rackassign.testing import Cluster, create_topic
from rackassign.testing.harness import ConfluentMember, settle, wait_until
from rackassign.testing.pytest_plugin import MakeCluster, MakeTopic
from rackassign.wire import Subscription, encode_subscription
from tests.helpers.json_schemas import parsed
from tests.helpers.kafka.consumers import CONSUMER, plain_consumer
from tests.helpers.kafka.rack_group import at_rest
from tests.helpers.kafka.scenarios import MalformedMetadataAssignor
from tests.helpers.kafka.threaded_consumer import ThreadedConsumer
from tests.helpers.machine_speed import scaled_ms

pytestmark = [pytest.mark.brokers, pytest.mark.local]

Name = Callable[[], str]

TWO_EACH = [[1], [2], [3], [1], [2], [3]]

NO_TOPICS = struct.pack(">hii", 1, -1, -1)
TOO_MANY_TOPICS = struct.pack(">hi", 1, 1000)
WEDGED = pytest.mark.kafka_version("4.3.0")
"""Brokers of Kafka 4.4 no longer fail on such members: they pass their metadata on to the group leader."""
CUT_SHORT = encode_subscription(Subscription(("t",), rack="a"))[:-1]


class Doctor(Protocol):
    """Runs the command, and returns its exit code and what it said."""

    def __call__(self, group: str, *words: str) -> tuple[int, dict[str, Any]]: ...


@pytest.fixture
def doctor(rack_cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Doctor:
    def call(group: str, *words: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = run(
            ["doctor", "--bootstrap-server", rack_cluster.bootstrap, "--group", group, "--output", "json", *words]
        )
        said = capsys.readouterr()
        assert said.out, said.err
        return code, parsed("doctor", said.out)

    return call


@pytest.fixture
def admin(rack_cluster: Cluster) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=rack_cluster.bootstrap)) as client:
        yield client


def found(said: dict[str, Any], kind: str) -> dict[str, Any] | None:
    return next((finding for finding in said["findings"] if finding["kind"] == kind), None)


def kinds(said: dict[str, Any]) -> list[str]:
    return [finding["kind"] for finding in said["findings"]]


def doctor_until(doctor: Doctor, group: str, wanted: Callable[[dict[str, Any]], bool]) -> tuple[int, dict[str, Any]]:
    """Run the command until a report is as wanted, and return that one: the next may be of a group that rebalances."""
    last: list[tuple[int, dict[str, Any]]] = []

    def look() -> bool:
        last[:] = [doctor(group, "--observe-seconds", "1")]
        return wanted(last[0][1])

    try:
        wait_until(look, "a report as wanted")
    except TimeoutError as error:
        raise TimeoutError(f"{error}; the last one is {last}") from None
    return last[0]


def clients(finding: dict[str, Any] | None) -> set[str]:
    assert finding is not None
    return {member["client_id"] for member in finding["members"]}


class Patient:
    """Goes on when the broker fails, as services do that poll in a loop."""

    def poll(self, *words: Any, **more: Any) -> Any:
        try:
            return super().poll(*words, **more)  # type: ignore[misc] # of the consumer
        except UnknownError:
            time.sleep(0.05)
            return {}

    def close(self, **_: Any) -> None:
        # A wedged broker answers nobody who leaves.
        super().close(timeout_ms=scaled_ms(3000))  # type: ignore[misc] # of the consumer


class PatientOurs(Patient, RackAwareConsumer):
    pass


class PatientHost(Patient, KafkaConsumer):  # type: ignore[misc] # kafka-python is untyped
    pass


class Members:
    """Makes members of one group."""

    def __init__(self, cluster: Cluster, group: str, topic: str) -> None:
        self.cluster = cluster
        self.group = group
        self.topic = topic

    def ours(self, name: str, rack: str | None = "a", strategy: Any = RackAwareRangeAssignor) -> ThreadedConsumer:
        more = {"partition_assignment_strategy": strategy if isinstance(strategy, list) else [strategy]}
        return self._service(PatientOurs, name, client_rack=rack, **more)

    def malformed(self, name: str, data: bytes) -> ThreadedConsumer:
        return self._service(
            partial(plain_consumer, client=PatientHost),
            name,
            partition_assignment_strategy=[MalformedMetadataAssignor(data)],
        )

    def _service(self, client: Callable[..., KafkaConsumer], name: str, **more: Any) -> ThreadedConsumer:
        # So long that a member that is paused while the doctor looks is not put out.
        where = {"bootstrap_servers": self.cluster.bootstrap, "group_id": self.group, "client_id": name}
        config = {**CONSUMER, "max_poll_interval_ms": 600_000}
        return ThreadedConsumer(lambda: client(self.topic, **where, **config, **more))

    def librdkafka(self, name: str, **config: str) -> ConfluentMember:
        def make() -> Consumer:
            where = {"bootstrap.servers": self.cluster.bootstrap, "group.id": self.group, "client.id": name}
            consumer = Consumer({**where, **{key.replace("_", "."): value for key, value in config.items()}})
            consumer.subscribe([self.topic])
            return consumer

        return ConfluentMember(make, poll_ms=50)


@pytest.fixture
def members(rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name) -> Members:
    return Members(rack_cluster, unique_name(), make_topic(replicas=TWO_EACH))


def test_a_healthy_group_is_two_lines(
    members: Members, rack_cluster: Cluster, admin: KafkaAdminClient, capsys: pytest.CaptureFixture[str]
) -> None:
    with ExitStack() as opened:
        group = [opened.enter_context(members.ours(f"in-{rack}", rack)) for rack in "abc"]
        settle(admin, members.group, group, {members.topic: 6})
        # A group that rebalances is watched for longer, which is reported.
        at_rest(admin, members.group, group)
        code = run(["doctor", "--bootstrap-server", rack_cluster.bootstrap, "--group", members.group, "--fix"])
        # The last of its joins may have been for a refresh of the metadata.
        settle(admin, members.group, group, {members.topic: 6})
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    healthy, reads = out.splitlines()
    assert healthy.startswith(f"{members.group}: healthy: 3 members, racks a, b, c; range is chosen")
    assert reads == "100.0 % of its partitions are read in the rack of their reader"


def test_the_steps_to_cooperative_are_told(members: Members, admin: KafkaAdminClient, doctor: Doctor) -> None:
    both = [RackAwareCooperativeStickyAssignor, RackAwareRangeAssignor]
    with members.ours("both", "a", both) as first:
        with members.ours("old", "b") as old:
            settle(admin, members.group, [first, old], {members.topic: 6})
            _, said = doctor(members.group)
            assert said["strategy"] == "range"
            assert "not every member offers cooperative-sticky" in said["migration"]["now"]
        with members.ours("new", "b", RackAwareCooperativeStickyAssignor) as new:
            settle(admin, members.group, [first, new], {members.topic: 6})
            with members.ours("newer", "c", RackAwareCooperativeStickyAssignor) as newer:
                # What the second joined again with, it had been given.
                settle(admin, members.group, [first, new, newer], {members.topic: 6})
                code, said = doctor(members.group)
    assert (code, said["strategy"]) == (0, "cooperative-sticky")
    # A member that is new looks like one that offers an eager strategy too, so no step is recommended.
    assert (said["migration"]["now"], said["migration"]["next"]) == ("all members offer cooperative-sticky", None)
    unseen = said["migration"]["unseen"].rpartition(": ")[2].split(", ")
    assert "both" in unseen
    assert "new" not in unseen


def test_a_member_of_kip_848_is_named(members: Members, admin: KafkaAdminClient, doctor: Doctor) -> None:
    with members.ours("classic") as classic:
        settle(admin, members.group, [classic], {members.topic: 6})
        with members.librdkafka("next", group_protocol="consumer", client_rack="b"):
            code, said = doctor_until(
                doctor, members.group, lambda seen: (len(seen["members"]), seen["state"]) == (2, "Stable")
            )
            assert (code, said["type"], kinds(said)) == (1, "consumer", ["server-assigned"])
            assert clients(found(said, "server-assigned")) == {"next"}
            assert {(m["client_id"], m["rack"]) for m in said["members"]} == {("classic", "a"), ("next", "b")}
        settle(admin, members.group, [classic], {members.topic: 6})
        at_rest(admin, members.group, [classic])
        assert doctor(members.group)[0] == 0


@pytest.mark.long
@WEDGED
@pytest.mark.parametrize("data", [NO_TOPICS, TOO_MANY_TOPICS], ids=["null", "too many"])
def test_a_wedged_group_is_found_and_freed(
    members: Members, admin: KafkaAdminClient, doctor: Doctor, data: bytes
) -> None:
    with members.ours("one") as one, members.ours("two", "b") as two:
        settle(admin, members.group, [one, two], {members.topic: 6})
        with members.malformed("bad", data):
            wait_until(
                lambda: found(doctor(members.group, "--observe-seconds", "1")[1], "wedged") is not None,
                "the wedge found",
            )
        # It has gone, and stays in the group all the same.
        code, said = doctor(members.group, "--observe-seconds", "1")
        assert (code, kinds(said)) == (1, ["wedged"])
        assert clients(found(said, "wedged")) == {"one", "two", "bad"}

        code, said = doctor(members.group, "--observe-seconds", "1", "--fix")
        assert said["culprit"]["client_id"] == "bad"
        assert found(said, "wedged") is None
        settle(admin, members.group, [one, two], {members.topic: 6})
        assert doctor(members.group, "--fix") == (0, doctor(members.group)[1])


@pytest.mark.kafka_version("4.4")
@pytest.mark.parametrize("data", [NO_TOPICS, TOO_MANY_TOPICS], ids=["null", "too many"])
def test_brokers_from_4_4_leave_such_a_member_to_the_leader_and_it_is_named(
    members: Members, admin: KafkaAdminClient, doctor: Doctor, data: bytes
) -> None:
    with members.ours("one") as one, members.ours("two", "b") as two:
        settle(admin, members.group, [one, two], {members.topic: 6})
        with members.malformed("bad", data):
            code, said = doctor_until(doctor, members.group, lambda seen: kinds(seen) == ["unreadable"])
            assert code == 1
            assert clients(found(said, "unreadable")) == {"bad"}
            wait_until(lambda: len(one.assignment() | two.assignment()) == 6, "all partitions read by the two")
        settle(admin, members.group, [one, two], {members.topic: 6})


@pytest.mark.release
@WEDGED
def test_one_that_comes_back_at_once_wedges_the_group_again_and_is_named(
    members: Members, admin: KafkaAdminClient, doctor: Doctor
) -> None:
    with members.ours("one") as one:
        settle(admin, members.group, [one], {members.topic: 6})
        with members.malformed("bad", NO_TOPICS):
            wait_until(
                lambda: found(doctor(members.group, "--observe-seconds", "1")[1], "wedged") is not None,
                "the wedge found",
            )

            def again() -> bool:
                code, said = doctor(members.group, "--observe-seconds", "3", "--fix")
                culprit = said["culprit"]
                return code == 1 and culprit is not None and culprit["client_id"] == "bad" and kinds(said) == ["wedged"]

            wait_until(again, "the group freed and wedged again")
        wait_until(lambda: doctor(members.group, "--observe-seconds", "2", "--fix")[0] == 0, "the group freed for good")
        settle(admin, members.group, [one], {members.topic: 6})


def test_a_long_rebalance_is_no_wedge_and_loses_nobody(
    members: Members, admin: KafkaAdminClient, doctor: Doctor
) -> None:
    with members.ours("slow") as slow, ExitStack() as opened:
        settle(admin, members.group, [slow], {members.topic: 6})
        with slow.paused():
            quick = opened.enter_context(members.ours("quick", "b"))
            wait_until(
                lambda: doctor(members.group, "--observe-seconds", "0")[1]["state"] == "PreparingRebalance",
                "a rebalance that waits for the slow one",
            )
            for _ in range(2):
                code, said = doctor(members.group, "--observe-seconds", "0.5", "--fix")
                assert (code, kinds(said), said["removed"]) == (1, ["rebalance-stuck"], [])
            ids = {member["id"] for member in said["members"]}
        settle(admin, members.group, [slow, quick], {members.topic: 6})
        assert {slow.id, quick.id} == ids


@pytest.mark.long
@WEDGED
def test_a_group_whose_first_rebalance_was_broken_is_told_but_not_touched(
    members: Members, admin: KafkaAdminClient, doctor: Doctor
) -> None:
    with members.malformed("bad", NO_TOPICS):
        wait_until(lambda: joined(admin, members.group) == 1, "a first member that wedges the group")
        with members.ours("one"):
            wait_until(lambda: joined(admin, members.group) == 2, "another member that waits for ever")
            code, said = doctor(members.group, "--observe-seconds", "1", "--fix")
            assert (code, kinds(said), said["removed"]) == (1, ["rebalance-stuck"], [])
            assert "restart the broker" in said["findings"][0]["advice"]
    # Both are gone, and the broker does not know it.
    gone = [
        MemberToRemove(member_id=member["id"])
        for member in doctor(members.group, "--observe-seconds", "0")[1]["members"]
    ]
    admin.remove_group_members(members.group, gone)
    code, said = doctor(members.group, "--observe-seconds", "1")
    assert (code, kinds(said), said["members"]) == (1, ["rebalance-stuck"], [])
    assert "its first rebalance was broken" in said["findings"][0]["problem"]


def joined(admin: KafkaAdminClient, group: str) -> int:
    seen = GroupAdmin(admin).describe_classic_group(group)
    return 0 if seen is None else len(seen.members)


@pytest.mark.long
def test_members_of_librdkafka_that_never_settle_are_named(
    members: Members, admin: KafkaAdminClient, doctor: Doctor
) -> None:
    quick = {name: str(CONSUMER[name]) for name in ("heartbeat_interval_ms", "session_timeout_ms")}
    cooperative = {"partition_assignment_strategy": "cooperative-sticky", **quick}
    with members.librdkafka("lb", client_rack="b", **cooperative):
        wait_until(lambda: leads(admin, members.group), "the first member leading")
        # By their names the leader comes second, and then moves partitions to and fro.
        with members.librdkafka("la", client_rack="a", **cooperative):

            def blamed() -> bool:
                # However few rebalances a busy machine has in this time, some time there are enough.
                code, said = doctor(members.group, "--observe-seconds", "30")
                unrest = found(said, "rebalance-loop")
                whole = kinds(said) == ["rebalance-loop"] and clients(unrest) == {"la", "lb"}
                return code == 1 and whole and unrest is not None and "librdkafka" in unrest["problem"]

            wait_until(blamed, "the unrest found and librdkafka blamed")
            with members.librdkafka("lc", client_rack="c", **cooperative):
                wait_until(
                    lambda: doctor(members.group, "--observe-seconds", "3")[0] == 0, "rest with a member in each rack"
                )


def leads(admin: KafkaAdminClient, group: str) -> bool:
    # A new cluster has no coordinators yet, which is waited for here.
    seen = GroupAdmin(admin).describe_classic_group(group)
    return seen is not None and seen.state == "Stable" and all(member.assignment for member in seen.members)


def test_members_in_the_wrong_or_no_rack_and_unreadable_ones_are_named(
    members: Members, admin: KafkaAdminClient, doctor: Doctor
) -> None:
    with ExitStack() as opened:
        good, lost, blind = (
            opened.enter_context(members.ours(name, rack))
            for name, rack in (("good", "a"), ("lost", "A"), ("blind", None))
        )
        settle(admin, members.group, [good, lost, blind], {members.topic: 6})
        opened.enter_context(members.malformed("bad", CUT_SHORT))
        _, said = doctor_until(
            doctor, members.group, lambda seen: kinds(seen) == ["unreadable", "no-rack", "unknown-rack"]
        )
    assert clients(found(said, "unreadable")) == {"bad"}
    assert clients(found(said, "no-rack")) == {"blind"}
    assert clients(found(said, "unknown-rack")) == {"lost"}


@pytest.mark.long
def test_brokers_without_selector_or_rack_are_named_over_a_secured_listener(
    make_cluster: MakeCluster, unique_name: Name, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = make_cluster(["a", None], config={"replica.selector.class": None}, listeners={"SECURE": "SASL_SSL"})
    topic, group = unique_name(), unique_name()
    create_topic(cluster.bootstrap, topic, [[1], [2]])
    secure = cluster.client_config("SECURE")
    file = tmp_path / "client.properties"
    file.write_text(properties(secure))
    words = ["doctor", "--group", group, "--bootstrap-server", secure["bootstrap_servers"], "--command-config"]
    with Members(cluster, group, topic).ours("one") as one:
        with closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap)) as admin:
            settle(admin, group, [one], {topic: 2})
        code = run([*words, str(file), "--output", "json"])
        said = parsed("doctor", capsys.readouterr().out)
        assert (code, kinds(said)) == (1, ["brokers-without-rack", "brokers-without-selector"])
        assert [finding["brokers"] for finding in said["findings"]] == [[2], [1, 2]]

    file.write_text(properties({**secure, "sasl_plain_password": "a guess"}))
    assert run([*words, str(file)]) == 3
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    # On a busy machine the client sees the end of the connection before it has read why.
    assert "Authentication failed" in err or "brokers disconnect clients whose login" in err


def properties(config: dict[str, Any]) -> str:
    return f"""
security.protocol={config["security_protocol"]}
sasl.mechanism={config["sasl_mechanism"]}
sasl.username={config["sasl_plain_username"]}
sasl.password={config["sasl_plain_password"]}
ssl.ca.location={config["ssl_cafile"]}
"""


@pytest.mark.long
def test_no_group_and_no_kafka_are_one_line_each(
    rack_cluster: Cluster, unique_name: Name, capsys: pytest.CaptureFixture[str]
) -> None:
    group = unique_name()
    words = ["doctor", "--bootstrap-server", rack_cluster.bootstrap, "--group", group]
    # On a fresh cluster there are no coordinators yet, and the answer is that there is none.
    wait_until(lambda: run(words) != 3, "a coordinator")
    capsys.readouterr()
    assert run(words) == 2
    assert capsys.readouterr() == ("", f'rackassign: group: there is no consumer group "{group}" on this cluster\n')
    assert run(["doctor", "--bootstrap-server", "127.0.0.1:1", "--group", group]) == 3
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("rackassign: Kafka at 127.0.0.1:1 does not respond: ")
    assert "ECONNREFUSED" in err


def test_a_group_of_another_type_is_named_with_its_type(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name, capsys: pytest.CaptureFixture[str]
) -> None:
    group, topic = unique_name(), make_topic()
    words = ["doctor", "--bootstrap-server", rack_cluster.bootstrap, "--group", group]
    consumer = ShareConsumer({"bootstrap.servers": rack_cluster.bootstrap, "group.id": group})
    with closing(consumer), closing(KafkaAdminClient(bootstrap_servers=rack_cluster.bootstrap)) as admin:
        consumer.subscribe([topic])

        def joined() -> bool:
            consumer.poll(timeout=0.5)
            return GroupAdmin(admin).listed_type(group) == "share"

        wait_until(joined, "the share group")
        capsys.readouterr()
        assert run(words) == 2
    assert capsys.readouterr() == ("", f'rackassign: group: "{group}" is not of consumers but of type "share"\n')
