"""The jars of Spark's own Kafka source, beyond what comes with pyspark.

Those of 4.0 do not work with Spark 4.3. Those of 4.2 do, and with 4.1; when they were recorded there were none of 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyspark

from rackassign.testing._jars import Jar, fetched

_JARS_4_0 = (
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
_JARS_4_2 = (
    Jar(
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        494_879,
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    ),
    Jar(
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0",
        66_617,
        "641c7947afc8aa1189e433b7c2d305293993c8691bc1c2062d6d4f513b12518c",
    ),
    Jar(
        "org.apache.kafka:kafka-clients:3.9.2",
        9_220_052,
        "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    ),
    Jar(
        "org.apache.commons:commons-pool2:2.13.1",
        156_457,
        "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
    ),
)
_JARS: Mapping[str, tuple[Jar, ...]] = {"4.0": _JARS_4_0, "4.1": _JARS_4_2, "4.2": _JARS_4_2, "4.3": _JARS_4_2}
"""By version of Spark, without the patch."""


def connector_jars() -> list[Path]:
    """Return them, for `spark.jars`; fetched where they are missing, as Kafka's are, and checked like them."""
    return list(fetched(_JARS[_spark()]))


def check_spark() -> None:
    """Fail where the connector would, only later and in a worker."""
    assert _spark() in _JARS, (
        f"this needs Spark's own Kafka source, which is recorded for Spark {', '.join(_JARS)} and not for "
        f"{pyspark.__version__}: make spark-faults"
    )


def _spark() -> str:
    return ".".join(pyspark.__version__.split(".")[:2])
