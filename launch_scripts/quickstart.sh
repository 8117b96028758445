#!/usr/bin/env bash
# From nothing to a trained policy on one small machine.
# usage: bash launch_scripts/quickstart.sh [further flags of jaxagent.main]
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=launch_scripts/_environment.sh
. "$here/_environment.sh"
make_environment ""
cd "$here/.."
exec "$JAXAGENT_PYTHON" -m jaxagent.main --config=configs/stepwise_ppo.py "$@"
