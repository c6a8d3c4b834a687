"""A real Prometheus, and its tool for rules."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from rackassign.testing._machine import reserve_ports
from rackassign.testing.harness import wait_until
from tests.helpers.http_get import fetched


def program(name: str) -> str:
    """Return the path of a program of Prometheus; skip without it, which is a failure in CI."""
    found = shutil.which(name)
    if found is None:
        message = f"{name} is not installed (Debian package prometheus)"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(message)
        pytest.skip(message)
    return found


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A server that runs."""

    base: str
    log: Path

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an expression, as of now."""
        status, text = fetched(f"{self.base}/api/v1/query?{urlencode({'query': expression})}")
        assert status == 200, f"{expression}: {text}"
        found = json.loads(text)
        series: list[dict[str, Any]] = found["data"]["result"]
        return series

    def is_ready(self) -> bool:
        """Return whether it answers."""
        try:
            return fetched(f"{self.base}/-/ready")[0] == 200
        except OSError:
            return False


@contextmanager
def prometheus(config: Path) -> Iterator[Prometheus]:
    """Run a server while the block runs."""
    log = config.with_name("prometheus.log")
    with ExitStack() as opened:
        ports = opened.enter_context(closing(reserve_ports(1)))
        address = f"127.0.0.1:{ports.numbers[0]}"
        words = [
            f"--config.file={config}",
            f"--storage.tsdb.path={config.parent / 'data'}",
            f"--web.listen-address={address}",
        ]
        out = opened.enter_context(log.open("wb"))
        process = opened.enter_context(subprocess.Popen([program("prometheus"), *words], stdout=out, stderr=out))
        try:
            server = Prometheus(f"http://{address}", log)
            wait_until(lambda: process.poll() is not None or server.is_ready(), "a Prometheus that is ready")
            assert process.poll() is None, log.read_text("utf-8")[-3000:]
            yield server
        finally:
            process.terminate()
