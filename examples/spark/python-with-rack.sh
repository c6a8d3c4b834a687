#!/bin/sh
# The Python of executors, with their rack in its environment. From the folder of this file:
#
#   spark-submit --files python-with-rack.sh --conf spark.pyspark.python=./python-with-rack.sh \
#     --conf spark.pyspark.driver.python=python3 ...
#
# Spark starts it once for each executor and forks workers from it, and on the driver where a query is planned. With
# RACKASSIGN_PYTHON another python3 is used.
python=${RACKASSIGN_PYTHON:-python3}
if [ -z "${RACKASSIGN_RACK:-}" ]; then
  RACKASSIGN_RACK=$("$python" -c 'import rackassign; print(rackassign.detect_rack(network=True) or "")')
  export RACKASSIGN_RACK
fi
exec "$python" "$@"
