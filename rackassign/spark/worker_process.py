"""What a worker process of PySpark does before each task, made cheaper.

Spark keeps a worker process for many tasks. Before each of them, PySpark calls `importlib.invalidate_caches()` (seen in
4.0; 4.3 does so only if a path was added). Each finder of an archive then reads the directory of the archive again
(seen in Python 3.11). Spark's own archives have a finder for each of their packages that was imported from, so that a
task costs 0.1 s of CPU before it begins.
"""

from __future__ import annotations

import re
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any
from zipimport import zipimporter

_ARCHIVE_OF_SPARK = re.compile(r"pyspark\.zip|py4j-.*-src\.zip|spark-core_.*\.jar")
"""Names of the archives that Spark puts on the path of a worker (`PythonUtils.sparkPythonPath`)."""


def forget_finders_of_spark(finders: MutableMapping[str, Any] | None = None) -> None:
    """Remove the finders of Spark's own archives from the cache of the import system.

    Python creates a finder again when a module is imported from its archive. That is cheap, since the directory of the
    archive is kept, which is never out of date: the archives do not change while Spark runs. Those of the user may.

    Args:
        finders: The cache; `sys.path_importer_cache` if omitted.
    """
    cache = sys.path_importer_cache if finders is None else finders
    for path, finder in list(cache.items()):
        if isinstance(finder, zipimporter) and _ARCHIVE_OF_SPARK.fullmatch(Path(finder.archive).name):
            # Another thread may have removed it.
            cache.pop(path, None)
