"""The image of `docker/app`, and containers of it with the settings of a manifest."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
IMAGE = f"rackassign-app:test-{os.getpid()}"
"""Each worker of a test run has its own, and removes it."""
_PYTHON = (3, 11)
_TIMEOUT_S = 600.0


def build() -> None:
    """Build the image without a container registry; skip if that is not possible, which is a failure in CI."""
    missing = [name for name in ("docker", "mmdebstrap") if shutil.which(name) is None]
    missing += [] if sys.version_info[:2] == _PYTHON else ["Python 3.11, whose wheels fit Debian's"]
    if missing:
        message = f"the image cannot be built without {', '.join(missing)}"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(message)
        pytest.skip(message)
    built = subprocess.run(
        [ROOT / "docker/app/build.sh", "--offline", IMAGE],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert built.returncode == 0, built.stderr


def remove() -> None:
    """Remove the image; its base remains for the next build."""
    _docker("image", "rm", IMAGE)


def container_of(manifest: str) -> Mapping[str, Any]:
    """Return the container of the only Deployment or StatefulSet in a manifest."""
    documents = yaml.safe_load_all((ROOT / "examples/kubernetes" / manifest).read_text("utf-8"))
    (found,) = (each for each in documents if each["kind"] in {"Deployment", "StatefulSet"})
    (container,) = found["spec"]["template"]["spec"]["containers"]
    settings: Mapping[str, Any] = container
    return settings


class Container:
    """A container that runs."""

    def __init__(self, name: str) -> None:
        self.name = name

    def output(self) -> str:
        """Return all it has written."""
        return _docker("logs", self.name)

    def stop(self) -> int:
        """Send SIGTERM, as Kubernetes does, and return the exit code; 137 if it had to be killed."""
        _docker("stop", "--time", "300", self.name)
        return int(_docker("inspect", "--format", "{{.State.ExitCode}}", self.name))


@contextmanager
def started(
    name: str, manifest: str, environment: Mapping[str, str], options: Sequence[str] = (), *, extra: Sequence[str] = ()
) -> Iterator[Container]:
    """Run the container of a manifest as Kubernetes would, on this machine's loopback."""
    settings = container_of(manifest)
    security = settings["securityContext"]
    assert (security["readOnlyRootFilesystem"], security["allowPrivilegeEscalation"]) == (True, False)
    assert security["capabilities"] == {"drop": ["ALL"]}
    fixed = {each["name"]: each["value"] for each in settings.get("env", ()) if "value" in each}
    variables = [part for item in {**fixed, **environment}.items() for part in ("--env", "=".join(item))]
    confined = ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", "1000:1000"]
    words = ["run", "--detach", "--network", "host", "--name", name, *confined, *variables, *options]
    _docker(*words, IMAGE, *settings["args"], *extra)
    try:
        yield Container(name)
    finally:
        _docker("rm", "--force", name)


def _docker(*words: str) -> str:
    """Run a command and return what it writes; what a program in a container has written to stderr is at the end."""
    command = [shutil.which("docker") or "docker", *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    assert ended.returncode == 0, f"docker {' '.join(words)}: {ended.stderr}"
    return ended.stdout + (ended.stderr if words[0] == "logs" else "")
