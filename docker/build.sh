#!/usr/bin/env bash
# Builds rackassign/kafka:4.4.0 from Debian packages and the very jars of LocalCluster, without a container registry.
# Does nothing where an image of the same inputs exists. Needs docker, mmdebstrap, a JDK 17 or newer with jlink, and a
# Python with rackassign[testing]: $PYTHON, else that of .venv, else python3.
set -euo pipefail
cd "$(dirname "$0")/.."

image=rackassign/kafka:4.4.0
suite=bookworm
packages=base-files,bash,coreutils,libstdc++6,zlib1g
modules=java.base,java.desktop,java.logging,java.management,java.naming,java.rmi,java.scripting,java.security.jgss
modules+=,java.security.sasl,java.sql,java.xml,jdk.crypto.ec,jdk.management,jdk.management.agent,jdk.security.auth
modules+=,jdk.unsupported,jdk.zipfs

# shellcheck source=docker/rootfs.sh
source docker/rootfs.sh
need docker/build.sh docker mmdebstrap jlink "$python"

jdk=$(jlink --version)
digest=$({ echo "$jdk"; cat docker/build.sh docker/rootfs.sh rackassign/testing/kafka_jars/${image#*:}.txt rackassign/broker_plugin/*.jar docker/image/*; } | digest_of)
if [[ $(docker image inspect -f '{{index .Config.Labels "rackassign.digest"}}' "$image" 2> /dev/null) == "$digest" ]]
then
  echo "$image is up to date"
  exit 0
fi

cache=$("$python" -c 'from rackassign.testing import cache_dir; print(cache_dir() / "image")')
mkdir -p "$cache"
work=$(mktemp -d "$cache/work.XXXXXX")
trap 'rm -rf "$work"' EXIT

# Every part is named by what it is made of, and moved to its name when complete.
rootfs=$(debian_rootfs "$suite" "$packages" "$cache" "$work")

jre=$cache/jre-$(echo "$jdk $modules" | digest_of)
if [[ ! -e $jre ]]; then
  echo "Linking a Java runtime"
  jlink --add-modules "$modules" --strip-java-debug-attributes --no-header-files --no-man-pages --output "$work/jre"
  # The archive that those of the image build upon.
  "$work/jre/bin/java" -Xshare:dump > "$work/dump.log" 2>&1 || { cat "$work/dump.log" >&2; exit 1; }
  mv -T "$work/jre" "$jre"
fi

echo "Building $image"
context=$work/context
mkdir -p "$context/libs"
cp docker/image/* "$context"
cp "$rootfs" "$context/rootfs.tar"
cp -r "$jre" "$context/jre"
"$python" -c 'from rackassign.testing import kafka_jars; print(*kafka_jars(), sep="\n")' > "$work/jars"
while read -r jar; do cp "$jar" "$context/libs"; done < "$work/jars"
# The assignor for groups of KIP-848, which brokers load if group.consumer.assignors names it.
cp rackassign/broker_plugin/*.jar "$context/libs"
docker build --quiet --force-rm --network none --label "rackassign.digest=$digest" --tag "$image" "$context"

# What the tag named before is of no more use, and large.
docker image prune --force --filter label=rackassign.digest > /dev/null
