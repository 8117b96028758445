#!/usr/bin/env bash
# One machine with several GPUs: one process drives them all over a mesh.
# usage: bash launch_scripts/single_node_8gpu.sh [--dry_run] [--gpus=8]
#   [--python=.venv/bin/python] [--config=FILE.py[:VARIANT]]
#   [-- flags of jaxagent.main]
# Needs the extra cuda12, and .venv-vllm where the config samples with vLLM.
# The default config needs --config.model.path, --config.expert.model and
# --config.editor.model (and base_url of both) after --.
# Not run on such a machine yet; the command is tested by --dry_run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch_scripts/_launch.sh
. launch_scripts/_launch.sh
OPTIONS=(gpus python)
GPUS=8
parse_launch "$@"
number GPUS
devices="$(seq -s, 0 $((GPUS - 1)))"
launch env CUDA_VISIBLE_DEVICES="$devices" \
  XLA_PYTHON_CLIENT_MEM_FRACTION="$TRAINER_MEMORY" \
  "$PYTHON" -m jaxagent.main --config="$CONFIG" --config.mesh.fsdp="$GPUS" \
  --config.rollout.vllm.gpu_memory_utilization="$SERVER_MEMORY" \
  ${EXTRA[@]+"${EXTRA[@]}"}
