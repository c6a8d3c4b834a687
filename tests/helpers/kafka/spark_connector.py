"""The jars of Spark's own Kafka source, beyond what comes with pyspark; it works with Spark 4.0 and not with 4.1 on."""

from __future__ import annotations

from pathlib import Path

import pyspark

from rackassign.testing.local.jars import Jar, fetched

_JARS = (
    Jar(
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
        467_590,
        "33a3b8b04df4a2e43c9d5bf8ca5972936a1ac662f2714e014d00ef6f27468bf3",
    ),
    Jar(
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        64_975,
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    ),
    Jar(
        "org.apache.kafka:kafka-clients:3.9.0",
        9_204_801,
        "15c1e137f2c2c94398e27abc4060a03b6bde10bf9fac15e8f70c02320b202f18",
    ),
    Jar(
        "org.apache.commons:commons-pool2:2.12.0",
        150_048,
        "6d3bd18df8410f3e31b031aca582cc109342358a62a2759ebd0c4cdf30d06f8b",
    ),
)


def connector_jars() -> list[Path]:
    """Return them, for `spark.jars`; fetched where they are missing, as Kafka's are, and checked like them."""
    return list(fetched(_JARS))


def check_spark() -> None:
    """Fail where the connector would, only later and in a worker."""
    assert pyspark.__version__.startswith("4.0."), (
        f"this needs Spark's own Kafka source, which works with Spark 4.0 and not with {pyspark.__version__}: "
        "make spark-faults"
    )
