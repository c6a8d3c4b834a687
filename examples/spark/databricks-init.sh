#!/bin/bash
# A cluster-scoped init script of Databricks: it runs on each node before Spark starts. The library rackassign must be
# installed before, as here; DATABRICKS_ROOT is empty there and a folder in tests.
#
# rackassign is not on a package index yet. WHEEL, an environment variable of the cluster, is the path of the wheel that
# `pip wheel --no-deps .` builds in a clone, on a volume that each node can read (/Volumes/..).
set -eu
wheel=${WHEEL:?"set it to the path of rackassign's wheel"}
root=${DATABRICKS_ROOT:-}
python=$root/databricks/python/bin/python
"$python" -m pip install --quiet "${wheel}[spark-platform]"
rack=$("$python" -c 'import rackassign; print(rackassign.detect_rack(network=True) or "")')
if [ -n "$rack" ]; then
  echo "export RACKASSIGN_RACK=$rack" >> "$root/databricks/spark/conf/spark-env.sh"
else
  # A cluster without racks reads from leaders, as before: no reason not to start.
  echo "databricks-init.sh: the zone of this machine is not known" >&2
fi
