# shellcheck shell=bash
# Sourced by the build scripts, in the root of the project: the Python to use, what is needed, and the files of Debian
# packages as an archive, with which an image begins.

python=${PYTHON:-}
if [[ -z $python && -x .venv/bin/python ]]; then python=.venv/bin/python; fi
python=${python:-python3}

# End the script if one of its tools is missing.
need() {
  local script=$1 tool
  shift
  for tool in "$@"; do
    command -v "$tool" > /dev/null || { echo "$script needs $tool" >&2; exit 1; }
  done
}

digest_of() { sha256sum | cut -c 1-16; }

# Print the path of an archive of a suite with packages and what they depend on: unpacked, not installed.
# It is made once, in a folder for what is not complete, and then moved to its name in the cache.
debian_rootfs() {
  local suite=$1 packages=$2 cache=$3 work=$4 rootfs
  rootfs=$cache/rootfs-$(echo "$suite $packages" | digest_of).tar
  if [[ ! -e $rootfs ]]; then
    echo "Fetching Debian packages" >&2
    mmdebstrap --quiet --variant=extract --format=tar --include="$packages" \
      --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
      --customize-hook='rm -rf "$1"/usr/share/locale "$1"/usr/share/man "$1"/var/lib/apt/lists "$1"/var/cache/apt' \
      "$suite" "$work/rootfs.tar" >&2
    mv "$work/rootfs.tar" "$rootfs"
  fi
  echo "$rootfs"
}
