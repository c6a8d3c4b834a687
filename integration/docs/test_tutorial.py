"""The tutorial, step by step, as a user runs it in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from rackassign.testing import LocalCluster
from tests.helpers.machine_speed import scaled_ms, scaled_s

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.docs]

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"
TIMEOUT_S = 600.0
FIRST_PORT = "9092"
_SHELL = "/bin/bash"
_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_SHARE = re.compile(r"^([abc]): (\d+)% of the bytes were local$", re.MULTILINE)


class Block(NamedTuple):
    """A block of code of a page.

    Args:
        language: What is written behind the fence.
        title: Name of the file that it is; empty if it is none.
        text: Its lines.
    """

    language: str
    title: str
    text: str

    @property
    def commands(self) -> list[str]:
        """The commands of a console."""
        return [line.removeprefix("$ ") for line in self.text.splitlines() if line.startswith("$ ")]

    @property
    def output(self) -> list[str]:
        """What a console shows of them."""
        return [line for line in self.text.splitlines() if not line.startswith("$ ")]


def blocks() -> list[Block]:
    return [Block(*found) for found in _BLOCK.findall(TUTORIAL.read_text("utf-8"))]


class Reader:
    """A user in a folder.

    Args:
        folder: Where everything is run.
        port: Port of the first broker, in place of that of the page.
        name: Name of the cluster, beside those of others.
    """

    def __init__(self, folder: Path, port: int, name: str) -> None:
        self._folder = folder
        self._port = port
        self._name = name
        programs = Path(sys.executable).parent
        self._environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}

    def _adapted(self, text: str) -> str:
        """Return commands or a program for this cluster and for the speed of this machine."""
        text = text.replace(f":{FIRST_PORT}", f":{self._port}")
        text = re.sub(r"\bsleep (\d+)", lambda found: f"sleep {scaled_s(float(found[1])):.0f}", text)
        text = re.sub(r"=15_000\b", f"={scaled_ms(15_000)}", text)
        text = text.replace("cluster up", f"cluster up --port {self._port} --name {self._name}")
        return text.replace("cluster down", f"cluster down --name {self._name}")

    def write(self, block: Block) -> None:
        (self._folder / block.title).write_text(self._adapted(block.text), "utf-8")

    def run(self, command: str) -> str:
        """Run a command; return its output."""
        done = subprocess.run(
            [_SHELL, "-c", self._adapted(command)],
            capture_output=True,
            check=False,
            cwd=self._folder,
            env=self._environment,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def started(self, command: str) -> Iterator[subprocess.Popen[str]]:
        """Run a command as in another terminal, and wait until it has shown something."""
        words = [_SHELL, "-c", f"exec {self._adapted(command)}"]
        with subprocess.Popen(
            words, stdout=subprocess.PIPE, cwd=self._folder, env=self._environment, text=True
        ) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline()
                yield process
            finally:
                process.terminate()


def test_each_step_does_what_it_promises(
    rack_cluster_session: LocalCluster, first_port: int, unique_name: Callable[[], str], tmp_path: Path
) -> None:
    del rack_cluster_session  # it has seen to the jars, or skipped
    user = Reader(tmp_path, first_port, unique_name().replace("-", "_"))
    install, up, *steps, down = blocks()
    assert [install.language, up.language, down.language] == ["console"] * 3
    assert "pip install" in install.text
    shares: list[list[int]] = []
    with user.started(up.commands[0]) as cluster:
        for block in steps:
            if block.language == "python":
                user.write(block)
                continue
            shown = user.run("\n".join(block.commands))
            found = _SHARE.findall(shown)
            assert sorted(zone for zone, _ in found) == ["a", "b", "c"], shown
            shares.append([int(share) for _, share in found])
            if block.output:
                # A page that promises other lines is wrong.
                assert [zone for zone, _ in _SHARE.findall(block.text)] == ["a", "b", "c"]
            else:
                assert "100.0 %" in shown
        user.run(down.commands[0])
        assert cluster.wait(TIMEOUT_S) == 0
    first, second, _ = shares
    assert sum(first) < 90 * 3
    # The rest are metadata, and what was read before a follower was known.
    assert min(second) >= 95
