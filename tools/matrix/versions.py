"""The versions that the matrix runs, oldest first; `make matrix MATRIX=--newer` lists later ones.

Each client has the oldest version that pyproject.toml admits, and the newest patch release of each later minor version.
Of kafka-python each release is listed: the patches use private names, which a patch release may change.
"""

from __future__ import annotations

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")

CLIENTS: dict[str, tuple[str, ...]] = {
    "kafka-python": ("3.0.9", "3.0.10", "3.0.11", "3.0.12"),
    "aiokafka": ("0.12.0", "0.13.0", "0.14.0"),
    "confluent-kafka": ("2.8.0", "2.9.0", "2.10.1", "2.11.1", "2.12.2", "2.13.2", "2.14.2", "2.15.1", "2.16.1"),
    "pyspark": ("4.0.0", "4.1.4", "4.2.1", "4.3.0"),
}

BELOW = {"kafka-python": "4", "aiokafka": "0.15", "confluent-kafka": "3", "pyspark": "5"}
"""The first version of each client that pyproject.toml excludes."""

PYTHON_OF_CLIENTS = "3.12"
"""The Python with which the versions between the oldest and the newest of a client run."""

UNSUPPORTED: dict[tuple[str, str], str] = {}
"""Environment and suite that cannot work, with the reason: shown as "no" and not run."""
