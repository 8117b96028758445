#!/usr/bin/env bash
# A TPU pod slice: the same command on every worker; jax finds the others.
# usage: bash launch_scripts/tpu_pod.sh --tpu=NAME --zone=ZONE [--dry_run]
#   [--chips=8] [--dir=jaxagent] [--python=.venv/bin/python]
#   [--config=FILE.py[:VARIANT]] [-- flags of jaxagent.main]
# The package must lie in --dir on every worker, installed with the extra tpu for
# --python, a path there.
# It samples with the native engine: vLLM's servers are not for TPUs here.
# The default config needs --config.model.path, --config.expert.model and
# --config.editor.model (and base_url of both) after --.
# Process 0 leads: sandboxes and engine are on its worker, the learner is on all of
# them. The work directory must lie on a file system that all workers share.
# Not run on a pod yet; the command is tested by --dry_run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch_scripts/_launch.sh
. launch_scripts/_launch.sh
OPTIONS=(tpu zone chips dir python)
TPU=""
ZONE=""
CHIPS=8 # of a v5p-16, whose name counts cores, two a chip
DIR=jaxagent
PYTHON=.venv/bin/python # of the workers, whatever environment is active here
parse_launch "$@"
required TPU "the name of the TPU"
required ZONE "its zone"
number CHIPS
# The environment of an ssh session does not name the other workers, as Kubernetes'
# does: jax is to ask the metadata server.
# A slot of the engine's cache is 0.8 GB at the default config's lengths, all of it on
# one chip, and a round of decoding copies it: 16 take 26 of a v5p's 95 GB; the
# engine's own default, 48, would take 79.
printf -v run '%q ' env JAXAGENT_CLUSTER=auto \
  "$PYTHON" -m jaxagent.main --config="$CONFIG" \
  --config.mesh.fsdp="$CHIPS" --config.rollout.engine=native \
  --config.rollout.max_num_seqs=16 ${EXTRA[@]+"${EXTRA[@]}"}
printf -v dir '%q' "$DIR"
launch gcloud compute tpus tpu-vm ssh "$TPU" --zone="$ZONE" --worker=all \
  --command="cd $dir && $run"
