#!/usr/bin/env bash
# Installs the browser that the tests of the live page drive, from the distribution,
# where there is none.
# usage: bash launch_scripts/install_chromium.sh     JAXAGENT_NO_INSTALL=1 to not
set -euo pipefail
if [ -n "${JAXAGENT_NO_INSTALL:-}" ] || command -v chromium >/dev/null 2>&1 ||
  [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
  exit 0
fi
echo "installing chromium (once)"
log="$(mktemp)"
install() {
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
    --no-install-recommends chromium >>"$log" 2>&1
}
install || { apt-get update -qq >>"$log" 2>&1 && install; } || {
  echo "chromium could not be installed; the tests of the live page will say so:" >&2
  tail -n 5 "$log" >&2
}
rm -f "$log"
