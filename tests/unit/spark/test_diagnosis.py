"""What the doctor of Spark makes of what was seen, without a session and without brokers."""

from __future__ import annotations

import json
import socket
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackassign.cli.commands import spark_doctor
from rackassign.errors import ConfigError
from rackassign.model import Broker, Partition
from rackassign.spark import _metadata as metadata
from rackassign.spark._diagnosis import (
    Executor,
    ExecutorProbe,
    ExpectedLocality,
    diagnose,
    expected_locality,
    group_by_executor,
    listening,
    recipe,
)
from rackassign.spark._metadata import KafkaMetadata
from tests.helpers.json_schemas import parsed

RACKS = {1: "a", 2: "b", 3: "c"}
RF2 = [Partition(replicas, replicas[0]) for replicas in ((1, 2), (2, 3), (3, 1))]
RF3 = [Partition(replicas, replicas[0]) for replicas in ((1, 2, 3), (2, 3, 1), (3, 1, 2))]
THREE = [Executor(f"h{rack}", 1, rack, 2) for rack in "abc"]


def rounded(found: ExpectedLocality) -> tuple[float, float, float]:
    return round(found.none, 2), round(found.executor, 2), round(found.pull, 2)


@pytest.mark.parametrize(
    ("executors", "partitions", "expected"),
    [
        (THREE, RF2, (0.33, 0.67, 1.0)),
        (THREE, RF3, (0.33, 1.0, 1.0)),
        (THREE[:1], RF2, (0.33, 0.67, 0.67)),
        ([*THREE[:2], Executor("hc", 1, None, 2)], RF2, (0.22, 0.44, 1.0)),
        ([*THREE[:2], Executor("hc", 1, None, 2)], RF2 * 2, (0.22, 0.44, 0.67)),
        ([Executor("h", 1, "z", 1)], RF2, (0.0, 0.0, 0.0)),
        ([], RF2, (0.0, 0.0, 0.0)),
        (THREE, [], (0.0, 0.0, 0.0)),
        (THREE, [Partition((1, 9), None)], (0.0, 0.33, 1.0)),
    ],
)
def test_shares_to_expect(
    executors: list[Executor], partitions: list[Partition], expected: tuple[float, float, float]
) -> None:
    assert rounded(expected_locality(executors, partitions, RACKS)) == expected


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c", "z", None]), st.integers(1, 3)), min_size=1, max_size=4),
    st.lists(st.sets(st.integers(1, 4), min_size=1), min_size=1, max_size=9),
)
def test_a_rack_never_makes_it_worse(told: list[tuple[str | None, int]], replicas: list[set[int]]) -> None:
    executors = [Executor("h", number, rack, slots) for number, (rack, slots) in enumerate(told)]
    partitions = [Partition(tuple(sorted(each)), min(each)) for each in replicas]
    found = expected_locality(executors, partitions, RACKS)
    assert 0 <= found.none <= found.executor <= 1
    assert 0 <= found.pull <= 1


def test_nothing_is_wrong_where_all_is_well() -> None:
    found = diagnose("t", THREE, RF3, RACKS, followers=True)
    assert found.findings == ()
    assert parsed("spark-doctor", json.dumps(found.as_json()))["expected"] == {
        "none": pytest.approx(1 / 3),
        "executor": 1.0,
        "pull": 1.0,
    }


def test_what_is_wrong_is_said_with_what_would_help() -> None:
    executors = [Executor("h1", 1, "a", 1), Executor("h2", 1, None, 1), Executor("h3", 1, "z", 1)]
    found = diagnose("t", executors, RF2, {**RACKS, 4: None}, followers=False, rack_env="ZONE")
    assert found.expected.executor == found.expected.none
    unknown, nowhere, nameless, leaders, unreachable = found.findings
    assert "1 of 3 executors have no rack (on h2): set ZONE" in unknown
    assert "executors are in rack z, which has no brokers" in nowhere
    assert "brokers 4 have no rack" in nameless
    assert "RackAwareReplicaSelector" in leaders
    assert unreachable.startswith("no executor is in rack b, c, and 1 of 3 partitions have replicas only there: they")
    assert "do not report" in diagnose("t", THREE, RF3, RACKS, followers=None).findings[0]
    assert "no task ran" in diagnose("t", [], RF3, RACKS, followers=True).findings[0]


@pytest.mark.parametrize(
    ("executors", "partitions", "finding"),
    [
        (THREE, RF2, "3 of 3 partitions have no replica in some of the 3 racks with executors: rackBinding=pull can"),
        (
            THREE[:2],
            RF2,
            "2 of 3 partitions have no replica in some of the 2 racks with executors: rackBinding=pull can",
        ),
        (
            THREE[:2],
            RF2 * 2,
            "4 of 6 partitions have no replica in some of the 2 racks with executors: rackBinding=pull",
        ),
        # One rack: each partition is near all executors or none, and `pull` has nothing to choose.
        (THREE[:1], RF2, "no executor is in rack b, c, and 1 of 3 partitions have replicas only there: they are read"),
        (THREE[:1], RF3, None),
        # While no rack is known there is another finding.
        ([Executor("h", 1, None, 1)], RF2, "1 of 1 executors have no rack"),
    ],
)
def test_few_replicas_are_a_finding_by_the_racks_that_have_executors(
    executors: list[Executor], partitions: list[Partition], finding: str | None
) -> None:
    found = diagnose("t", executors, partitions, RACKS, followers=True).findings
    assert len(found) == (finding is not None)
    assert finding is None or found[0].startswith(finding)


@pytest.mark.parametrize(
    ("settings", "file"),
    [
        ({"spark.master": "spark://h:7077"}, "spark-env.sh"),
        ({"spark.master": "yarn"}, "yarn-site.xml"),
        ({"spark.master": "k8s://https://h"}, "kubernetes-executor-pod.yaml"),
        (
            {"spark.master": "spark://h:7077", "spark.databricks.clusterUsageTags.clusterId": "1"},
            "databricks-init.sh",
        ),
        ({"spark.master": "local[2]"}, "python-with-rack.sh"),
        ({}, "python-with-rack.sh"),
    ],
)
def test_the_recipe_of_the_platform_is_named(settings: dict[str, str], file: str) -> None:
    class Session:
        conf = settings

    chosen = recipe(cast("Any", Session))
    assert chosen == file
    assert (Path(__file__).parents[3] / "examples" / "spark" / file).is_file()
    executors = [Executor("h1", 1, None, 1)]
    (finding,) = diagnose("t", executors, RF3, RACKS, followers=True, rack_env="ZONE", recipe=chosen).findings
    assert finding.endswith(f": set ZONE in the environment of each executor, as examples/spark/{file} does")


def test_slots_are_the_workers_that_were_met() -> None:
    answers = [
        *(ExecutorProbe("h", 1, worker, "a", cut_off) for worker, cut_off in ((11, ["d"]), (12, []), (11, ["d", "e"]))),
        ExecutorProbe("h", 2, 11, None),
        ExecutorProbe("g", 1, 5, "b"),
    ]
    assert group_by_executor(answers) == [
        Executor("g", 1, "b", 1),
        Executor("h", 1, "a", 2, ("d", "e")),
        Executor("h", 2, None, 1),
    ]


def test_executors_that_cannot_reach_the_driver_are_told_before_anything_is_pulled() -> None:
    found = diagnose("t", [*THREE[:2], Executor("hc", 1, "c", 2, ("10.0.0.9",))], RF3, RACKS, followers=True)
    (cut_off,) = found.findings
    assert cut_off.startswith("executors on hc cannot connect to this process at 10.0.0.9: rackBinding=pull would fail")


def test_what_tasks_try_to_reach_listens_while_they_do() -> None:
    with listening(["127.0.0.1", "192.0.2.1", "nothing.invalid", "127.0.0.1"]) as desks:
        ((host, port),) = desks
        assert host == "127.0.0.1"
        for _ in range(5):
            socket.create_connection((host, port), timeout=30).close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, port), timeout=30)


def test_a_broker_that_does_not_respond_leaves_open_whether_followers_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class SilentAdmin:
        def describe_configs(self, resources: list[Any], **_: object) -> dict[Any, Future[Any]]:
            return {each: Future() for each in resources}

    monkeypatch.setattr(metadata, "_GRACE_S", 0.0)
    cluster = KafkaMetadata({"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": "10", "log_level": "0"})
    monkeypatch.setattr(cluster, "brokers", lambda: [Broker(1, "a"), Broker(2, "b")])
    monkeypatch.setattr(cluster, "_admin", SilentAdmin())
    assert cluster.follower_reads() is None


def test_the_command_refuses_what_it_cannot_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="output"):
        spark_doctor.spark_doctor(bootstrap="k:1", topic="t", output="xml")
    with pytest.raises(ConfigError, match="conf: expected NAME=VALUE"):
        spark_doctor.spark_doctor(bootstrap="k:1", topic="t", conf=["spark.ui.enabled"])
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\nssl.endpoint.identification.algorithm=\n", "utf-8")
    assert spark_doctor._client("k:1", str(file)) == {
        "security.protocol": "SSL",
        "ssl.endpoint.identification.algorithm": "none",
    }
