# shellcheck shell=bash
# Sourced by .ci/run: a Docker engine for the tests, taken as it is where one answers, else installed and started.
# An engine that was there before is never stopped.

DOCKER_ENGINE_PID=
DOCKER_ENGINE_LOG=${DOCKER_ENGINE_LOG:-/var/log/rackassign-dockerd.log}

# Install what is missing, without letting the package start an engine of its own.
docker_engine_install() {
  # The engine and not the client is looked for: a machine may have the client alone.
  command -v dockerd > /dev/null && command -v iptables > /dev/null && command -v mmdebstrap > /dev/null && return
  local policy=/usr/sbin/policy-rc.d ours=
  if [[ ! -e $policy ]]; then
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod 755 "$policy"
    ours=yes
  fi
  echo "Installing a Docker engine"
  apt-get update -qq
  local failed=0
  apt-get install -y -qq --no-install-recommends docker.io iptables mmdebstrap > /dev/null || failed=$?
  if [[ $ours ]]; then rm -f "$policy"; fi
  return "$failed"
}

# True if the process named in a pid file is there, is no zombie, and is what the file says.
_docker_engine_lives() {
  local file=$1 name=$2 pid state
  pid=$(< "$file") || return 1
  [[ $pid =~ ^[0-9]+$ && $(cat "/proc/$pid/comm" 2> /dev/null) == "$name" ]] || return 1
  state=$(sed 's/.*) //; s/ .*//' "/proc/$pid/stat" 2> /dev/null) || return 1
  [[ $state != Z ]]
}

# An engine refuses to start while a pid file names any process at all, if only a zombie or a stranger.
_docker_engine_drop_stale() {
  local file name
  for name in dockerd containerd; do
    case $name in
      dockerd) file=/var/run/docker.pid ;;
      containerd) file=/var/run/docker/containerd/containerd.pid ;;
    esac
    if [[ -e $file ]] && ! _docker_engine_lives "$file" "$name"; then rm -f "$file"; fi
  done
}

# Start an engine with one storage driver; true once it answers.
_docker_engine_try() {
  local driver=$1 deadline=$((SECONDS + 45))
  _docker_engine_drop_stale
  # In a session of its own: Ctrl-C is for the tests, which need the engine to clean up.
  setsid dockerd --storage-driver="$driver" >> "$DOCKER_ENGINE_LOG" 2>&1 &
  DOCKER_ENGINE_PID=$!
  while ((SECONDS < deadline)); do
    if docker version > /dev/null 2>&1; then
      echo "Started a Docker engine ($driver), process $DOCKER_ENGINE_PID, log in $DOCKER_ENGINE_LOG"
      return 0
    fi
    # No sense in waiting for one that has ended.
    kill -0 "$DOCKER_ENGINE_PID" 2> /dev/null || break
    sleep 0.2
  done
  docker_engine_stop
  return 1
}

# Have an engine answer, whatever it takes.
docker_engine_start() {
  if docker version > /dev/null 2>&1; then return 0; fi
  docker_engine_install
  # Twice, since the first start after a crash may fail over what it then clears away itself. vfs is slow and large.
  local driver
  for driver in overlay2 overlay2 vfs; do
    if _docker_engine_try "$driver"; then return 0; fi
  done
  echo "No Docker engine can be started; the end of $DOCKER_ENGINE_LOG:" >&2
  tail -n 20 "$DOCKER_ENGINE_LOG" >&2
  return 1
}

# Stop the engine if it is ours; its containerd goes with it.
docker_engine_stop() {
  local pid=$DOCKER_ENGINE_PID
  DOCKER_ENGINE_PID=
  if [[ $pid ]]; then
    kill "$pid" 2> /dev/null || true
    timeout 60 tail --pid="$pid" -s 0.1 -f /dev/null || kill -9 "$pid" 2> /dev/null || true
  fi
}
