"""The composition of containers in the monitoring example, as far as it can be checked without a container."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "examples" / "monitoring"
SERVICES: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yml").read_text())["services"]


def test_brokers_are_those_of_the_cluster_in_three_racks() -> None:
    brokers = {name: each["extends"] for name, each in SERVICES.items() if "extends" in each}
    assert list(brokers) == ["kafka-1", "kafka-2", "kafka-3"]
    for name, extends in brokers.items():
        known = yaml.safe_load((FOLDER / extends["file"]).read_text())["services"]
        assert extends["service"] == name
        assert name in known


@pytest.mark.parametrize("name", ["prometheus", "grafana"])
def test_files_that_are_mounted_exist(name: str) -> None:
    for volume in SERVICES[name]["volumes"]:
        source, _, options = volume.split(":")
        assert (FOLDER / source).is_file(), source
        assert options == "ro"


def test_what_is_scraped_is_a_service_that_exports() -> None:
    scraped = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    targets = {target for job in scraped for static in job["static_configs"] for target in static["targets"]}
    assert targets == {"exporter:9108", "billing-a:9109", "billing-b:9109", "billing-c:9109"}
    assert {target.partition(":")[0] for target in targets} <= set(SERVICES)


def test_modules_that_services_run_exist() -> None:
    modules = {each["command"][1] for each in SERVICES.values() if "command" in each}
    assert modules == {"examples.monitoring.traffic", "examples.kubernetes.consumer", "rackassign"}
    for module in modules - {"rackassign"}:
        assert (ROOT / module.replace(".", "/")).with_suffix(".py").is_file()


def test_grafana_finds_its_data_and_the_dashboard() -> None:
    (source,) = yaml.safe_load((FOLDER / "grafana/datasource.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((FOLDER / "grafana/dashboards.yml").read_text())["providers"]
    inside = [volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]]
    assert any(path.startswith(provider["options"]["path"]) and path.endswith(".json") for path in inside)
    # Whatever the data source is called, a variable of this type finds it.
    variables = json.loads((FOLDER / "dashboard.json").read_text())["templating"]["list"]
    assert [each["query"] for each in variables if each["type"] == "datasource"] == [source["type"]]
