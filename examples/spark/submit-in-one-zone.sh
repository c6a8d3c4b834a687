#!/bin/sh
# spark-submit for clusters whose nodes are all in one zone: EMR on EC2, and Dataproc. Run it on a node of the cluster:
#
#   submit-in-one-zone.sh --deploy-mode cluster job.py
#
# In one zone there is no choice of executors: rackBinding=executor and kafka_options() read from a replica in that zone.
set -eu
rack=${RACKASSIGN_RACK:-$("${PYSPARK_PYTHON:-python3}" -c 'import rackassign; print(rackassign.detect_rack(network=True) or "")')}
if [ -z "$rack" ]; then
  echo "submit-in-one-zone.sh: the zone of this machine is not known: set RACKASSIGN_RACK" >&2
  exit 1
fi
exec spark-submit --conf "spark.executorEnv.RACKASSIGN_RACK=$rack" --conf "spark.yarn.appMasterEnv.RACKASSIGN_RACK=$rack" "$@"
