#!/usr/bin/env bash
# docker/app/build.sh [--offline] [IMAGE]
#
# Builds an image with this checkout of rackassign and its examples (default: rackassign-app:latest), based on
# $BASE (default: python:3.13-slim). With --offline no container registry is needed: it is based on Debian's packages,
# and wheels are fetched by the Python of this machine, which must be of Debian's version. Then mmdebstrap is needed too.
set -euo pipefail
cd "$(dirname "$0")/../.."

suite=bookworm
packages=base-files,bash,coreutils,dash,libstdc++6,python3,python3-venv,python3-pip-whl,python3-setuptools-whl
version=3.11

offline=
if [[ ${1:-} == --offline ]]; then offline=yes; shift; fi
image=${1:-rackassign-app:latest}

# shellcheck source=docker/rootfs.sh
source docker/rootfs.sh
need docker/app/build.sh docker "$python" ${offline:+mmdebstrap}
found=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
if [[ $offline && $found != "$version" ]]; then
  echo "docker/app/build.sh --offline needs Python $version, that of Debian $suite; PYTHON=$python is $found" >&2
  exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

context=$work/context
mkdir -p "$context/wheels"
cp docker/app/Dockerfile "$context"
tar --exclude=__pycache__ -c examples | tar -x -C "$context"
wheel=("$python" -m pip --disable-pip-version-check --quiet wheel --wheel-dir "$context/wheels")
build=$(basename "$work")
options=(--build-arg "BUILD=$build")
if [[ -z $offline ]]; then
  "${wheel[@]}" --no-deps .
else
  "${wheel[@]}" '.[cli,prometheus]'
  cache=$("$python" -c 'from rackassign.testing import cache_dir; print(cache_dir() / "image")')
  mkdir -p "$cache"
  rootfs=$(debian_rootfs "$suite" "$packages" "$cache" "$work")
  BASE=rackassign/debian-python:$(basename "$rootfs" .tar | cut -d - -f 2)
  docker image inspect "$BASE" > /dev/null 2>&1 || docker import "$rootfs" "$BASE" > /dev/null
  options+=(--network none --build-arg PIP_NO_INDEX=1)
fi
if [[ -n ${BASE:-} ]]; then options+=(--build-arg "BASE=$BASE"); fi

echo "Building $image"
docker build --quiet --force-rm "${options[@]}" --tag "$image" "$context"

# The first stage contains the wheels too, and is of no more use. That of this build alone: others may be running.
docker image ls --quiet --filter dangling=true --filter "label=rackassign.build=$build" \
  | xargs --no-run-if-empty docker image rm > /dev/null
