# conf/spark-env.sh of each worker of a stand-alone Spark: executors inherit the environment of their worker.
# python3 must have rackassign. The variable that is set already, such as by the image of the machine, wins.
if [ -z "${RACKASSIGN_RACK:-}" ]; then
  RACKASSIGN_RACK=$("${PYSPARK_PYTHON:-python3}" -c 'import rackassign; print(rackassign.detect_rack(network=True) or "")')
fi
export RACKASSIGN_RACK
