#!/usr/bin/env bash
# Installs a Docker daemon from the distribution where there is none, so that
# the tests of the docker backend can start one of their own.
# usage: bash launch_scripts/install_docker.sh     JAXAGENT_NO_INSTALL=1 to not
set -euo pipefail
if [ -n "${JAXAGENT_NO_INSTALL:-}" ] || command -v dockerd >/dev/null 2>&1 ||
  [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
  exit 0
fi
echo "installing docker.io (once)"
log="$(mktemp)"
install() {
  # The service is not to start: the tests run their own.
  DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -qq -y \
    --no-install-recommends docker.io >>"$log" 2>&1
}
install || { apt-get update -qq >>"$log" 2>&1 && install; } || {
  echo "docker.io could not be installed; its tests will say so:" >&2
  tail -n 5 "$log" >&2
}
rm -f "$log"
