"""How many tasks of an application can run at the same time, once its executors have registered.

A stand-alone cluster, and others, start an application before its first executor has registered
(`spark.scheduler.minRegisteredResourcesRatio` is 0 there). At that moment there are no slots, or those of one executor.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STARTING_S = 30.0
"""Age of an application from which on its executors are not waited for: Spark itself waits as long at most."""

_SETTLED_S = 2.0
"""Seconds without another executor after which those are all."""

_POLL_INTERVAL_S = 0.1


def total_slots(spark: SparkSession) -> int | None:
    """Return how many tasks can run at the same time, as the scheduler counts them for barriers; None if unknown."""
    try:
        # Not public, but the number that Spark itself compares. Without this check, too few slots cost minutes.
        context: Any = spark.sparkContext._jsc.sc()  # noqa: SLF001
        return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))
    except Exception:  # noqa: BLE001 - Spark Connect has no context, another Spark no such method; the errors differ
        return None


def await_executors(
    spark: SparkSession,
    slots: Callable[[SparkSession], int | None] = total_slots,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until the executors of an application that has just started have registered.

    It returns at once if the application is older than half a minute, runs in one process, or does not report its
    slots.

    Args:
        spark: A session.
        slots: Returns the number of slots.
        sleep: Waits for some seconds.
    """
    waited, count = 0.0, slots(spark)
    while count is not None and (count == 0 or waited < _SETTLED_S) and _is_starting(spark):
        sleep(_POLL_INTERVAL_S)
        waited += _POLL_INTERVAL_S
        found = slots(spark)
        if found != count:
            count, waited = found, 0.0


def _is_starting(spark: SparkSession) -> bool:
    try:
        context = spark.sparkContext
        master = context.master or ""
        one_process = master.startswith("local") and not master.startswith("local-cluster")
        return not one_process and time.time() - context.startTime / 1000 < _STARTING_S
    except Exception:  # noqa: BLE001 - Spark Connect has no context, and raises an error of its own
        return False
