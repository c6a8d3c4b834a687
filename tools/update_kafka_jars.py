"""Write `kafka_jars.txt` anew, for a maintainer who moves to another version of Kafka.

Run `python -m tools.update_kafka_jars`, look at the differences, and put its output in place of the file.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path

from jgo.maven import MavenContext
from jgo.parse import Coordinate

from rackassign.testing.local.jars import KAFKA_VERSION

_WANTED = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    # Without a binding a broker logs nothing. The mark keeps the versions that log4j manages for its own tests, an
    # old kafka-clients among them, out of the resolution.
    "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3!",
)


def main() -> None:
    """Resolve the jars afresh and print the list."""
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as repository:
        context = MavenContext(repo_cache=Path(repository), local_repos=[])
        wanted = [context.create_dependency(Coordinate.parse(coordinates)) for coordinates in _WANTED]
        inputs, transitive = context.resolver.resolve(wanted)
        for dependency in (*inputs, *transitive):
            artifact = dependency.artifact
            content = artifact.resolve().read_bytes()
            name = f"{artifact.groupId}:{artifact.artifactId}:{artifact.version}"
            lines.append(f"{name} {len(content)} {hashlib.sha256(content).hexdigest()}\n")
    sys.stdout.write(f"# The jars a Kafka {KAFKA_VERSION} broker runs on: coordinates, bytes, SHA-256.\n")
    sys.stdout.write("# Written by `python -m tools.update_kafka_jars`.\n")
    sys.stdout.writelines(sorted(lines))


if __name__ == "__main__":
    main()
