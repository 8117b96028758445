#!/usr/bin/env bash
# Installs SLURM from the distribution where there is none, for the tests of a cluster
# on one machine (pytest -m slurm), and says where it cannot.
# usage: bash launch_scripts/install_slurm.sh     JAXAGENT_NO_INSTALL=1 to not
set -euo pipefail
if [ -n "${JAXAGENT_NO_INSTALL:-}" ] || command -v slurmctld >/dev/null 2>&1; then
  exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
  echo "SLURM is not installed, which takes root and apt-get: its tests are skipped."
  exit 0
fi
echo "installing slurm-wlm (once)"
log="$(mktemp)"
install() {
  # No service is to start: the tests run their own.
  DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -qq -y \
    --no-install-recommends slurm-wlm munge iproute2 >>"$log" 2>&1
}
install || { apt-get update -qq >>"$log" 2>&1 && install; } || {
  echo "slurm-wlm could not be installed; its tests are skipped:" >&2
  tail -n 5 "$log" >&2
}
rm -f "$log"
