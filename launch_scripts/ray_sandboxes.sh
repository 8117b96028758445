#!/usr/bin/env bash
# Sandboxes on a Ray cluster, the trainer on this machine, which is one of its
# nodes.
# usage: bash launch_scripts/ray_sandboxes.sh --address=HOST:PORT|auto [--dry_run]
#   [--slots=64] [--python=.venv/bin/python] [--config=FILE.py[:VARIANT]]
#   [-- flags of jaxagent.main]
# Every node needs jaxagent with the extra ray; `ray start --head` makes the
# first, `ray start --address=HOST:PORT` the others.
# The default config needs --config.model.path, --config.expert.model and
# --config.editor.model (and base_url of both) after --.
# Not run on several machines yet; the command is tested by --dry_run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch_scripts/_launch.sh
. launch_scripts/_launch.sh
OPTIONS=(address slots python)
ADDRESS=""
SLOTS=64
parse_launch "$@"
required ADDRESS "the cluster's address, or 'auto' for the one that runs here"
number SLOTS
launch env XLA_PYTHON_CLIENT_MEM_FRACTION="$TRAINER_MEMORY" \
  "$PYTHON" -m jaxagent.main \
  --config="$CONFIG" --config.sandbox.backend=ray \
  --config.sandbox.ray_address="$ADDRESS" \
  --config.rollout.vllm.gpu_memory_utilization="$SERVER_MEMORY" \
  --config.sandbox.slots="$SLOTS" ${EXTRA[@]+"${EXTRA[@]}"}
