"""The source reads from brokers that demand tokens (OAUTHBEARER), also while tokens run out."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.spark._kafka_clients import consumers_of_this_process
from rackassign.spark._options import Options
from rackassign.spark._tasks import batches, make_planner
from rackassign.testing import LocalCluster, create_topic
from tests.helpers.kafka import unsecured_tokens
from tests.helpers.kafka.spark_harness import fill, session
from tests.helpers.machine_speed import scaled_s

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.spark]

RACKS = ("a", "b")
RECORDS = 2000


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(RACKS, listeners={"SECURE": "SASL_SSL"}, config=unsecured_tokens.BROKER_CONFIG) as running:
        create_topic(running.bootstrap, "rows", [[1, 2], [2, 1]])
        fill(running, "rows", {0: RECORDS, 1: RECORDS})
        yield running
        consumers_of_this_process().close()


def options(cluster: LocalCluster, log: Path, lifetime_s: float = 3600, provider: str = "get") -> dict[str, str]:
    secure = cluster.client_config("SECURE")
    return {
        "kafka.bootstrap.servers": str(secure["bootstrap_servers"]),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(secure["ssl_cafile"]),
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.config": json.dumps({"log": str(log), "lifetime_s": lifetime_s}),
        "tokenProvider": f"tests.helpers.kafka.unsecured_tokens:{provider}",
        "subscribe": "rows",
    }


def requests(log: Path) -> Sequence[int]:
    """Return how many tokens each process has requested."""
    return sorted(Counter(log.read_text("ascii").split()).values())


def test_spark_reads_with_tokens_of_a_function_that_every_process_imports(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with session() as spark:
        frame: Any = spark.read.format("rackassign").options(**options(cluster, log)).load()
        rows = frame.selectExpr("partition", "offset").collect()
    assert sorted(map(tuple, rows)) == [(partition, offset) for partition in (0, 1) for offset in range(RECORDS)]
    # The process that plans, and at least one worker.
    assert len(requests(log)) >= 2


def test_a_range_is_read_to_its_end_though_its_tokens_run_out(cluster: LocalCluster, tmp_path: Path) -> None:
    lifetime_s = scaled_s(4)
    chosen = Options.of(
        {**options(cluster, tmp_path / "log", lifetime_s), "batchRows": "100", "rackBinding": "none"}, "batch"
    )
    splits = make_planner(chosen).batch()
    begun, offsets = time.monotonic(), list[int]()
    for batch in batches(chosen, splits[:1], ["offset"], None):
        offsets += batch.column("offset").to_pylist()
        # So long that three tokens run out before the end.
        due = begun + 3 * lifetime_s * len(offsets) / RECORDS
        time.sleep(max(0.0, due - time.monotonic()))
    assert offsets == list(range(RECORDS))
    # The clients of the plan and of its sample, and three renewals or more of the one that reads.
    (count,) = requests(tmp_path / "log")
    assert count >= 5


def test_a_function_that_fails_ends_the_query_when_it_is_planned(cluster: LocalCluster, tmp_path: Path) -> None:
    chosen = Options.of(options(cluster, tmp_path / "log", provider="refuse"), "batch")
    with pytest.raises(ConfigError, match=r"tokens:refuse failed: PermissionError: this role may not get tokens"):
        make_planner(chosen)


def test_a_token_that_brokers_refuse_is_an_error_that_names_the_login(cluster: LocalCluster, tmp_path: Path) -> None:
    given = {**options(cluster, tmp_path / "log", provider="garbage"), "kafka.request.timeout.ms": "3000"}
    with pytest.raises(KafkaUnavailableError, match=r"cannot be logged in to: .*invalid_token"):
        make_planner(Options.of(given, "batch")).batch()
