#!/usr/bin/env bash
# Makes the environment in which plans are compiled for TPUs and GPUs that are not
# there: `FOLDER/bin/python -m jaxagent.plan --target=...` (docs/scaling.md).
# usage: bash launch_scripts/plan_env.sh [FOLDER]   (FOLDER: .venv-plan; 6 GB)
# It has the extras tpu and cuda12 beside each other, which no run needs: the compilers
# are in the same packages as the drivers' libraries. No accelerator is needed.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/.." && pwd)"
# shellcheck source=launch_scripts/_environment.sh
. "$here/_environment.sh"

if [ $# -gt 1 ] || [[ "${1:-}" == -* ]]; then
  echo "usage: bash launch_scripts/plan_env.sh [FOLDER]" >&2
  exit 2
fi
folder="${1:-$root/.venv-plan}"
# Once for what setup.py asks for.
made="$folder/.made-plan-$(cksum <"$root/setup.py" | cut -d' ' -f1)"
[ ! -e "$made" ] || exit 0
if [ ! -x "$folder/bin/python" ]; then
  base="$(find_python)"
  echo "making $folder with $("$base" --version)"
  "$base" -m venv "$folder"
fi
echo "installing jaxagent[tpu,cuda12] into $folder (6 GB, once)"
"$folder/bin/python" -m pip --disable-pip-version-check --quiet install \
  -e "$root[tpu,cuda12]"
touch "$made"
