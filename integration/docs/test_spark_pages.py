"""Pages about Spark, with a Spark of this process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.docs.conftest import OpenPage
from rackassign.testing import Cluster
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.flow_logs import FORMATS, flows, hosts, records, write_text
from tests.helpers.kafka.documented_page import INSTALLED
from tests.helpers.kafka.spark_harness import create_coordinator, fill, session

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.docs]

SPREAD = [[1, 2], [2, 3], [3, 1]]
EACH = 10


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with session() as running:
        yield running


def test_reading_locally(
    open_page: OpenPage, rack_cluster: Cluster, make_topic: MakeTopic, spark: Any, tmp_path: Path
) -> None:
    topic = make_topic(replicas=SPREAD)
    create_coordinator(rack_cluster, topic)
    fill(rack_cluster, topic, dict.fromkeys(range(len(SPREAD)), EACH))
    names = {
        '"subscribe": "orders"': f'"subscribe": "{topic}"',
        'parquet("orders")': f'parquet("{tmp_path}/orders")',
        "--topic orders": f"--topic {topic}",
        "--master spark://...": "--master 'local[2]'",
    }
    with open_page("docs/how-to/spark.md", **names) as page:
        page.leave(INSTALLED)
        # All executors are in one rack, which it reports.
        page.run(1, environment={"RACKASSIGN_RACK": "a"})
        found = page.execute(spark=spark)
        assert spark.read.parquet(f"{tmp_path}/orders").count() == EACH * len(SPREAD)
        assert found["executor"].isStreaming
        assert found["pull"].isStreaming
        page.leave_to("integration/spark/test_documented_stream.py")
        page.leave("the program above, on a cluster of Spark: integration/spark/test_recipes.py submits one")
        page.leave("as the one before, with the JVM source")
        page.leave_to("integration/spark/test_batch_traffic.py")


def test_tokens(open_page: OpenPage, spark: Any) -> None:
    with open_page("docs/how-to/spark-with-tokens.md") as page:
        page.leave(INSTALLED)
        # Rows are read by nothing: the brokers do not exist.
        assert page.execute(spark=spark)["rows"].columns[:2] == ["key", "value"]
        oidc = page.execute()["oidc"]
        assert spark.read.format("rackassign").options(**oidc, subscribe="orders").load().columns[:2] == [
            "key",
            "value",
        ]
        token, end_s = page.execute(request_token=lambda config: (config, 60))["get"]("t")
        assert token == "t"  # noqa: S105 - no password
        assert end_s > time.time()


def test_reading_flow_logs(open_page: OpenPage, spark: Any, tmp_path: Path) -> None:
    among = hosts(2, 4, ("use1-az1", "use1-az2"))
    write_text(tmp_path / "logs" / "a.log.gz", records(among, flows(among, 100, 0), 0, FORMATS[2]))
    names = {'"AWSLogs"': f'"{tmp_path}/logs"', 'Path("flows")': f'Path("{tmp_path}/flows")'}
    with open_page("docs/how-to/read-flow-logs.md", **names) as page:
        page.leave(INSTALLED)
        found = page.execute()
        assert [*(tmp_path / "flows").iterdir()]
        rows = page.execute(spark=spark, **found)["rows"]
        assert rows.count() == found["flows"].num_rows
