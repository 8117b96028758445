#!/usr/bin/env bash
# A TPU pod slice: the same command on every worker; jax finds the others.
# usage: bash launch_scripts/tpu_pod.sh [start|status|logs|stop] --tpu=NAME --zone=ZONE
#   [--dry_run] [--chips=8] [--dir=jaxagent] [--python=.venv/bin/python] [--env=NAME,...]
#   [--worker=0] [--config=FILE.py[:VARIANT]] [-- flags of jaxagent.main]
# start (what is done where nothing is given) detaches the run on each worker, where
# --dir/run.HOST.log is its log, and returns; where it runs already it does nothing, so that a
# dropped connection costs nothing. status: of every worker. logs: of --worker, as they
# are written. stop: SIGTERM on every worker, and waits until all have saved and ended.
# --env: variables of this shell, an endpoint's key say, that the run is given; they
# travel in a file that is removed, not in a command line.
# A checkout must lie in --dir on every worker, installed with the extra tpu for
# --python, a path there.
# It samples with the native engine: vLLM's servers are not for TPUs here.
# The default config needs --config.model.path, --config.expert.model and
# --config.editor.model (and base_url of both) after --.
# Process 0 leads: sandboxes and engine are on its worker, the learner is on all of
# them. The work directory must lie on a file system that all workers share.
# For v2 to v6e, whose machines `gcloud compute tpus tpu-vm` makes; newer ones are in
# docs/scaling.md. Not run on a pod yet; tested with a gcloud that runs commands here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch_scripts/_launch.sh
. launch_scripts/_launch.sh
OPTIONS=(tpu zone chips dir python env worker)
TPU=""
ZONE=""
CHIPS=8 # of a v5p-16, whose name counts cores, two a chip
DIR=jaxagent
PYTHON=.venv/bin/python # of the workers, whatever environment is active here
ENV=""
WORKER=0
verb=start
case "${1:-}" in
  start | status | logs | stop)
    verb="$1"
    shift
    ;;
esac
parse_launch "$@"
required TPU "the name of the TPU"
required ZONE "its zone"
number CHIPS
count WORKER
printf -v dir '%q' "$DIR"

# worker WHICH WORDS...: _detached.sh with these words on a worker, or on all.
worker() {
  local which="$1" words
  shift
  printf -v words ' %q' "$@"
  launch gcloud compute tpus tpu-vm ssh "$TPU" --zone="$ZONE" --worker="$which" \
    --command="cd $dir && bash launch_scripts/_detached.sh$words"
}

if [ "$verb" != start ]; then
  if [ "$verb" = logs ]; then worker "$WORKER" logs; else worker all "$verb"; fi
  exit
fi
if [ -n "$ENV" ]; then
  umask 077
  folder="$(mktemp -d)"
  trap 'rm -rf "$folder"' EXIT
  IFS=, read -ra names <<<"$ENV"
  for name in "${names[@]}"; do
    if ! [[ "$name" =~ ^[A-Za-z_][A-Za-z0-9_]*$ ]] || [ -z "${!name+set}" ]; then
      echo "error: --env='$ENV': '$name' is no variable of this shell; export it, or" \
        "leave it out." >&2
      exit 2
    fi
    printf 'export %s=%q\n' "$name" "${!name}" >>"$folder/run.env"
  done
  launch gcloud compute tpus tpu-vm scp "$folder/run.env" "$TPU:$DIR/run.env" \
    --zone="$ZONE" --worker=all
fi
# The environment of an ssh session does not name the other workers, as Kubernetes'
# does: jax is to ask the metadata server.
# A slot of the engine's cache is 0.8 GB at the default config's lengths, all of it on
# one chip, and a round of decoding copies it: 16 take 26 of a v5p's 95 GB; the
# engine's own default, 48, would take 79.
worker all start env JAXAGENT_CLUSTER=auto \
  "$PYTHON" -m jaxagent.main --config="$CONFIG" \
  --config.mesh.fsdp="$CHIPS" --config.rollout.engine=native \
  --config.rollout.max_num_seqs=16 ${EXTRA[@]+"${EXTRA[@]}"}
if [ -n "$ENV" ]; then
  launch gcloud compute tpus tpu-vm ssh "$TPU" --zone="$ZONE" --worker=all \
    --command="rm -f $dir/run.env"
fi
