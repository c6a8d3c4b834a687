"""Detection, against stand-ins on loopback; the real addresses are never asked.

Client IDs with the zone in them, in the form of each vendor.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from rackassign import client_id_with_zone, detect_rack
from rackassign import rack_sources as sources
from rackassign.assignor.member import resolve_rack
from rackassign.cli.app import run
from rackassign.errors import ConfigError
from rackassign.rack_sources import RACK_VARIABLE, RackDetection, detect_all
from tests.helpers.json_schemas import parsed
from tests.helpers.machine_speed import scaled_s
from tests.helpers.processes import DEADLINE_S

Answer = Callable[[BaseHTTPRequestHandler], object]

PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sources answer late: by default one that is stalled for a second has no rack."""
    monkeypatch.setitem(detect_all.__kwdefaults__, "timeout_s", PATIENCE_S)  # type: ignore[arg-type]


TOKEN = "a-token"  # noqa: S105 - of a stand-in


def text(body: str, status: int = 200, *, needs: Mapping[str, str] | None = None) -> Answer:
    """Answer with a text if the request has the headers it needs, else 401."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        allowed = all(request.headers.get(name) == value for name, value in (needs or {}).items())
        request.send_response(status if allowed else 401)
        request.end_headers()
        request.wfile.write(body.encode() if allowed else b"no")

    return answer


ECS = {"Cluster": "c", "AvailabilityZone": "us-east-1d", "AvailabilityZoneID": "use1-az4"}
AZURE = json.dumps({"location": "westeurope", "zone": "2", "name": "vm"})
ANSWERS: dict[str, Answer] = {
    "PUT /latest/api/token": text(TOKEN, needs={"X-aws-ec2-metadata-token-ttl-seconds": "60"}),
    "GET /latest/meta-data/placement/availability-zone-id": text("use1-az4", needs={"X-aws-ec2-metadata-token": TOKEN}),
    "GET /latest/meta-data/placement/availability-zone": text("us-east-1d", needs={"X-aws-ec2-metadata-token": TOKEN}),
    "GET /computeMetadata/v1/instance/zone": text("projects/42/zones/eu-west1-b", needs={"Metadata-Flavor": "Google"}),
    "GET /v4/task": text(json.dumps(ECS)),
    "GET /metadata/instance/compute?api-version=2021-02-01": text(AZURE, needs={"Metadata": "true"}),
}


class StandIn:
    """A metadata service on loopback."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                what = f"{self.command} {self.path}"
                outer.asked.append(what)
                answers.get(what, text("not here", 404))(self)

            do_GET = do_PUT = handle_any  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()


@pytest.fixture
def stand_in() -> Iterator[Callable[[Mapping[str, Answer]], StandIn]]:
    made: list[StandIn] = []

    def make(answers: Mapping[str, Answer]) -> StandIn:
        made.append(StandIn(answers))
        return made[-1]

    yield make
    for each in made:
        each.server.shutdown()
        each.server.server_close()


def settings(address: str, tmp_path: Path) -> dict[str, str]:
    """Send every source to a stand-in, and to a folder of the test's."""
    return {
        "ECS_CONTAINER_METADATA_URI_V4": f"http://{address}/v4",
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{address}/",
        "GCE_METADATA_HOST": address,
        "AZURE_POD_IDENTITY_AUTHORITY_HOST": f"http://{address}",
        "RACKASSIGN_RACK_FILE": str(tmp_path / "labels"),
    }


def by_source(findings: list[RackDetection]) -> dict[str, str | None]:
    return {finding.source: finding.rack for finding in findings}


@pytest.mark.parametrize("network", [False, True])
def test_another_form_of_a_zone_is_refused(network: bool) -> None:  # noqa: FBT001 - a parameter of the test
    with pytest.raises(ConfigError, match='zone must be one of id, name, got "ID"'):
        detect_rack(network=network, zone="ID")  # type: ignore[arg-type] # that is the mistake


def test_every_source_is_asked_in_its_own_way(stand_in: Any, tmp_path: Path) -> None:
    service = stand_in(ANSWERS)
    environment = settings(service.address, tmp_path) | {"RACKASSIGN_RACK": "here, of all places"}
    (tmp_path / "labels").write_text('app="x"\ntopology.kubernetes.io/zone="eu-1a"\n')
    assert by_source(detect_all(environment)) == {
        "environment": "here, of all places",
        "kubernetes": "eu-1a",
        "ecs": "use1-az4",
        "ec2": "use1-az4",
        "google": "eu-west1-b",
        "azure": "westeurope-2",
    }
    assert by_source(detect_all(environment, zone="name"))["ec2"] == "us-east-1d"


@pytest.mark.parametrize(
    ("content", "rack"),
    [
        ("zone-1\n", "zone-1"),
        ('topology.kubernetes.io/zone="zone-2"', "zone-2"),
        ('a="b"\nfailure-domain.beta.kubernetes.io/zone="zone-3"\nc="d"', "zone-3"),
        ('topology.kubernetes.io/region="eu"', None),
        ("", None),
        ("two\nlines", None),
        ('topology.kubernetes.io/zone=""', None),
        ('topology.kubernetes.io/zone="<b>"', None),
    ],
)
def test_forms_of_the_downward_api_file(tmp_path: Path, stand_in: Any, content: str, rack: str | None) -> None:
    environment = settings(stand_in({}).address, tmp_path)
    (tmp_path / "labels").write_text(content)
    assert by_source(detect_all(environment))["kubernetes"] == rack


def redirect(request: BaseHTTPRequestHandler) -> None:
    request.send_response(302)
    request.send_header("Location", "/latest/meta-data/placement/availability-zone")
    request.end_headers()


BAD: dict[str, Answer] = {
    "an error": text("down", 500),
    "an empty answer": text(""),
    "a page": text("<html>please log in</html>"),
    "a flood": text("x" * 10_000_000),
    "no text": lambda request: request.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n\xff\xfe\x00"),
    "no HTTP": lambda request: request.wfile.write(b"\x00" * 100),
    "a redirect": redirect,
    "a broken connection": lambda request: request.connection.close(),
    "deep nesting": text("[" * 60_000),
    "a number": text("7e3"),
    "another machine": text('{"zone": null, "location": []}'),
    "no zone": text('{"zone": "", "location": "westeurope"}'),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_no_name_is_no_rack(stand_in: Any, tmp_path: Path, what: str) -> None:
    service = stand_in(dict.fromkeys(ANSWERS, BAD[what]))
    findings = detect_all(settings(service.address, tmp_path))
    racks = by_source(findings)
    if what == "a number":
        # Nothing says that a zone may not be called so, where it is not asked for an object.
        assert (racks["ec2"], racks["google"], racks["azure"]) == ("7e3", "7e3", None)
        return
    assert set(racks.values()) == {None}
    assert all(finding.note and "\n" not in finding.note for finding in findings)


@pytest.mark.parametrize(
    ("task", "name", "by_id"),
    [
        (ECS, "us-east-1d", "use1-az4"),
        # As on Fargate: the name denotes another zone in another account, so it is no ID.
        ({"AvailabilityZone": "us-east-1d"}, "us-east-1d", "no ID, only the name 'us-east-1d': set RACKASSIGN_RACK"),
        ({}, "the task has no zone", "the task has no zone"),
        ([], "the response is not the description of a task", "the response is not the description of a task"),
    ],
)
def test_a_task_of_ecs_has_the_name_of_its_zone_and_perhaps_the_id(
    task: object, name: str, by_id: str, stand_in: Any, tmp_path: Path
) -> None:
    service = stand_in({"GET /v4/task": text(json.dumps(task))})
    for zone, expected in (("name", name), ("id", by_id)):
        findings = detect_all(settings(service.address, tmp_path), zone=zone)  # type: ignore[arg-type]
        (ecs,) = (finding for finding in findings if finding.source == "ecs")
        assert expected in (ecs.rack or ecs.note)


def test_nobody_there_is_no_rack(tmp_path: Path, stand_in: Any) -> None:
    service = stand_in({})
    service.server.server_close()
    assert set(by_source(detect_all(settings(service.address, tmp_path))).values()) == {None}


def test_a_source_that_hangs_holds_up_nobody(tmp_path: Path, stand_in: Any) -> None:
    over = threading.Event()

    def hang(request: BaseHTTPRequestHandler) -> None:
        del request
        over.wait(DEADLINE_S)

    def drip(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        while not over.wait(0.05):
            request.wfile.write(b"x")
            request.wfile.flush()

    answers = ANSWERS | {
        "PUT /latest/api/token": hang,
        "GET /metadata/instance/compute?api-version=2021-02-01": drip,
    }
    try:
        # It returns while they hang; the others respond within this time.
        findings = detect_all(settings(stand_in(answers).address, tmp_path), timeout_s=max(5.0, scaled_s(1)))
    finally:
        over.set()
    assert by_source(findings) == {
        "environment": None,
        "kubernetes": None,
        "ecs": "use1-az4",
        "ec2": None,
        "google": "eu-west1-b",
        "azure": None,
    }


def test_ec2_can_be_switched_off_as_its_own_tools_are(stand_in: Any, tmp_path: Path) -> None:
    service = stand_in(ANSWERS)
    environment = settings(service.address, tmp_path) | {"AWS_EC2_METADATA_DISABLED": "true"}
    assert by_source(detect_all(environment))["ec2"] is None
    assert not any("latest" in asked for asked in service.asked)


def test_an_empty_variable_is_not_set(tmp_path: Path) -> None:
    names = ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "AZURE_POD_IDENTITY_AUTHORITY_HOST", "GCE_METADATA_HOST")
    asked: list[str] = []
    environment = dict.fromkeys((*names, sources.FILE_VARIABLE, RACK_VARIABLE), "")

    def request(url: str, *_: object, **__: object) -> str:
        asked.append(url)
        return "{}"

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sources, "PODINFO", str(tmp_path / "podinfo"))
        patched.setattr(sources, "_request", request)
        (tmp_path / "podinfo").write_text("a")
        assert by_source(detect_all(environment))["kubernetes"] == "a"
    assert len(asked) >= 3
    assert all(url.startswith(f"{sources.METADATA}/") for url in asked)


def test_an_address_that_is_none_is_an_answer_too(tmp_path: Path, stand_in: Any) -> None:
    environment = settings(stand_in({}).address, tmp_path) | {
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": "file:///etc",
        "AZURE_POD_IDENTITY_AUTHORITY_HOST": "nonsense",
        "GCE_METADATA_HOST": "[",
    }
    assert set(by_source(detect_all(environment)).values()) == {None}


def test_the_environment_is_enough_and_nobody_else_is_asked(
    stand_in: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = stand_in(ANSWERS)
    for name, value in settings(service.address, tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RACKASSIGN_RACK", "here")
    assert [detect_rack(), detect_rack(network=True)] == ["here", "here"]
    assert not service.asked
    monkeypatch.delenv("RACKASSIGN_RACK")
    assert detect_rack() is None
    assert not service.asked
    assert detect_rack(network=True) == "use1-az4"
    assert detect_rack(network=True, zone="name") == "us-east-1d"


@pytest.mark.parametrize(
    ("answers", "code", "line"),
    [(ANSWERS, 0, "rack use1-az4, from ecs"), ({}, 1, "no rack found")],
)
def test_the_command_says_what_each_source_said(
    stand_in: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answers: Mapping[str, Answer],
    code: int,
    line: str,
) -> None:
    for name, value in settings(stand_in(answers).address, tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("RACKASSIGN_RACK", raising=False)
    assert run(["detect-rack"]) == code
    out = capsys.readouterr().out
    assert line in out
    assert all(source in out for source in ("environment", "kubernetes", "ecs", "ec2", "google", "azure"))
    assert run(["detect-rack", "--output", "json"]) == code
    answer = parsed("detect-rack", capsys.readouterr().out)
    assert answer["rack"] == ("use1-az4" if code == 0 else None)
    assert len(answer["sources"]) == 6


def test_a_process_that_asked_a_hanging_source_ends_all_the_same(stand_in: Any, tmp_path: Path) -> None:
    over = threading.Event()
    service = stand_in(dict.fromkeys(ANSWERS, lambda _request: over.wait(2 * DEADLINE_S)))
    code = (
        f"from rackassign.rack_sources import detect_all\n"
        f"print({{f.rack for f in detect_all({settings(service.address, tmp_path)!r}, timeout_s=0.2)}})"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=DEADLINE_S
        )
    finally:
        over.set()
    assert done.stdout == "{None}\n"


@pytest.mark.parametrize(
    ("vendor", "client_id", "expected"),
    [
        ("automq", "app 1", "automq_az=use1-az1&automq_client_id=app%201"),
        ("bufstream", "app", "app,zone=use1-az1"),
        ("bufstream", "app;host_override=local.dev", "app;host_override=local.dev;zone=use1-az1"),
        ("inkless", "app", "app,diskless_az=use1-az1"),
        ("warpstream", "app", "app,warpstream_az=use1-az1"),
        ("warpstream", "app,ws_host_override=h", "app,ws_host_override=h,warpstream_az=use1-az1"),
    ],
)
def test_each_vendor_has_its_form_and_it_is_added_once(vendor: Any, client_id: str, expected: str) -> None:
    found = client_id_with_zone(vendor, client_id, "use1-az1")
    assert found == expected
    assert client_id_with_zone(vendor, found, "use1-az1") == found
    with pytest.raises(ConfigError, match=r"has [a-z_]+=use1-az1 already, and the rack is 'use1-az2'"):
        client_id_with_zone(vendor, found, "use1-az2")


def test_what_automq_reads_is_what_was_given() -> None:
    written = client_id_with_zone("automq", "a&b=c", "zone/1")
    assert parse_qs(written) == {"automq_az": ["zone/1"], "automq_client_id": ["a&b=c"]}
    assert client_id_with_zone("automq", written, "zone/1") == written


def test_a_key_that_only_ends_alike_is_another_one() -> None:
    assert client_id_with_zone("bufstream", "app,my_zone=x", "a") == "app,my_zone=x,zone=a"


class Zone(str, Enum):
    """Names of zones as applications list them."""

    FIRST = "use1-az1"


def test_a_zone_of_an_enumeration_is_written_as_its_value() -> None:
    assert client_id_with_zone("warpstream", "app", Zone.FIRST) == "app,warpstream_az=use1-az1"
    assert client_id_with_zone("automq", "app", Zone.FIRST) == "automq_az=use1-az1&automq_client_id=app"
    assert f"{resolve_rack(Zone.FIRST)}" == "use1-az1"


@pytest.mark.parametrize(
    ("vendor", "client_id", "zone", "message"),
    [
        *(
            (vendor, "", "a", "the client ID is empty: name the client")
            for vendor in ("automq", "bufstream", "inkless", "warpstream")
        ),
        *(
            ("warpstream", "app", zone, "warpstream needs the rack of this client: set client_rack")
            for zone in (None, "")
        ),
        # It would be read otherwise.
        *(("inkless", "app", zone, "must have no delimiter") for zone in ("a,b", "a=b", "a b", "a;b", "a&b", "a\nb")),
        *(("warpstream", wrong, "a", "zone_hint: the client ID must be a string, got ") for wrong in (None, 5, b"app")),
        *(("warpstream", "app", wrong, "zone_hint: the zone must be a string, got ") for wrong in (5, b"a")),
        *(
            (vendor, "app", "a", "expected one of automq, bufstream, inkless, warpstream")
            for vendor in ("kafka", "", None, 3, "WarpStream", ["automq"])
        ),
    ],
)
def test_what_cannot_be_told_to_a_vendor_is_refused(vendor: Any, client_id: Any, zone: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        client_id_with_zone(vendor, client_id, zone)
