"""The dashboard and the rules of the example, against a real Prometheus that scrapes an exporter and a consumer."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from kafka import KafkaProducer
from prometheus_client import CollectorRegistry, start_http_server

from rackassign import RackAwareConsumer
from rackassign.monitoring.prometheus import ConsumerMetrics
from rackassign.testing import Cluster
from rackassign.testing.harness import ConfluentMember, KafkaPythonMember, wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.consumers import CONSUMER
from tests.helpers.prometheus_server import program, prometheus

pytestmark = [pytest.mark.brokers, pytest.mark.local]

EXAMPLE = Path(__file__).parents[2] / "examples" / "monitoring"
VARIABLES = {"$job": ".*", "$instance": ".*", "$group": ".*", "$__rate_interval": "1m"}
COMPARISON = re.compile(r" [<>] [\d.]+( or absent\(.+\))?$")


def queries() -> list[str]:
    """Return all expressions of the dashboard and of the rules; of alerts without the comparison."""
    panels = json.loads((EXAMPLE / "dashboard.json").read_text("utf-8"))["panels"]
    found = [target["expr"] for panel in panels for target in panel["targets"]]
    for name, value in VARIABLES.items():
        found = [expression.replace(name, value) for expression in found]
    rules = (EXAMPLE / "rules.yml").read_text("utf-8")
    found += re.findall(r"- record: (\S+)", rules)
    for expression in re.findall(r"- alert: \w+\n +expr: (.+)", rules):
        bare, removed = COMPARISON.subn("", expression)
        assert removed == 1, expression
        found.append(bare)
    return found


def test_the_rules_do_what_they_say() -> None:
    for words in (["check", "rules", "rules.yml"], ["test", "rules", "rules_test.yml"]):
        done = subprocess.run([program("promtool"), *words], cwd=EXAMPLE, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def exporter(bootstrap: str) -> Iterator[str]:
    """Run the exporter; yield its address."""
    words = ["exporter", "--bootstrap-server", bootstrap, "--listen", "127.0.0.1:0", "--interval", "1"]
    command = [sys.executable, "-m", "rackassign", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = re.search(r"http://(\S+)/metrics", process.stderr.readline())
            assert found is not None
            yield found[1]
        finally:
            process.terminate()
            # What it writes meanwhile must not fill the pipe.
            process.communicate()


@pytest.mark.long
def test_every_query_has_an_answer(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str], tmp_path: Path
) -> None:
    program("prometheus")
    bootstrap, group = rack_cluster.bootstrap, unique_name()
    topic = make_topic(replicas=[[1], [2], [3]])

    def ours() -> Any:
        named = {"bootstrap_servers": bootstrap, "group_id": group, "client_rack": "a"}
        return RackAwareConsumer(topic, **named, **{**CONSUMER, "enable_auto_commit": True})

    def of_the_broker() -> Consumer:
        named = {"bootstrap.servers": bootstrap, "group.id": unique_name(), "group.protocol": "consumer"}
        consumer = Consumer({**named, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        return consumer

    with ExitStack() as opened:
        member = opened.enter_context(KafkaPythonMember(ours))
        opened.enter_context(ConfluentMember(of_the_broker))
        # Its thread creates it, and without a consumer the metrics would be empty for ever.
        wait_until(lambda: member.consumer is not None, "a consumer")
        registry = CollectorRegistry()
        registry.register(ConsumerMetrics(member.consumer))
        served, thread = start_http_server(0, "127.0.0.1", registry)
        opened.callback(thread.join)
        opened.callback(served.shutdown)
        told = opened.enter_context(exporter(bootstrap))
        config = (EXAMPLE / "prometheus.yml").read_text("utf-8")
        consumers = '"billing-a:9109", "billing-b:9109", "billing-c:9109"'
        places = {"exporter:9108": told, consumers: f'"127.0.0.1:{served.server_port}"', "15s": "1s"}
        for name, value in places.items():
            assert name in config
            config = config.replace(name, value)
        (tmp_path / "prometheus.yml").write_text(config, "utf-8")
        (tmp_path / "rules.yml").write_text((EXAMPLE / "rules.yml").read_text("utf-8"), "utf-8")
        server = opened.enter_context(prometheus(tmp_path / "prometheus.yml"))
        producer = opened.enter_context(closing(KafkaProducer(bootstrap_servers=bootstrap)))
        unanswered = queries()
        assert len(unanswered) > 20

        def all_answered() -> bool:
            for partition in range(3):
                producer.send(topic, bytes(1000), partition=partition)
            member.poll()
            unanswered[:] = [expression for expression in unanswered if not server.query(expression)]
            return not unanswered

        try:
            wait_until(all_answered, "an answer to each query")
        except TimeoutError as error:
            raise AssertionError(f"{error}: {unanswered}; {server.log.read_text('utf-8')[-2000:]}") from None
        own = 'rackassign_read_bytes_total{job="consumers"} > 0'
        wait_until(lambda: bool(server.query(own)), "what the consumer has counted itself")
        # Rules are evaluated in turn, so this one may be later than the queries.
        share = f'group:rackassign_local_bytes:share_rate1h{{group="{group}"}}'
        wait_until(lambda: bool(server.query(share)), "the recorded share of the group")
