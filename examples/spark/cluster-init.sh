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
set -eu
wheel=${1:-$(/usr/share/google/get_metadata_value attributes/rackassign-wheel 2> /dev/null || true)}
: "${wheel:?"pass the address of rackassign's wheel"}"
folder=$(mktemp -d)
case $wheel in
  s3://*) aws s3 cp "$wheel" "$folder/" ;;
  gs://*) gcloud storage cp "$wheel" "$folder/" ;;
  *) cp "$wheel" "$folder/" ;;
esac
sudo python3 -m pip install --quiet "$folder/$(basename "$wheel")[spark-platform]"
