#!/usr/bin/env bash
# Makes an environment with W&B, Trackio and MLflow, for JAXAGENT_TRACKER_PYTHON
# (docs/trackers.md), and prints its interpreter.
# usage: bash launch_scripts/trackers_env.sh [FOLDER]     (default: .venv-trackers)
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=launch_scripts/_environment.sh
. "$here/_environment.sh"
folder="${1:-$here/../.venv-trackers}"
if [ ! -e "$folder/.made" ]; then
  "$(find_python)" -m venv "$folder"
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check \
    'wandb>=0.21' 'trackio>=0.20' 'mlflow>=3'
  touch "$folder/.made"
fi
echo "$(cd "$folder" && pwd)/bin/python"
