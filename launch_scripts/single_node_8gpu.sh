#!/usr/bin/env bash
# One machine with several GPUs: one process drives them all over a mesh.
# usage: bash launch_scripts/single_node_8gpu.sh [--dry_run] [--gpus=N]
#   [--python=.venv/bin/python] [--config=FILE.py[:VARIANT]]
#   [-- flags of jaxagent.main]
# --gpus: 8, or as many as CUDA_VISIBLE_DEVICES names where it is set; then it is the
# first N of those.
# Needs the extra cuda12, and .venv-vllm where the config samples with vLLM.
# The default config needs --config.model.path, --config.expert.model and
# --config.editor.model (and base_url of both) after --.
# Not run on such a machine yet; the command is tested by --dry_run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch_scripts/_launch.sh
. launch_scripts/_launch.sh
OPTIONS=(gpus python)
GPUS=""
parse_launch "$@"
if [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then
  IFS=, read -ra visible <<<"$CUDA_VISIBLE_DEVICES"
  : "${GPUS:=${#visible[@]}}"
  if [ "${#visible[@]}" = 0 ] || [ "$GPUS" -gt "${#visible[@]}" ] 2>/dev/null; then
    echo "error: --gpus='$GPUS', but CUDA_VISIBLE_DEVICES='$CUDA_VISIBLE_DEVICES'" \
      "names ${#visible[@]}; lower the first, or unset the second." >&2
    exit 2
  fi
else
  : "${GPUS:=8}"
  mapfile -t visible < <(seq 0 $((${GPUS//[!0-9]/} - 1)))
fi
number GPUS
devices="$(IFS=,; echo "${visible[*]:0:GPUS}")"
launch env CUDA_VISIBLE_DEVICES="$devices" \
  XLA_PYTHON_CLIENT_MEM_FRACTION="$TRAINER_MEMORY" \
  "$PYTHON" -m jaxagent.main --config="$CONFIG" --config.mesh.fsdp="$GPUS" \
  --config.rollout.vllm.gpu_memory_utilization="$SERVER_MEMORY" \
  ${EXTRA[@]+"${EXTRA[@]}"}
