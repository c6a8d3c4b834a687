"""Assignors of the broker as a peer: the plug-in from its sources, or one of Kafka's own, in one JVM."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rackassign.model import BalanceMode, Group
from rackassign.testing import kafka_jars
from rackassign.testing._jars import Jar, fetched
from tests.helpers.java.assignor_peer import JavaProcess, compiled, find_jdk, skipped_without_java

PROJECT = Path(__file__).parents[3] / "broker-plugin"
SERVER = Path(__file__).with_name("PlanServer.java")
UNIFORM = "org.apache.kafka.coordinator.group.assignor.UniformAssignor"


class BrokerPlan(NamedTuple):
    """What an assignor decides."""

    assignment: Mapping[str, Mapping[str, tuple[int, ...]]]
    proven: bool | None
    nanos: tuple[int, ...]
    allocated: int


class PlanServer(JavaProcess):
    """A JVM with the plug-in."""

    def plan(
        self,
        group: Group,
        *,
        assignor: str = "",
        balance: BalanceMode = "total",
        max_ms: int = 60_000,
        repeat: int = 1,
        changes: bool = False,
    ) -> BrokerPlan:
        """Let an assignor decide."""
        # `assignor`: a class of Kafka's; the plug-in if empty.
        # `repeat`: the number of calls; only a single one is proven.
        # `changes`: whether the metadata of the cluster have changed before each call, elsewhere.
        question = {**_question(group), "assignor": assignor, "balance": balance, "max_ms": max_ms, "repeat": repeat}
        question |= {"changes": changes, "prove": not assignor and repeat == 1}
        answer = self._exchange(json.dumps(question).encode() + b"\n", self._timeout_s)
        assignment = {
            member: {topic: tuple(sorted(ids)) for topic, ids in owned.items()}
            for member, owned in answer["assignment"].items()
        }
        return BrokerPlan(assignment, answer.get("proven"), tuple(answer["nanos"]), answer["bytes"])


def _question(group: Group) -> dict[str, Any]:
    return {
        "brokers": {str(broker.id): broker.rack for broker in group.topology.brokers},
        "topics": {
            topic: [list(each.replicas) for each in partitions] for topic, partitions in group.topology.topics.items()
        },
        "members": [
            {"id": member.id, "rack": member.rack, "topics": sorted(member.topics), "owned": dict(member.owned)}
            for member in group.members
        ],
    }


JUNIT = Jar(
    "org.junit.platform:junit-platform-console-standalone:1.11.4",
    2809597,
    "b016ef6b1c3454d6d7c2c88ce081dabf289699686af6622d6e4e2e1b54b4a2fc",
)


def run_junit(groups: int) -> str:
    """Run the project's own tests, as `mvn test` does, and return their report."""
    with skipped_without_java():
        jdk, jars = find_jdk(), (*fetched([JUNIT]), *kafka_jars())
    class_path = os.pathsep.join(map(str, jars))
    classes = str(compiled(jdk, class_path, *sorted(PROJECT.glob("src/*/java/**/*.java"))))
    java = [str(jdk.java), "-Xmx1g", f"-Drackassign.groups={groups}", "-cp", os.pathsep.join((classes, class_path))]
    command = [*java, "org.junit.platform.console.ConsoleLauncher", "execute", "--scan-classpath", classes]
    done = subprocess.run([*command, "--disable-banner"], capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def plan_server() -> Iterator[PlanServer]:
    """Compile the plug-in for Java 17, which refuses what a later one has, and run it with the classes of Kafka.

    Without JDK or jars the test is skipped, or fails where `CI` is true.
    """
    with skipped_without_java():
        jdk, class_path = find_jdk(), os.pathsep.join(map(str, kafka_jars()))
    sources = [*sorted(PROJECT.glob("src/main/java/**/*.java")), SERVER]
    classes = compiled(jdk, class_path, *sources, options=("-Xlint:all,-path", "-Werror"))
    with PlanServer(jdk.java, (str(classes), class_path), "org.rackassign.broker.PlanServer", heap="1g") as server:
        yield server
