"""What is run: environments, which are a Python and versions of clients, and the tests of each client."""

from __future__ import annotations

from dataclasses import dataclass

from tools.matrix.versions import CLIENTS, PYTHON_OF_CLIENTS, PYTHONS

CORE = "core"


@dataclass(frozen=True, slots=True)
class Suite:
    """The tests of a client.

    Args:
        extras: Extras of rackassign that they need.
        tests: Paths of unit tests, and names of tests on brokers.
    """

    extras: tuple[str, ...]
    tests: tuple[str, ...]


SUITES = {
    CORE: Suite(
        ("cli",),
        (
            "tests/unit/test_racks.py",
            "tests/unit/solver/test_solver.py",
            "tests/unit/strategies/test_range.py",
            "tests/unit/test_model.py",
            "tests/unit/test_scenario.py",
            "tests/unit/cli/test_app.py",
        ),
    ),
    "kafka-python": Suite(
        # The helpers of tests with state write with confluent-kafka.
        ("cli", "confluent"),
        (
            "tests/unit/clients/kafka_python",
            "tests/unit/wire/test_consumer_protocol.py",
            "integration/clients/test_kafka_python.py::test_each_way_in_reads_at_home",
            "integration/clients/test_kafka_python.py::test_a_member_with_a_listener_reads_again_what_it_keeps",
            "integration/clients/test_cooperative.py::test_a_group_lives_through_joins_leaves_and_a_kill",
            "integration/clients/test_patches.py::test_join_finished_between_polls_is_kept",
            "integration/clients/test_patches.py::test_group_goes_on_beside_a_broken_member",
            "integration/clients/test_follower_fetching.py::test_a_follower_is_not_left_after_each_answer",
            "integration/placement/test_placement.py::test_an_audit_finds_what_was_planted",
            "integration/stateful/test_copartitioned.py::test_one_member_has_both_partitions_and_its_successor_is_warm",
        ),
    ),
    "aiokafka": Suite(
        ("aiokafka",),
        (
            "tests/unit/clients/aiokafka",
            "integration/clients/test_aiokafka.py::test_three_members_read_at_home_with_nothing_but_a_strategy",
            "integration/clients/test_aiokafka.py::test_every_byte_comes_from_the_own_rack_through_followers",
            "integration/clients/test_aiokafka.py::test_aiokafka_leads_cooperative_members_through_both_rounds",
        ),
    ),
    "confluent-kafka": Suite(
        ("confluent",),
        (
            "tests/unit/clients/confluent",
            "integration/clients/test_confluent.py::test_three_members_read_everything_once_and_at_home",
            "integration/clients/test_confluent.py::test_a_mixed_group_with_kafka_python",
            "integration/clients/test_confluent_statistics.py",
        ),
    ),
    "pyspark": Suite(
        ("cli", "msk", "spark"),
        (
            "tests/unit/spark",
            "integration/spark/test_source.py::test_a_batch_has_the_rows_and_columns_of_the_jvm_source",
            "integration/spark/test_source.py::test_options_that_cannot_work_are_told_in_spark",
        ),
    ),
}
"""The suites by their client; `core` uses no client."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python with versions of clients.

    Args:
        name: What `--only` takes.
        python: Major and minor version, as in `3.12`.
        pins: Clients and their versions; other dependencies are as new as pip finds them.
        suites: Names of the suites that run in it.
    """

    name: str
    python: str
    pins: tuple[tuple[str, str], ...]
    suites: tuple[str, ...]

    def __post_init__(self) -> None:
        if unknown := {*self.suites} - SUITES.keys():
            raise ValueError(f"{self.name} has unknown suites: {', '.join(sorted(unknown))}")

    def version(self, client: str) -> str | None:
        """Return the version of a client, or None if it is not pinned."""
        return dict(self.pins).get(client)

    def requirements(self, root: str) -> list[str]:
        """Return the arguments of pip that install rackassign with the clients and what the tests need."""
        extras = sorted({"testing", *(extra for suite in self.suites for extra in SUITES[suite].extras)})
        pins = [f"{'kafka-python[crc32c]' if client == 'kafka-python' else client}=={v}" for client, v in self.pins]
        return ["--editable", f"{root}[{','.join(extras)}]", "hypothesis>=6.100", "jsonschema>=4.20", *pins]


def environments() -> list[Environment]:
    """Return all environments: the corners and Pythons first, then each remaining version of a client alone."""
    oldest = tuple((client, versions[0]) for client, versions in CLIENTS.items())
    newest = tuple((client, versions[-1]) for client, versions in CLIENTS.items())
    everything = tuple(SUITES)
    return [
        Environment("oldest", PYTHONS[0], oldest, everything),
        *(Environment(f"python-{python}", python, newest, everything) for python in reversed(PYTHONS[1:])),
        *(
            Environment(f"{client}-{version}", PYTHON_OF_CLIENTS, ((client, version),), (client,))
            for client, versions in CLIENTS.items()
            for version in versions[1:-1]
        ),
    ]
