"""Sources of the rack (availability zone) in which this process runs: environment, Kubernetes, metadata services.

Rules of this module:

* The environment is read first and is sufficient. The network is used only if the caller requests it.
* All network sources are queried in parallel, each with the same short time limit. A source that does not respond in
  time is ignored. No source can block the caller, not even one that sends its response slowly.
* The response of a source is used only if it looks like a name.

A rack must have the name that the brokers use. Amazon MSK and others name racks by the zone's *ID*
(use1-az1), since the names of zones (us-east-1a) mean another zone in another account; so the ID is the default.
"""

from __future__ import annotations

import json
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from rackassign.errors import ConfigError
from rackassign.text import short_repr

ZoneForm = Literal["id", "name"]
"""How a zone of EC2 is named: by its ID (use1-az1) or by its name (us-east-1a)."""

RACK_VARIABLE = "RACKASSIGN_RACK"


def detect_rack(*, network: bool = False, zone: ZoneForm = "id") -> str | None:
    """Return the rack this process runs in; None if it cannot be detected.

    Args:
        network: Whether to try more sources if `RACKASSIGN_RACK` is not set: a Kubernetes downward-API file (the pod's
            labels in `/etc/podinfo/labels`, or the file in `RACKASSIGN_RACK_FILE`), then the metadata services of EC2,
            Google Cloud and Azure, for a few seconds at most.
        zone: On EC2, whether a zone is named by its ID or its name.

    Raises:
        ConfigError: `zone` is neither of the two.
    """
    if zone not in get_args(ZoneForm):
        raise ConfigError(f"zone must be one of {', '.join(get_args(ZoneForm))}, got {short_repr(zone)}")
    known = rack_from_environment()
    if known is not None or not network:
        # The environment comes first: outside of a cloud the metadata services keep a caller waiting for seconds.
        return known
    return next((each.rack for each in detect_all(zone=zone) if each.rack is not None), None)


def rack_from_environment(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the rack set in `RACKASSIGN_RACK`, without surrounding blanks; None if unset or empty."""
    return environment.get(RACK_VARIABLE, "").strip() or None


FILE_VARIABLE = "RACKASSIGN_RACK_FILE"
PODINFO = "/etc/podinfo/labels"
"""Usual mount path of a downward-API volume with the pod's labels."""

METADATA = "http://169.254.169.254"
"""Link-local address of the metadata service of EC2, Google Cloud and Azure."""

TIMEOUT_S = 1.0

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,254}")
_LABEL = re.compile(r'^(?:topology\.kubernetes\.io|failure-domain\.beta\.kubernetes\.io)/zone="([^"]*)"$', re.MULTILINE)
_LONGEST = 65_536


@dataclass(frozen=True, slots=True)
class RackDetection:
    """The result of one source."""

    source: str
    # The detected rack; None if there is none.
    rack: str | None
    note: str


class _NoAnswerError(Exception):
    """A source has no rack; the message states the reason."""


Source = Callable[[Mapping[str, str], ZoneForm, float], str]
"""Queries one source: environment, form of the name, seconds for each step; raises `_NoAnswerError`."""


def detect_all(
    environment: Mapping[str, str] = os.environ, *, zone: ZoneForm = "id", timeout_s: float = TIMEOUT_S
) -> list[RackDetection]:
    """Query every source and return the results, in order of precedence."""
    # `timeout_s`: seconds for each step of a source; no source has more than two.
    answers: queue.Queue[RackDetection] = queue.Queue()
    for name, source in SOURCES.items():
        # Not a pool: its threads would be joined when the process ends.
        threading.Thread(
            target=lambda name=name, source=source: answers.put(_ask(name, source, environment, zone, timeout_s)),
            name=f"rackassign-{name}",
            daemon=True,
        ).start()
    detections: dict[str, RackDetection] = {}
    deadline = time.monotonic() + 2 * timeout_s + 0.5
    while len(detections) < len(SOURCES):
        try:
            finding = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        detections[finding.source] = finding
    return [detections.get(name, RackDetection(name, None, "no response in time")) for name in SOURCES]


def _ask(name: str, source: Source, environment: Mapping[str, str], zone: ZoneForm, timeout_s: float) -> RackDetection:
    try:
        rack = source(environment, zone, timeout_s)
    except _NoAnswerError as error:
        return RackDetection(name, None, str(error))
    return RackDetection(name, rack, "")


def _named(text: str) -> str:
    """Return a network response if it looks like the name of a rack; the environment is not restricted."""
    if not _NAME.fullmatch(text):
        raise _NoAnswerError(f"the response is not the name of a rack: {text[:60]!r}")
    return text


def _environment(environment: Mapping[str, str], _zone: ZoneForm, _timeout_s: float) -> str:
    rack = rack_from_environment(environment)
    if rack is None:
        raise _NoAnswerError(f"{RACK_VARIABLE} is not set")
    return rack


def _kubernetes(environment: Mapping[str, str], _zone: ZoneForm, _timeout_s: float) -> str:
    path = environment.get(FILE_VARIABLE) or PODINFO
    try:
        with Path(path).open("rb") as file:
            text = file.read(_LONGEST).decode("utf-8", "replace").strip()
    except OSError as error:
        raise _NoAnswerError(f"{path}: {error.strerror}") from None
    label = _LABEL.search(text)
    if label:
        return _named(label.group(1))
    if not text or "\n" in text or "=" in text:
        raise _NoAnswerError(f"{path} has no label topology.kubernetes.io/zone")
    return _named(text)


def _ec2(environment: Mapping[str, str], zone: ZoneForm, timeout_s: float) -> str:
    if environment.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        raise _NoAnswerError("AWS_EC2_METADATA_DISABLED is set")
    base = (environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or METADATA).rstrip("/")
    lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    token = _request(f"{base}/latest/api/token", lifetime, timeout_s, method="PUT")
    what = "availability-zone-id" if zone == "id" else "availability-zone"
    headers = {"X-aws-ec2-metadata-token": token}
    return _named(_request(f"{base}/latest/meta-data/placement/{what}", headers, timeout_s))


def _ecs(environment: Mapping[str, str], zone: ZoneForm, timeout_s: float) -> str:
    base = environment.get("ECS_CONTAINER_METADATA_URI_V4", "").rstrip("/")
    if not base:
        raise _NoAnswerError("ECS_CONTAINER_METADATA_URI_V4 is not set")
    task = _object(_request(f"{base}/task", {}, timeout_s), "task")
    # Tasks on Fargate (platform 1.4) have the name alone; more fields may be added to this version of the response.
    rack = task.get("AvailabilityZoneID" if zone == "id" else "AvailabilityZone")
    if isinstance(rack, str) and rack:
        return _named(rack)
    if zone == "id" and isinstance(name := task.get("AvailabilityZone"), str):
        # The name is not used in its place: it is another zone in another account.
        raise _NoAnswerError(f"the task's zone has no ID, only the name {name[:60]!r}: set {RACK_VARIABLE} to its ID")
    raise _NoAnswerError("the task has no zone")


def _object(text: str, what: str) -> Mapping[str, object]:
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
        if isinstance(value, dict):
            return value
    raise _NoAnswerError(f"the response is not the description of a {what}")


def _google(environment: Mapping[str, str], _zone: ZoneForm, timeout_s: float) -> str:
    host = environment.get("GCE_METADATA_HOST")
    base = f"http://{host}" if host else METADATA
    # projects/NUMBER/zones/ZONE
    path = _request(f"{base}/computeMetadata/v1/instance/zone", {"Metadata-Flavor": "Google"}, timeout_s)
    return _named(path.rpartition("/")[2])


def _azure(environment: Mapping[str, str], _zone: ZoneForm, timeout_s: float) -> str:
    base = (environment.get("AZURE_POD_IDENTITY_AUTHORITY_HOST") or METADATA).rstrip("/")
    url = f"{base}/metadata/instance/compute?api-version=2021-02-01"
    compute = _object(_request(url, {"Metadata": "true"}, timeout_s), "machine")
    location, number = compute.get("location"), compute.get("zone")
    if location is None or number is None:
        raise _NoAnswerError("the response is not the description of a machine")
    if not number:
        raise _NoAnswerError("this machine is in no zone")
    # As Kubernetes labels its nodes there: zones are numbered within each region.
    return _named(f"{location}-{number}")


def _request(url: str, headers: Mapping[str, str], timeout_s: float, *, method: str = "GET") -> str:
    # Imported here: an HTTP client is more than most consumers need.
    from http.client import HTTPException  # noqa: PLC0415
    from urllib.error import HTTPError  # noqa: PLC0415
    from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener  # noqa: PLC0415

    class NoRedirect(HTTPRedirectHandler):
        def redirect_request(self, *_args: object, **_kwargs: object) -> None:
            return None

    try:
        request = Request(url, headers=dict(headers), method=method)  # noqa: S310 - checked below
        if request.type != "http":
            raise _NoAnswerError(f"{url} is not an http address")
        # A metadata service is never behind a proxy, and must not redirect requests.
        opener = build_opener(ProxyHandler({}), NoRedirect)
        with opener.open(request, timeout=timeout_s) as response:
            body: bytes = response.read(_LONGEST)
            return body.decode().strip()
    except HTTPError as error:
        error.close()
        raise _NoAnswerError(f"{url} responded {error.code}") from None
    except (OSError, HTTPException, ValueError) as error:
        # Errors of sockets (URLError is an OSError), malformed responses, malformed addresses.
        reason = getattr(error, "reason", None) or error
        raise _NoAnswerError(f"{url}: {reason}") from None


SOURCES: Mapping[str, Source] = {
    "environment": _environment,
    "kubernetes": _kubernetes,
    "ecs": _ecs,
    "ec2": _ec2,
    "google": _google,
    "azure": _azure,
}
"""All sources, in order of precedence."""
