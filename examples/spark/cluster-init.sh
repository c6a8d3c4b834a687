#!/bin/bash
# A bootstrap action of EMR on EC2, and an initialization action of Dataproc: it installs rackassign on each node, beside
# the PySpark of the platform. Its argument is the address of the wheel that `pip wheel --no-deps .` builds in a clone,
# since rackassign is not on a package index yet:
#
#   aws emr create-cluster --bootstrap-actions Path=s3://BUCKET/cluster-init.sh,Args=[s3://BUCKET/WHEEL] ...
#   gcloud dataproc clusters create --initialization-actions gs://BUCKET/cluster-init.sh ...
#
# Actions of Dataproc have no arguments: there the metadata attribute `rackassign-wheel` has the address
# (--metadata rackassign-wheel=gs://BUCKET/WHEEL). Nodes of such clusters are in one zone: see submit-in-one-zone.sh.
#
# A second argument, or the attribute `rackassign-python`, is the Python that PYSPARK_PYTHON names, if that is not python3.
set -eu
wheel=${1:-$(/usr/share/google/get_metadata_value attributes/rackassign-wheel 2> /dev/null || true)}
: "${wheel:?"pass the address of rackassign's wheel"}"
python=${2:-$(/usr/share/google/get_metadata_value attributes/rackassign-python 2> /dev/null || echo python3)}
python=$(command -v "$python" || echo "$python")
"$python" -c 'import sys; sys.version_info >= (3, 10) or sys.exit(
    "cluster-init.sh: %s is Python %d.%d, and rackassign needs 3.10 or newer: install one, name it in the second argument "
    "or the attribute rackassign-python, and in PYSPARK_PYTHON" % (sys.argv[1], *sys.version_info[:2]))' "$python"
folder=$(mktemp -d)
case $wheel in
  s3://*) aws s3 cp "$wheel" "$folder/" ;;
  gs://*) gcloud storage cp "$wheel" "$folder/" ;;
  *) cp "$wheel" "$folder/" ;;
esac
sudo "$python" -m pip install --quiet "$folder/$(basename "$wheel")[spark-platform]"
