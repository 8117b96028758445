#!/usr/bin/env bash
# SLURM: one process a node, all GPUs of the node; jax finds the cluster.
# usage: bash launch_scripts/slurm.sh [--dry_run] [--nodes=2] [--gpus=8]
#   [--time=24:00:00] [--partition=NAME] [--account=NAME]
#   [--python=.venv/bin/python] [--config=FILE.py[:VARIANT]]
#   [-- flags of jaxagent.main]
# SIGTERM reaches the run 120 s before the time limit, so that it saves; the
# same command resumes. The work directory must lie on a shared file system.
# Needs the extra cuda12, and .venv-vllm where the config samples with vLLM.
# The default config needs --config.model.path, --config.expert.model and
# --config.editor.model (and base_url of both) after --.
# Process 0 leads: sandboxes and engine are on its node, the learner is on all of them.
# Not run on a cluster yet; the command is tested by --dry_run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch_scripts/_launch.sh
. launch_scripts/_launch.sh
OPTIONS=(nodes gpus time partition account python)
NODES=2
GPUS=8
TIME=24:00:00
PARTITION=""
ACCOUNT=""
parse_launch "$@"
number NODES
number GPUS
# A task is given one CPU and its share of memory unless it asks; the sandboxes and
# the weights' way to the engine need the node's: all CPUs, all memory.
command=(sbatch --job-name=jaxagent --nodes="$NODES" --ntasks-per-node=1
  --exclusive --mem=0 --gpus-per-node="$GPUS" --time="$TIME" --signal=TERM@120
  --requeue --open-mode=append --output=jaxagent-%j.log)
[ -n "$PARTITION" ] && command+=(--partition="$PARTITION")
[ -n "$ACCOUNT" ] && command+=(--account="$ACCOUNT")
printf -v run '%q ' srun --kill-on-bad-exit=1 \
  env XLA_PYTHON_CLIENT_MEM_FRACTION="$TRAINER_MEMORY" \
  "$PYTHON" -m jaxagent.main \
  --config="$CONFIG" --config.mesh.fsdp=$((NODES * GPUS)) \
  --config.rollout.vllm.gpu_memory_utilization="$SERVER_MEMORY" \
  ${EXTRA[@]+"${EXTRA[@]}"}
launch "${command[@]}" --wrap="$run"
