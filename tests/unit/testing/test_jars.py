"""Kafka's jars, from a repository on loopback."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import http.server
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from jgo.maven import Artifact

from rackassign.errors import ClusterError, MissingExtraError
from rackassign.testing import VERSIONS, Progress, kafka_jars
from rackassign.testing import _jars as jars
from tests.helpers.processes import DEADLINE_S, eventually


class Repository:
    """A Maven repository of three small jars that counts what is asked of it."""

    def __init__(self, root: Path) -> None:
        self.asked: list[str] = []
        self.spoil: set[str] = set()
        lines = []
        for name in ("one", "two", "three"):
            content = name.encode() * 1000
            file = root / "org" / "example" / name / "1.0" / f"{name}-1.0.jar"
            file.parent.mkdir(parents=True)
            file.write_bytes(content)
            lines.append(f"org.example:{name}:1.0 {len(content)} {hashlib.sha256(content).hexdigest()}")
        self.recorded = root / "lock.txt"
        self.recorded.write_text("# what is needed\n" + "\n".join(lines) + "\n", "utf-8")
        outer = self

        class Handler(http.server.SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(Path(self.path).name)
                if Path(self.path).name in outer.spoil:
                    outer.spoil.discard(Path(self.path).name)
                    self.send_response(200)
                    self.send_header("Content-Length", "4")
                    self.end_headers()
                    self.wfile.write(b"oops")
                    return
                super().do_GET()

            def log_message(self, *_: object) -> None:
                return

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(root)))

    def listed(self, version: str) -> str:
        return f"# {version}\n" + self.recorded.read_text("utf-8")

    @contextmanager
    def serving(self) -> Iterator[str]:
        thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{self.server.server_port}/"
        finally:
            self.server.shutdown()
            self.server.server_close()
            thread.join()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    made = Repository(tmp_path / "repository")
    monkeypatch.setattr(jars, "_recorded", made.listed)
    with made.serving() as url:
        monkeypatch.setenv("RACKASSIGN_MAVEN_REPO", url)
        yield made


def test_jars_are_fetched_once_with_progress(repository: Repository, cache: Path) -> None:
    told: list[Progress] = []
    found = kafka_jars(told.append)
    assert sorted(jar.name for jar in found) == ["one-1.0.jar", "three-1.0.jar", "two-1.0.jar"]
    assert all(jar.is_relative_to(cache) for jar in found)
    assert (told[0].done, told[0].total) == (0, 11_000)
    assert (told[-1].done, told[-1].total) == (11_000, 11_000)
    assert [step.done for step in told] == sorted(step.done for step in told)
    repository.asked.clear()
    assert kafka_jars(told.append) == found
    assert repository.asked == []


def test_a_warm_cache_needs_no_jgo(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    found = kafka_jars()
    assert repository.asked
    monkeypatch.setitem(sys.modules, "jgo", None)
    monkeypatch.setitem(sys.modules, "jgo.maven", None)
    assert kafka_jars() == found


def test_missing_jgo_says_what_to_install(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jgo.maven", None)
    with pytest.raises(MissingExtraError, match=r"rackassign\[testing\]"):
        kafka_jars()
    assert repository.asked == []


def test_a_jar_that_is_damaged_on_the_way_is_fetched_again(repository: Repository) -> None:
    repository.spoil = {"two-1.0.jar"}
    found = kafka_jars()
    assert repository.asked.count("two-1.0.jar") == 2
    assert all(jar.stat().st_size > 4 for jar in found)


def test_a_jar_that_a_crash_cut_short_is_fetched_again_and_the_others_are_not(repository: Repository) -> None:
    found = kafka_jars()
    found[1].write_bytes(b"half")
    repository.asked.clear()
    assert kafka_jars() == found
    assert [name for name in repository.asked if name.endswith(".jar")] == [found[1].name]


@pytest.mark.parametrize("content", [b"", b'{"maven/org', b"[1]", b"\xff"])
def test_a_damaged_index_is_written_again_without_a_download(
    content: bytes, repository: Repository, cache: Path
) -> None:
    found = kafka_jars(version="3.9")
    (index,) = (cache / "jars").glob("kafka-3.9.2-*.json")
    kafka_jars(version="3.5")
    (old,) = (cache / "jars").glob("kafka-3.5.2-*.json")
    repository.asked.clear()
    for damaged in (index, old):
        damaged.write_bytes(content)
    os.utime(old, (0, 0))
    assert kafka_jars(version="3.9") == found
    assert json.loads(index.read_bytes())
    assert repository.asked == []


def test_wrong_bytes_are_refused(repository: Repository) -> None:
    text = repository.recorded.read_text("utf-8")
    repository.recorded.write_text(text[:-65] + "0" * 64 + "\n", "utf-8")
    with pytest.raises(ClusterError, match=r"org\.example:three:1\.0 .*is not the recorded one"):
        kafka_jars()


def test_no_network_is_one_clear_line(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RACKASSIGN_MAVEN_REPO", f"http://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(ClusterError, match=r"cannot fetch org\.example:.*is there a network") as caught:
            kafka_jars()
    assert "\n" not in str(caught.value)
    assert repository.asked == []


def test_a_full_disk_is_not_taken_for_a_missing_network(
    repository: Repository, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[str] = []

    def no_space(artifact: Artifact) -> None:
        attempts.append(artifact.artifactId)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Artifact, "resolve", no_space)
    with pytest.raises(ClusterError, match=r"jars: \[Errno 28\] No space left on device$") as caught:
        kafka_jars()
    assert str(cache) in str(caught.value)
    assert len(attempts) == len(set(attempts))
    assert not any(name.endswith(".jar") for name in repository.asked)


def test_a_cache_that_is_no_directory_is_named(repository: Repository, cache: Path) -> None:
    cache.write_text("a file")
    with pytest.raises(ClusterError, match=r"Kafka's jars below .*Not a directory"):
        kafka_jars()
    assert repository.asked == []


def test_two_processes_do_not_fetch_the_same(repository: Repository, cache: Path) -> None:
    told: list[Progress] = []
    root = cache / "jars"
    root.mkdir(parents=True)
    with (root / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        waiting = threading.Thread(target=kafka_jars, args=(told.append,))
        waiting.start()
        assert eventually(lambda: told)
        assert "another process" in str(told[0])
        assert repository.asked == []
    waiting.join(DEADLINE_S)
    assert not waiting.is_alive()
    assert len({name for name in repository.asked if name.endswith(".jar")}) == 3


def test_a_second_version_fetches_only_what_the_first_has_not(repository: Repository) -> None:
    first = kafka_jars(version="3.9")
    repository.asked.clear()
    assert kafka_jars(version="4.4") == first
    assert repository.asked == []


def test_jars_of_a_version_unused_for_long_are_removed_with_the_next_fetch(
    repository: Repository, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = kafka_jars(version="3.9")
    old_index = next((cache / "jars").glob("kafka-3.9.2-*.json"))
    os.utime(old_index, (0, 0))
    without_three = repository.recorded.read_text("utf-8").rpartition("org.example")[0]
    monkeypatch.setattr(jars, "_recorded", lambda _: without_three)
    kept = kafka_jars(version="4.4")
    assert len(kept) == 2
    assert not old_index.exists()
    assert {jar for jar in old if jar.exists()} == set(kept)


def test_a_version_that_is_used_again_after_a_long_time_is_kept(repository: Repository, cache: Path) -> None:
    old = kafka_jars(version="3.9")
    os.utime(next((cache / "jars").glob("kafka-3.9.2-*.json")), (0, 0))
    repository.asked.clear()
    assert kafka_jars(version="3.9") == old
    assert repository.asked == []
    kafka_jars(version="4.4")
    assert all(jar.exists() for jar in old)


def test_a_cache_that_cannot_be_written_to_serves_for_ever(
    repository: Repository, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = kafka_jars(version="3.9")
    os.utime(next((cache / "jars").glob("kafka-3.9.2-*.json")), (0, 0))
    (cache / "jars" / "lock").unlink()
    # Root may write anywhere, so permissions alone would show nothing here.
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(os, "utime", None)
    repository.asked.clear()
    assert kafka_jars(version="3.9") == found
    assert repository.asked == []
    assert not (cache / "jars" / "lock").exists()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_recorded_jar_of_kafka_is_of_the_version_of_its_list(version: str) -> None:
    recorded = jars._parse(jars._recorded(version))
    kafka = [jar.coordinates for jar in recorded if jar.coordinates.startswith("org.apache.kafka:")]
    assert f"org.apache.kafka:kafka_2.13:{version}" in kafka
    assert all(coordinates.endswith(f":{version}") for coordinates in kafka)
    assert all(len(jar.sha256) == 64 and jar.size > 0 for jar in recorded)


def test_every_version_has_a_list_and_every_list_is_of_a_version() -> None:
    lists = {file.stem for file in Path(jars.__file__).with_name("kafka_jars").glob("*.txt")}
    assert lists == set(VERSIONS)
