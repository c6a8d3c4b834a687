"""Write the lists of jars of Kafka versions, for a maintainer who adds a version or moves to another patch release.

`python -m tools.update_kafka_jars 4.4.0 3.9.2` resolves the jars of these versions and writes one list for each into
`rackassign/testing/kafka_jars/`; without arguments it writes all lists anew. Look at the differences, and add a
new version to `VERSIONS` in `rackassign/testing/_broker_config.py`.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path

from jgo.maven import MavenContext
from jgo.parse import Coordinate

from rackassign.testing import _broker_config as versions

_LISTS = Path(versions.__file__).with_name("kafka_jars")
_LOG4J_1 = "org.slf4j:slf4j-reload4j:1.7.36"
_LOG4J_2 = "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3!"
"""The mark keeps the versions that log4j manages for its own tests, an old kafka-clients among them, out."""


def main(chosen: list[str]) -> None:
    """Resolve the jars of each version afresh and write its list."""
    with tempfile.TemporaryDirectory() as repository:
        context = MavenContext(repo_cache=Path(repository), local_repos=[])
        for version in chosen or list(versions.VERSIONS):
            lines = sorted(_resolved(context, version))
            head = f"# The jars a Kafka {version} broker runs on: coordinates, bytes, SHA-256.\n"
            head += "# Written by `python -m tools.update_kafka_jars`.\n"
            (_LISTS / f"{version}.txt").write_text(head + "".join(lines), "utf-8")
            sys.stdout.write(f"{version}: {len(lines)} jars, {sum(int(line.split()[1]) for line in lines)} bytes\n")


def _resolved(context: MavenContext, version: str) -> list[str]:
    # Without a binding a broker logs nothing; Kafka 3 also needs the classes of log4j 1.
    binding = _LOG4J_1 if version.startswith("3.") else _LOG4J_2
    wanted = (f"org.apache.kafka:kafka_2.13:{version}", binding)
    dependencies = [context.create_dependency(Coordinate.parse(coordinates)) for coordinates in wanted]
    inputs, transitive = context.resolver.resolve(dependencies)
    lines = []
    for dependency in (*inputs, *transitive):
        artifact = dependency.artifact
        content = artifact.resolve().read_bytes()
        name = f"{artifact.groupId}:{artifact.artifactId}:{artifact.version}"
        lines.append(f"{name} {len(content)} {hashlib.sha256(content).hexdigest()}\n")
    return lines


if __name__ == "__main__":
    main(sys.argv[1:])
