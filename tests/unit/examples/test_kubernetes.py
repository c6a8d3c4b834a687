"""The manifests of the Kubernetes example against Kubernetes' schemas, and what its init container reads."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import trustme
import yaml

from examples.kubernetes import consumer
from rackassign.cli.app import run
from rackassign.cli.commands import reassign
from rackassign.errors import KafkaUnavailableError
from rackassign.model import Broker, Group, Member, Partition, Topology
from rackassign.strategies import Options, plan_sticky

FOLDER = Path(__file__).parents[3] / "examples" / "kubernetes"
OF_OPERATORS = {"ServiceMonitor", "PodMonitor", "ScaledObject"}
ZONE = "topology.kubernetes.io/zone"


def documents(*names: str) -> list[Any]:
    return [document for name in names for document in yaml.safe_load_all((FOLDER / name).read_text())]


def manifests() -> list[str]:
    return sorted(path.name for path in FOLDER.glob("*.yaml") if path.name != "kustomization.yaml")


def workload(name: str) -> Any:
    (found,) = (each for each in documents(name) if each["kind"] in {"Deployment", "StatefulSet"})
    return found


@pytest.mark.parametrize("version", ["1.28", "1.35", "1.37"])
def test_all_kinds_of_kubernetes_satisfy_its_schema(version: str) -> None:
    checked = [each for each in documents(*manifests()) if each["kind"] not in OF_OPERATORS]
    assert len(checked) == 13
    for each in checked:
        kubernetes_validate.validate(each, version, strict=True)


def test_an_unknown_field_does_not() -> None:
    wrong = workload("consumer.yaml")
    wrong["spec"]["template"]["spec"]["topologySpreadConstraint"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.35", strict=True)


def test_kustomize_lists_files_that_exist_and_one_of_the_consumers() -> None:
    (settings,) = documents("kustomization.yaml")
    others = {"consumer-with-init-container.yaml", "consumer-per-zone.yaml", "leaders.yaml"}
    assert set(settings["resources"]) == {*manifests()} - others
    assert [each["name"] for each in settings["images"]] == ["rackassign-app"]


def test_both_consumers_are_equal_but_for_where_the_zone_comes_from() -> None:
    label, container = workload("consumer.yaml"), workload("consumer-with-init-container.yaml")
    pod = container["spec"]["template"]["spec"]
    for added in ("serviceAccountName", "volumes", "initContainers"):
        del pod[added]
    del pod["containers"][0]["volumeMounts"]
    zones = [each["spec"]["template"]["spec"]["containers"][0]["env"].pop(0) for each in (label, container)]
    assert zones[0]["valueFrom"]["fieldRef"]["fieldPath"] == f"metadata.labels['{ZONE}']"
    assert zones[1] == {"name": "RACKASSIGN_RACK_FILE", "value": "/zone/rack"}
    assert label == container


def test_the_consumers_of_each_zone_are_those_of_one_deployment_with_a_scaler_for_that_zone() -> None:
    one, *parts = documents("consumer.yaml", "consumer-per-zone.yaml")
    (container,) = one["spec"]["template"]["spec"]["containers"]
    deployments, scalers = parts[::2], parts[1::2]
    for deployment, scaler in zip(deployments, scalers, strict=True):
        pod = deployment["spec"]["template"]["spec"]
        zone = pod["nodeSelector"][ZONE]
        assert pod["containers"][0] == {
            **container,
            "env": [{"name": "RACKASSIGN_RACK", "value": zone}, *container["env"][1:]],
        }
        assert (deployment["kind"], scaler["kind"]) == ("Deployment", "ScaledObject")
        assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"] == f"billing-{zone}"
        env = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
        wanted, lag = (trigger["metadata"] for trigger in scaler["spec"]["triggers"])
        gauge = f'rackassign_wanted_members{{group="{env["GROUP"]}",rack="{zone}"}}'
        assert (wanted["query"], wanted["threshold"]) == (f"sum({gauge})", "1")
        assert [lag[name] for name in ("bootstrapServers", "consumerGroup", "topic")] == [
            env[name] for name in ("KAFKA_BOOTSTRAP", "GROUP", "TOPIC")
        ]
        # KEDA wants text.
        assert {type(value) for value in (*wanted.values(), *lag.values())} == {str}
    assert len({deployment["metadata"]["name"] for deployment in deployments}) == 3


def test_the_job_of_leaders_runs_a_command_that_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    (job,) = documents("leaders.yaml")
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    called = list[list[str]]()
    monkeypatch.setattr(reassign, "read_written_bytes", called.append)
    monkeypatch.setattr(reassign, "admin_client", lambda *_: (_ for _ in ()).throw(KafkaUnavailableError("asked")))
    assert container["args"][:2] == ["-m", "rackassign"]
    for more in ((), ("--check",)):
        assert run([*container["args"][2:], *more]) == 3
    assert called == [["http://prometheus:9090/federate?match[]=rackassign_written_bytes_total"]] * 2
    plan = next(word for word in container["args"] if word.startswith("--plan-file="))
    assert plan.startswith(f"--plan-file={container['volumeMounts'][0]['mountPath']}/")


def test_every_monitor_selects_a_port_that_exists() -> None:
    labels = {}
    for each in documents(*manifests()):
        if each["kind"] == "Service":
            labels["ServiceMonitor", each["metadata"]["name"]] = {
                port["name"] for port in each["spec"].get("ports", ())
            }
        elif each["kind"] == "Deployment":
            (container,) = each["spec"]["template"]["spec"]["containers"]
            labels["PodMonitor", each["metadata"]["name"]] = {port["name"] for port in container["ports"]}
    for each in documents("monitors.yaml"):
        spec = each["spec"]
        ports = labels[each["kind"], spec["selector"]["matchLabels"]["app.kubernetes.io/name"]]
        assert {end["port"] for end in spec.get("endpoints", spec.get("podMetricsEndpoints"))} <= ports


def test_modules_that_containers_run_exist() -> None:
    for each in documents(*manifests()):
        if each["kind"] not in {"Deployment", "StatefulSet"}:
            continue
        pod = each["spec"]["template"]["spec"]
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            assert container["args"][0] == "-m"
            module = FOLDER.parents[1] / container["args"][1].replace(".", "/")
            assert module.with_suffix(".py").is_file() or (module / "__main__.py").is_file()


@pytest.mark.parametrize(
    ("members", "one", "two", "three"),
    [((2, 2, 2), 100, 100, 100), ((3, 2, 1), 83, 100, 100), ((4, 1, 1), 67, 100, 100), ((6, 0, 0), 33, 67, 100)],
)
def test_what_uneven_members_cost_is_as_the_readme_has_it(
    members: tuple[int, ...], one: int, two: int, three: int
) -> None:
    assert [local_share(replicas, members) for replicas in (1, 2, 3)] == [one, two, three]
    row = " | ".join([" / ".join(map(str, members)), *(f"{share} %" for share in (one, two, three))])
    assert f"| {row} |" in (FOLDER / "README.md").read_text()


@pytest.mark.parametrize("zone", [None, "eu-1a"])
def test_a_consumer_without_a_zone_reports_that_and_reads_from_leaders(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], zone: str | None
) -> None:
    class StartedError(Exception):
        pass

    def started(*_: str, client_rack: str | None, **__: object) -> None:
        raise StartedError(client_rack)

    monkeypatch.setattr(consumer, "detect_rack", lambda *, network: zone if network else None)
    monkeypatch.setattr(consumer, "RackAwareConsumer", started)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(StartedError, match=str(zone)):
        consumer.main()
    assert ("the zone of this pod is not known" in capsys.readouterr().err) == (zone is None)


def test_the_state_is_below_the_root_of_its_volume() -> None:
    # The root belongs to root, and programs cannot make it private.
    pod = workload("stateful-consumer.yaml")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (mount,) = container["volumeMounts"]
    (folder,) = [each["value"] for each in container["env"] if each["name"] == "STATE_DIR"]
    assert folder.startswith(mount["mountPath"] + "/")
    # With the default the files of the state would be given to the group at each start.
    assert pod["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"


def local_share(replicas: int, members: tuple[int, ...]) -> int:
    """Return the percentage of 60 partitions that are local, on three brokers in three racks."""
    zones = "abc"
    rows = tuple(Partition(tuple((p + i) % 3 for i in range(replicas)), p % 3) for p in range(60))
    racks = [zone for zone, count in zip(zones, members, strict=True) for _ in range(count)]
    group = Group(
        Topology(tuple(map(Broker, range(3), zones)), {"orders": rows}),
        tuple(Member(f"pod-{i}", frozenset(["orders"]), rack) for i, rack in enumerate(racks)),
    )
    plan = plan_sticky(group, Options())
    local = sum(
        member.rack in [zones[broker] for broker in rows[partition].replicas]
        for member in group.members
        for partition in plan.assignment[member.id].get("orders", ())
    )
    return round(100 * local / len(rows))


@contextmanager
def api_server(folder: Path, labels: Mapping[str, str]) -> Iterator[int]:
    """Serve one node as the API server does, and write the files of a service account; yield the port."""
    authority = trustme.CA()

    class Node(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = self.headers["Authorization"] == "Bearer secret"
            known = self.path == "/api/v1/nodes/node-1"
            self.send_response(403 if not allowed else 200 if known else 404)
            self.end_headers()
            self.wfile.write(json.dumps({"metadata": {"labels": labels}}).encode())

        def log_message(self, *_: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    (folder / "token").write_text("secret\n")
    authority.cert_pem.write_to_path(folder / "ca.crt")
    with HTTPServer(("127.0.0.1", 0), Node) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def zone_of_node(folder: Path, port: int, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {
        **os.environ,
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(port),
        "SERVICE_ACCOUNT_DIR": str(folder),
        "NODE_NAME": "node-1",
        **environment,
    }
    command = [sys.executable, "-m", "examples.kubernetes.zone_of_node", str(folder / "rack")]
    return subprocess.run(
        command, env=settings, cwd=FOLDER.parents[1], capture_output=True, text=True, timeout=120, check=False
    )


def test_the_init_container_writes_what_the_consumer_detects(tmp_path: Path) -> None:
    with api_server(tmp_path, {ZONE: "eu-1a", "topology.k8s.aws/zone-id": "euw1-az2"}) as port:
        ended = zone_of_node(tmp_path, port)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "zone eu-1a\n", "")
        assert (tmp_path / "rack").read_text() == "eu-1a"
        zone_of_node(tmp_path, port, NODE_LABEL="topology.k8s.aws/zone-id")
    assert (tmp_path / "rack").read_text() == "euw1-az2"
    environment = {**os.environ, "RACKASSIGN_RACK_FILE": str(tmp_path / "rack"), "AWS_EC2_METADATA_DISABLED": "true"}
    environment.pop("RACKASSIGN_RACK", None)
    detected = subprocess.run(
        [sys.executable, "-c", "from rackassign import detect_rack; print(detect_rack(network=True))"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert detected.stdout == "euw1-az2\n"


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"NODE_NAME": "node-2"}, "no zone: HTTP Error 404"),
        (
            {"NODE_LABEL": "topology.k8s.aws/zone-id"},
            "no zone: node node-1 has no label topology.k8s.aws/zone-id; it has",
        ),
        ({"SERVICE_ACCOUNT_DIR": "/nowhere"}, "no zone: [Errno 2] No such file or directory: '/nowhere/token'"),
    ],
)
def test_the_init_container_states_why_there_is_no_zone(
    tmp_path: Path, environment: dict[str, str], reason: str
) -> None:
    with api_server(tmp_path, {ZONE: "eu-1a"}) as port:
        ended = zone_of_node(tmp_path, port, **environment)
    assert ended.returncode == 1
    assert ended.stderr.startswith(reason)
    assert ended.stderr.count("\n") == 1
    assert not (tmp_path / "rack").exists()


def test_a_server_with_another_certificate_is_not_trusted(tmp_path: Path) -> None:
    with api_server(tmp_path, {ZONE: "eu-1a"}) as port:
        trustme.CA().cert_pem.write_to_path(tmp_path / "ca.crt")
        ended = zone_of_node(tmp_path, port)
    assert (ended.returncode, (tmp_path / "rack").exists()) == (1, False)
    assert "certificate verify failed" in ended.stderr
