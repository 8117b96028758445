#!/usr/bin/env bash
# SLURM: one process a node, all GPUs of the node; jax finds the cluster.
# usage: bash launch_scripts/slurm.sh [--dry_run] [--nodes=2] [--gpus=8]
#   [--time=24:00:00] [--partition=NAME] [--account=NAME] [--sbatch="OPTION ..."]
#   [--chain] [--python=.venv/bin/python] [--config=FILE.py[:VARIANT]]
#   [-- flags of jaxagent.main]
# Config, files and interpreter are checked here first, with --dry_run, too: what a run
# would refuse is not queued. --gpus=0 is for nodes without GPUs. --sbatch hands
# options on, which replace those of this script: --sbatch="--qos=long --array=1-3%1".
# SIGTERM reaches the run 120 s before the time limit, so that it saves; the
# same command resumes. With --chain the job goes back into the queue by itself until the
# run is complete (slurm_chain.sh; statuses in docs/scaling.md). The work directory must lie on a shared file system.
# Needs the extra cuda12, and .venv-vllm where the config samples with vLLM.
# The default config needs --config.model.path, --config.expert.model and
# --config.editor.model (and base_url of both) after --.
# Process 0 leads: sandboxes and engine are on its node, the learner is on all of them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch_scripts/_launch.sh
. launch_scripts/_launch.sh
OPTIONS=(nodes gpus time partition account sbatch python)
FLAGS=(chain)
CHAIN=0
NODES=2
GPUS=8
TIME=24:00:00
PARTITION=""
ACCOUNT=""
SBATCH=""
parse_launch "$@"
number NODES
count GPUS
# A task is given one CPU and its share of memory unless it asks; the sandboxes and
# the weights' way to the engine need the node's: all CPUs, all memory.
command=(sbatch --parsable --job-name=jaxagent --nodes="$NODES" --ntasks-per-node=1
  --exclusive --mem=0 --time="$TIME" --signal=TERM@120
  --requeue --open-mode=append --output=jaxagent-%j.log)
[ "$GPUS" = 0 ] || command+=(--gpus-per-node="$GPUS")
[ -n "$PARTITION" ] && command+=(--partition="$PARTITION")
[ -n "$ACCOUNT" ] && command+=(--account="$ACCOUNT")
if [ -n "$SBATCH" ]; then
  words="$(xargs -n 1 printf '%s\n' <<<"$SBATCH" 2>/dev/null)" || {
    echo "error: --sbatch='$SBATCH' has a quote without its other half." >&2
    exit 2
  }
  while IFS= read -r word; do
    [ -n "$word" ] && command+=("$word")
  done <<<"$words"
fi
# A node without GPUs is one device.
flags=(--config="$CONFIG" --config.mesh.fsdp=$((NODES * (GPUS ? GPUS : 1))))
if [ "$GPUS" = 0 ]; then
  environment=(JAX_PLATFORMS=cpu)
else
  environment=(XLA_PYTHON_CLIENT_MEM_FRACTION="$TRAINER_MEMORY")
  flags+=(--config.rollout.vllm.gpu_memory_utilization="$SERVER_MEMORY")
fi
flags+=(${EXTRA[@]+"${EXTRA[@]}"})
printf -v run '%q ' srun --label --kill-on-bad-exit=1 \
  env "${environment[@]}" "$PYTHON" -m jaxagent.main "${flags[@]}"
[ "$CHAIN" = 0 ] || run="exec bash launch_scripts/slurm_chain.sh $run"
command+=(--wrap="$run")
if [ "$DRY_RUN" = 1 ]; then
  launch "${command[@]}"
  check_run "${flags[@]}"
  exit
fi
check_run "${flags[@]}"
job="$(launch "${command[@]}")"
job="${job%%;*}"
# Its path is SLURM's to say: --sbatch may have another, and a pattern.
said="$(scontrol show job -o "$job" 2>/dev/null | grep -o 'StdOut=[^ ]*' || true)"
log="${said#StdOut=}"
[ -n "$log" ] || log="$PWD/jaxagent-$job.log"
echo "job $job is queued; log: $log; state: squeue -j $job; stop: scancel $job"
