"""Builds the jar of the broker plug-in without a JDK: `make broker-plugin`.

The Eclipse compiler is a jar, so it runs on the Java runtime that brokers of `rackassign.testing` run on. The same
sources are the same bytes, on any machine: entries of the jar are sorted and have a fixed time. It sees the library of
that runtime, which may be a later one than Java 17, and the newest Kafka. So tests compile the sources with `javac
--release 17` as well, and run them on the oldest Kafka that is supported.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import zipfile
from io import BytesIO
from pathlib import Path

from rackassign import broker_plugin
from rackassign.errors import RackassignError
from rackassign.testing import find_java, kafka_jars
from rackassign.testing._jars import Jar, fetched

SOURCES = Path(__file__).parents[1] / "broker-plugin" / "src" / "main" / "java"
COMPILER = Jar(
    "org.eclipse.jdt:ecj:3.40.0", 3312549, "05cc22a24e7982970f63a405fc6c820bc80b806f27f3c5a6236fc475f8f7152b"
)
_TIME = (2026, 1, 1, 0, 0, 0)
_MANIFEST = b"Manifest-Version: 1.0\r\nImplementation-Title: rackassign broker plug-in\r\n\r\n"


def build() -> bytes:
    """Return the jar."""
    (compiler,) = fetched([COMPILER])
    class_path = os.pathsep.join(map(str, kafka_jars()))
    with tempfile.TemporaryDirectory() as folder:
        options = ("-source", "17", "-target", "17", "-proc:none", "-g:lines,source", "-warn:none")
        command = [find_java().path, "-jar", compiler, *options, "-cp", class_path, "-d", folder, SOURCES]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"the broker plug-in does not compile:\n{done.stdout}{done.stderr}")
        return _packed(Path(folder))


def _packed(classes: Path) -> bytes:
    entries = {"META-INF/MANIFEST.MF": _MANIFEST}
    entries |= {file.relative_to(classes).as_posix(): file.read_bytes() for file in sorted(classes.rglob("*.class"))}
    packed = BytesIO()
    # Not compressed: versions of zlib compress to other bytes.
    with zipfile.ZipFile(packed, "w") as jar:
        for name, data in entries.items():
            jar.writestr(zipfile.ZipInfo(name, _TIME), data)
    return packed.getvalue()


def main() -> None:
    try:
        data = build()
    except RackassignError as error:
        raise SystemExit(str(error)) from None
    target = broker_plugin.jar_path()
    target.write_bytes(data)
    print(f"{target}: {len(data)} bytes")


if __name__ == "__main__":
    main()
