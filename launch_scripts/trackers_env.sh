#!/usr/bin/env bash
# Makes an environment with W&B, Trackio and MLflow, for JAXAGENT_TRACKER_PYTHON
# (docs/trackers.md), and prints its interpreter.
# usage: bash launch_scripts/trackers_env.sh [FOLDER]     (default: .venv-trackers)
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=launch_scripts/_environment.sh
. "$here/_environment.sh"
folder="${1:-$here/../.venv-trackers}"
lock="$here/locks/trackers.txt"
locked=(-c "$lock")
[ -z "${JAXAGENT_UNLOCKED:-}" ] || locked=()
made="$folder/.made-$(cksum <"$lock" | cut -d' ' -f1)${JAXAGENT_UNLOCKED:+-unlocked}"
if [ ! -e "$made" ]; then
  "$(find_python)" -m venv "$folder"
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check \
    ${locked[@]+"${locked[@]}"} 'wandb>=0.21,<1' 'trackio>=0.20,<1' 'mlflow>=3,<4'
  touch "$made"
fi
echo "$(cd "$folder" && pwd)/bin/python"
