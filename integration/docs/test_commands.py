"""Commands of the README and of the documentation, and that they show what the pages show."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from integration.docs.conftest import OpenPage
from rackassign import RackAwareConsumer
from rackassign.testing import Cluster
from rackassign.testing.harness import Traffic, wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.documents import ROOT, blocks
from tests.helpers.http_get import fetched_metrics
from tests.helpers.kafka.documented_page import INSTALLED
from tests.helpers.prometheus_server import program

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.docs]

UP = "In another terminal"


@pytest.fixture
def named(first_port: int, unique_name: Callable[[], str]) -> dict[str, str]:
    """What commands about a cluster of this machine are in place of those of a page."""
    name = unique_name().replace("-", "_")
    up = f"cluster up --name {name} --port {first_port}"
    return {"cluster up": up, "cluster down": f"cluster down --name {name}"}


def test_the_readme(
    open_page: OpenPage,
    make_topic: MakeTopic,
    rack_cluster: Cluster,
    named: dict[str, str],
    first_port: int,
) -> None:
    topic = make_topic(3)
    with open_page("README.md", **named, **{'"orders"': f'"{topic}"'}) as page:
        with page.program() as member, Traffic(rack_cluster.client_config(), [topic]):
            # It prints what it reads.
            member.wait_for_output("b'")
        assert "Kafka's traffic between racks" in page.run()
        assert "USD" in page.run()
        page.leave(INSTALLED, 3)
        page.run()
        page.bootstrap = f"localhost:{first_port}"
        with page.started() as cluster:
            cluster.wait_for_output(UP)
            assert "cooperative-sticky of rackassign" in page.run()
            page.run()
            assert cluster.wait() == 0


def test_whether_it_helps(open_page: OpenPage) -> None:
    with open_page("docs/explanation/when-it-helps.md") as page:
        assert "USD" in page.run()
        page.folder = ROOT
        page.run()


def test_planning_offline(open_page: OpenPage, tmp_path: Path) -> None:
    document = "docs/how-to/plan-offline.md"
    scenario, plan = (block.text for block in blocks(document) if block.language == "json")
    (tmp_path / "group.json").write_text(scenario, "utf-8")
    with open_page(document) as page:
        page.leave(INSTALLED)
        assert "orders" in page.run()
        assert "not_local" in json.loads(page.run())
        done = subprocess.run(
            [sys.executable, "-m", "rackassign", "plan", "group.json", "--strategy", "cooperative-sticky"],
            capture_output=True,
            check=True,
            cwd=tmp_path,
            text=True,
        )
    found, shown = json.loads(done.stdout), json.loads(plan)
    assert {**found, "seconds": None} == {**shown, "seconds": None}


def test_placers(open_page: OpenPage, tmp_path: Path) -> None:
    layout = {"format": "rackassign/1", "brokers": [{"id": 1, "rack": "a"}, {"id": 2, "rack": "b"}]}
    (tmp_path / "layout.json").write_text(json.dumps({**layout, "topics": {"orders": [[1, 2], [2, 1]]}}), "utf-8")
    with open_page("docs/reference/placers.md") as page:
        assert "striped" in page.run()


def test_permissions(open_page: OpenPage) -> None:
    with open_page("docs/reference/permissions.md") as page:
        page.leave("integration/admin/test_permissions.py runs each command with these permissions", 2)


def test_fetching_locally(open_page: OpenPage) -> None:
    with open_page("docs/how-to/fetch-locally.md") as page:
        assert "Only what consumers read is counted" in page.run()
        assert "Kafka's traffic between racks" in page.run()


def test_the_bill(
    open_page: OpenPage,
    rack_cluster: Cluster,
    make_topic: MakeTopic,
    unique_name: Callable[[], str],
    tmp_path: Path,
) -> None:
    topic, group = make_topic(replicas=[[1, 2], [2, 3], [3, 1]]), unique_name()
    config: dict[str, Any] = {"bootstrap_servers": rack_cluster.bootstrap, "group_id": group, "client_rack": "a"}
    columns = (
        "ChargeDescription,BilledCost,BillingCurrency,ChargePeriodStart,ChargePeriodEnd,ConsumedQuantity,ConsumedUnit"
    )
    row = "$0.010 per GB - regional data transfer - in/out/between EC2 AZs or using elastic IPs or ELB,0.2,USD"
    hours = "2026-11-01T00:00:00Z,2026-11-01T01:00:00Z,20,GB"
    (tmp_path / "focus.csv.gz").write_bytes(gzip.compress(f"{columns}\n{row},{hours}\n".encode()))
    with (
        closing(RackAwareConsumer(topic, **config)) as consumer,
        Traffic(rack_cluster.client_config(), [topic]),
        open_page("docs/how-to/bill.md") as page,
    ):
        wait_until(lambda: consumer.poll(50) is not None and len(consumer.assignment()) == 3, "an assignment")
        assert "replicating" in page.run()
        assert "The invoice has 20 GB between zones" in page.run()
        page.run()
        page.run()
        assert topic in (tmp_path / "bill.html").read_text("utf-8")


def test_inspecting_a_cluster(
    open_page: OpenPage, named: dict[str, str], first_port: int, unique_name: Callable[[], str], tmp_path: Path
) -> None:
    bootstrap = f"localhost:{first_port}"
    with open_page("docs/how-to/inspect-a-cluster.md", billing="billing") as page:
        page.bootstrap = bootstrap
        with page.beside(f"rackassign {named['cluster up']} --with-demo-group") as cluster:
            cluster.wait_for_output(UP)
            page.run()
            assert "billing" in (tmp_path / "report.html").read_text("utf-8")
            page.run(1)
            assert "billing" in (tmp_path / "groups.txt").read_text("utf-8")
            page.leave("another shell: the exit code is checked where the command is run")
            with page.started(more="--interval 0.5") as top:
                top.wait_for_output("billing")
            page.run()
            config: dict[str, Any] = {"bootstrap_servers": bootstrap, "client_rack": "a", "group_id": unique_name()}
            with closing(RackAwareConsumer("orders", **config)) as consumer:
                wait_until(lambda: consumer.poll(50) != {} and consumer.locality().local().records > 0, "records")
                assert 0 < page.execute(consumer=consumer)["locality"].local_share() <= 1
                begin = f"consumer = RackAwareConsumer('orders', **{config | {'group_id': unique_name()}})"
                with page.program(before=f"from rackassign import RackAwareConsumer\n{begin}", after=SHOW) as member:
                    member.wait_for_output("rackassign_read_bytes_total{")
                page.execute(consumer=consumer)
            page.run()
            lines = (tmp_path / "groups.jsonl").read_text("utf-8").splitlines()
            assert "billing" in {json.loads(line)["name"] for line in lines}


def test_scaling_consumers(
    open_page: OpenPage, make_topic: MakeTopic, rack_cluster: Cluster, unique_name: Callable[[], str]
) -> None:
    group = unique_name()
    config: dict[str, Any] = {"bootstrap_servers": rack_cluster.bootstrap, "client_rack": "a", "group_id": group}
    with closing(RackAwareConsumer(make_topic(3), **config)) as consumer:
        wait_until(lambda: consumer.poll(50) != {} or bool(consumer.assignment()), "partitions")
        with open_page("docs/how-to/scale-consumers.md", billing=group) as page:
            assert "next step up: 2 members (" in page.run(more="--interval 1")


def test_monitoring_groups(open_page: OpenPage, named: dict[str, str], first_port: int, tmp_path: Path) -> None:
    program("promtool")
    exporter = first_port + 4
    names = {"127.0.0.1:9108": f"127.0.0.1:{exporter}", "CLONE": str(ROOT), "billing": "billing"}
    with open_page("docs/how-to/monitor-groups.md", **names) as page:
        page.bootstrap = f"localhost:{first_port}"
        with page.beside(f"rackassign {named['cluster up']} --with-demo-group") as cluster:
            cluster.wait_for_output(UP)
            page.leave(INSTALLED)
            with page.started() as server:
                seen = 'rackassign_group_seen{group="billing"} 1'
                server.wait_until(lambda: seen in fetched_metrics(exporter), "metrics")
                page.run()
            page.run(commands=2)
            assert (tmp_path / "rules.yml").is_file()
            page.run()


SHOW = """
from prometheus_client import generate_latest
while True:
    consumer.poll(500)
    print(generate_latest().decode())
"""


def test_the_broker_plugin(open_page: OpenPage) -> None:
    with open_page("docs/how-to/broker-plugin.md") as page:
        assert page.run().strip().endswith(".jar")
        assert "group.consumer.assignors=org.rackassign.broker.UniformRackAwareAssignor,range" in page.run()
        page.leave("integration/broker_plugin/test_groups.py starts such brokers")
