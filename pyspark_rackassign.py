"""Where Spark finds `format("rackassign")` by itself: it looks for `DefaultSource` in modules called `pyspark_*`."""

from rackassign.spark._datasource import RackassignDataSource as DefaultSource  # noqa: F401
