"""Jars of Kafka: fetched once, checked against recorded hashes, and used without network access afterwards.

The list of jars of each version is recorded in `kafka_jars/` and not resolved on the user's machine. That saves reading
eighty project files, and only the exact bytes that were tested can be on a class path.

The cache contains the versions that were used, and a jar of several versions once. Jars of a version that was not used
for a long time are removed when another version is fetched.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from rackassign.errors import ClusterError, MissingExtraError
from rackassign.testing._broker_config import resolve_version
from rackassign.testing._machine import cache_dir
from rackassign.util.callbacks import Progress, ProgressCallback, ignore_progress
from rackassign.util.files import lock, try_lock

if TYPE_CHECKING:
    from jgo.maven import MavenContext


_LISTS = "kafka_jars"
_THREADS = 6
_HTTP_TIMEOUT_S = 30
_MAX_ATTEMPTS = 3
_UNWRITABLE = frozenset({errno.EACCES, errno.EDQUOT, errno.ENOSPC, errno.EPERM, errno.EROFS})
"""Errors of the cache, for which the network is no reason and another attempt no help."""

_UNUSED_S = 90 * 24 * 3600.0
"""After this time without use, the jars of a version are removed."""


@dataclass(frozen=True, slots=True)
class Jar:
    """A recorded jar: its Maven coordinates (`group:artifact:version`), its bytes, and its SHA-256 in hexadecimal."""

    coordinates: str
    size: int
    sha256: str


def kafka_jars(progress: ProgressCallback | None = None, *, version: str | None = None) -> tuple[Path, ...]:
    """Return the jars of Kafka's broker and clients, after fetching those that are missing.

    If the jars are in the cache, the function accesses no network and reads only a small index. Processes that fetch at
    the same time wait for each other.

    The jars come from the central Maven repository, or from the mirror in the environment variable
    `RACKASSIGN_MAVEN_REPO`. The hashes are checked in both cases.

    Args:
        progress: Callback for progress reports of the download, with the fetched and the total bytes.
        version: A version as "3.9.2", or as "3.9" for its last patch release; None for the default.

    Raises:
        ConfigError: There is no such version.
        ClusterError: The jars cannot be fetched; the message has the reason in one line.
        MissingExtraError: Jars are missing from the cache, and jgo is not installed.
    """
    on_progress = progress or ignore_progress
    chosen = resolve_version(version)
    recorded = _recorded(chosen)
    root = cache_dir() / "jars"
    index = root / f"kafka-{chosen}-{hashlib.sha256(recorded.encode()).hexdigest()[:12]}.json"
    try:
        if not _is_unused(index, _UNUSED_S / 2):
            paths = _read_index(index)
            if paths:
                return paths
        root.mkdir(parents=True, exist_ok=True)
        with _lock(root / "lock", on_progress):
            # Another process may have fetched everything while this one waited.
            paths = _read_index(index)
            if paths:
                return paths
            _remove_unused(root)
            jars = _fetch(root / "maven", chosen, _parse(recorded), on_progress)
            _write_index(index, jars)
    except OSError as error:
        raise ClusterError(f"cannot read or write Kafka's jars below {root}: {error}") from error
    return jars


def fetched(jars: Sequence[Jar], progress: ProgressCallback | None = None) -> tuple[Path, ...]:
    """Return other jars, after fetching and checking those that are missing."""
    root = cache_dir() / "jars"
    root.mkdir(parents=True, exist_ok=True)
    on_progress = progress or ignore_progress
    with _lock(root / "lock", on_progress):
        return _fetch(root / "maven", "", list(jars), on_progress)


def _recorded(version: str) -> str:
    return resources.files("rackassign.testing").joinpath(f"{_LISTS}/{version}.txt").read_text("utf-8")


def _parse(recorded: str) -> list[Jar]:
    lines = (line.split() for line in recorded.splitlines() if line and not line.startswith("#"))
    return [Jar(coordinates, int(size), sha256) for coordinates, size, sha256 in lines]


def _read_index(index: Path) -> tuple[Path, ...]:
    """Return the jars of an index; empty if there is no valid one, or if a jar has another size than in the index."""
    try:
        listed = _listed(index)
        # From a cache that cannot be written to, nothing is removed either.
        if os.access(index, os.W_OK):
            os.utime(index)
        if all((index.parent / name).stat().st_size == size for name, size in listed.items()):
            return tuple(index.parent / name for name in listed)
    except FileNotFoundError:
        pass
    return ()


def _listed(index: Path) -> dict[str, int]:
    """Return the sizes of the jars of an index by name; empty if it is damaged, as by a machine that lost power."""
    # Jars of a damaged index are checked by their hashes, as those without an index are.
    try:
        listed = json.loads(index.read_text("utf-8"))
    except ValueError:
        return {}
    return listed if isinstance(listed, dict) else {}


def _is_unused(index: Path, seconds: float) -> bool:
    """Return whether nothing has read an index for a time; False if there is none, or if it cannot be written to."""
    try:
        return time.time() - index.stat().st_mtime > seconds and os.access(index, os.W_OK)
    except FileNotFoundError:
        return False


def _remove_unused(root: Path) -> None:
    """Remove the jars of versions that were not used for a long time; the caller holds the lock."""
    # A process without the lock reads only an index that was used more recently, so it never gets a removed jar.
    indexes = set(root.glob("kafka-*.json"))
    unused = {index for index in indexes if _is_unused(index, _UNUSED_S)}
    kept = {name for index in indexes - unused for name in _listed(index)}
    for index in unused:
        removed = set(_listed(index)) - kept
        index.unlink()
        for name in removed:
            (root / name).unlink(missing_ok=True)


def _write_index(index: Path, jars: tuple[Path, ...]) -> None:
    listed = {str(jar.relative_to(index.parent)): jar.stat().st_size for jar in jars}
    unfinished = index.with_suffix(".part")
    unfinished.write_text(json.dumps(listed, indent=1), "utf-8")
    unfinished.replace(index)


@contextmanager
def _lock(path: Path, on_progress: ProgressCallback) -> Iterator[None]:
    with path.open("w") as held:
        if not try_lock(held):
            on_progress(Progress("Waiting for another process that is fetching Kafka"))
            lock(held)
        yield


class _Meter:
    """Progress meter for several fetching threads, as a callback of jgo."""

    def __init__(self, step: str, total: int, on_progress: ProgressCallback) -> None:
        self._step = step
        self._total = total
        self._done = 0
        self._on_progress = on_progress
        self._mutex = threading.Lock()

    def add(self, count: int) -> None:
        with self._mutex:
            # A retry counts bytes again; progress above the total would look wrong.
            self._done = min(self._done + count, self._total)
            self._on_progress(Progress(self._step, self._done, self._total))

    @contextmanager
    def file(self, _name: str, _size: int) -> Iterator[Callable[[int], None]]:
        yield self.add


def _fetch(repository: Path, version: str, jars: list[Jar], on_progress: ProgressCallback) -> tuple[Path, ...]:
    meter = _Meter(
        f"Fetching {f'Kafka {version}' if version else 'jars'} ({len(jars)} jars) into {cache_dir()}",
        sum(jar.size for jar in jars),
        on_progress,
    )
    meter.add(0)
    context = _maven(repository, meter)
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="rackassign-jars") as pool:
        tasks = [pool.submit(partial(_fetch_one, context, jar, meter)) for jar in jars]
        try:
            wait(tasks, return_when=FIRST_EXCEPTION)
        finally:
            # After a failure or Ctrl-C, pending downloads do not start.
            pool.shutdown(wait=True, cancel_futures=True)
    failed = [error for task in tasks if not task.cancelled() and (error := task.exception())]
    if failed:
        raise failed[0]
    return tuple(task.result() for task in tasks)


def _maven(repository: Path, meter: _Meter) -> MavenContext:
    try:
        from jgo.maven import MavenContext, PythonResolver  # noqa: PLC0415 - not needed if all jars are cached
    except ImportError as error:
        raise MissingExtraError("jgo", "testing") from error
    mirror = os.environ.get("RACKASSIGN_MAVEN_REPO")
    return MavenContext(
        resolver=PythonResolver(progress_callback=meter.file),
        repo_cache=repository,
        local_repos=[],
        # Any mirror is acceptable: files are checked against the recorded hashes.
        remote_repos={"mirror": mirror.rstrip("/")} if mirror else None,
        timeout=_HTTP_TIMEOUT_S,
    )


def _fetch_one(context: MavenContext, jar: Jar, meter: _Meter) -> Path:
    artifact = context.create_dependency(jar.coordinates).artifact
    target = artifact.cached_path
    if target is None:  # pragma: no cover - jgo has none only without a repo_cache
        raise ClusterError(f"cannot fetch {jar.coordinates}: the cache has no path for it")
    if target.exists() and _sha256(target) == jar.sha256:
        meter.add(jar.size)
        return target
    problem = ""
    for _ in range(_MAX_ATTEMPTS):
        # An existing file is an incomplete download, which jgo would treat as complete.
        target.unlink(missing_ok=True)
        try:
            artifact.resolve()
        except (OSError, RuntimeError) as error:
            if getattr(error, "errno", None) in _UNWRITABLE:
                raise
            problem = " ".join(str(error).split())[:300]
            continue
        if _sha256(target) == jar.sha256:
            return target
        problem = "the SHA-256 of the received file is not the recorded one"
    target.unlink(missing_ok=True)
    raise ClusterError(f"cannot fetch {jar.coordinates} in {_MAX_ATTEMPTS} tries (is there a network?): {problem}")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
