#!/usr/bin/env bash
# Kubernetes: fills k8s_jobset.yaml and applies it (needs the JobSet operator).
# usage: bash launch_scripts/k8s_jobset.sh --image=IMAGE [--dry_run]
#   [--name=jaxagent] [--nodes=2] [--gpus=8] [--cpus=32] [--memory=256Gi]
#   [--secret=NAME] [--claim=jaxagent-work] [--dir=/opt/jaxagent] [--config=FILE.py[:VARIANT]] [-- flags of jaxagent.main]
# The image holds a checkout in --dir, its `python` has the package with the extra
# cuda12, its user is root. .venv-vllm is in the checkout where the config samples
# with vLLM.
# --cpus and --memory are a pod's, requested and at most. --secret: a Secret whose keys are
# environment variables of the run, an endpoint's key say (kubectl create secret generic
# NAME --from-literal=OPENAI_API_KEY=...).
# A JobSet that has ended is deleted and made anew, and the run goes on from the volume;
# one that runs is left alone. After a refusal (status 2) it is not restarted, after
# others ten times; what nodes do (evictions, drains) does not count.
# Needs Kubernetes 1.30, JobSet 0.6 and a namespace that admits privileged pods: the sandbox makes
# namespaces of its own (docs/sandbox.md).
# The default config needs --config.model.path, --config.expert.model and
# --config.editor.model (and base_url of both) after --.
# --dry_run prints the manifest. --claim is a volume that all nodes may write.
# Not run on a cluster yet; the manifest is checked against the API's types in the tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch_scripts/_launch.sh
. launch_scripts/_launch.sh
OPTIONS=(image name nodes gpus cpus memory secret claim dir)
IMAGE=""
NAME=jaxagent
NODES=2
GPUS=8
CPUS=32
MEMORY=256Gi
SECRET=""
CLAIM=jaxagent-work
DIR=/opt/jaxagent
parse_launch "$@"
required IMAGE "an image that holds a checkout of jaxagent and the extra cuda12"
number NODES
number GPUS
number CPUS
if ! [[ "$MEMORY" =~ ^[1-9][0-9]*[KMGT]i?$ ]]; then
  echo "error: --memory='$MEMORY' must be a whole number with Mi, Gi or Ti." >&2
  exit 2
fi
for value in "$IMAGE" "$NAME" "$CLAIM" "$DIR" "$CONFIG" "$TRAINER_MEMORY"; do
  if ! [[ "$value" =~ ^[A-Za-z0-9._/:@-]+$ ]]; then
    echo "error: '$value' holds a character that a manifest may not" \
      "(letters, digits and . _ / : @ -)." >&2
    exit 2
  fi
done
# What Kubernetes would refuse later, and not by these names. The longest name that it
# makes is a pod's, NAME-trainer-0-INDEX-xxxxx, of 63 characters at most.
last=$((NODES - 1))
longest=$((63 - 17 - ${#last}))
if ! [[ "$NAME" =~ ^[a-z]([-a-z0-9]*[a-z0-9])?$ ]] || [ "${#NAME}" -gt "$longest" ]; then
  echo "error: --name='$NAME' must be lower-case letters, digits and '-', begin with" \
    "a letter, end with no '-', and have at most $longest characters." >&2
  exit 2
fi
if ! [[ "$CLAIM" =~ ^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$ ]] || [ "${#CLAIM}" -gt 253 ]; then
  echo "error: --claim='$CLAIM' must be the name of a volume claim: lower-case" \
    "letters, digits, '-' and '.', the first and last no sign." >&2
  exit 2
fi
if [ -n "$SECRET" ] && { ! [[ "$SECRET" =~ ^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$ ]] || [ "${#SECRET}" -gt 253 ]; }; then
  echo "error: --secret='$SECRET' must be the name of a Secret: lower-case letters," \
    "digits, '-' and '.', the first and last no sign." >&2
  exit 2
fi
path='[a-z0-9]+([._-]+[a-z0-9]+)*'
if ! [[ "$IMAGE" =~ ^([A-Za-z0-9.-]+(:[0-9]+)?/)?$path(/$path)*(:[A-Za-z0-9_][A-Za-z0-9._-]*)?(@sha256:[0-9a-f]{64})?$ ]]; then
  echo "error: --image='$IMAGE' must be [REGISTRY/]NAME[:TAG] with the name in lower" \
    "case." >&2
  exit 2
fi
if [ "${DIR:0:1}" != / ]; then
  echo "error: --dir='$DIR' must be an absolute path in the image." >&2
  exit 2
fi
# A flag is a YAML string in single quotes; $$ is a plain dollar in the command of
# a container, where $(NAME) would be a variable.
quote="'" dollar='$' extra=""
for flag in ${EXTRA[@]+"${EXTRA[@]}"}; do
  if [[ "$flag" =~ [[:cntrl:]] ]]; then
    printf 'error: %q holds a control character, which a manifest may not.\n' \
      "$flag" >&2
    exit 2
  fi
  flag=${flag//"$quote"/"$quote$quote"}
  flag=${flag//"$dollar"/"$dollar$dollar"}
  extra+="              - '$flag'"$'\n'
done
secret=""
[ -n "$SECRET" ] && secret="              envFrom:
              - secretRef:
                  name: \"$SECRET\""
manifest="$(sed -e "s|@NAME@|$NAME|g" -e "s|@IMAGE@|${IMAGE//@/\\@}|g" \
  -e "s|@NODES@|$NODES|g" -e "s|@GPUS@|$GPUS|g" -e "s|@CPUS@|$CPUS|g" \
  -e "s|@MEMORY@|$MEMORY|g" -e "s|@CLAIM@|$CLAIM|g" \
  -e "s|@DIR@|$DIR|" -e "s|@DEVICES@|$((NODES * GPUS))|g" -e "s|@CONFIG@|$CONFIG|g" \
  -e "s|@TRAINER_MEMORY@|$TRAINER_MEMORY|" -e "s|@SERVER_MEMORY@|$SERVER_MEMORY|" \
  launch_scripts/k8s_jobset.yaml)"
manifest="${manifest%%@EXTRA@*}${extra%$'\n'}${manifest#*@EXTRA@}"
manifest="${manifest%%@SECRET@*}${secret}${manifest#*@SECRET@}"
if [ "$DRY_RUN" = 1 ]; then
  printf '%s\n' "$manifest"
  exit
fi
# The spec of a JobSet cannot be changed, and one that has ended starts no more.
if found="$(launch kubectl get jobset "$NAME" --ignore-not-found \
  -o 'jsonpath={.metadata.name} {.status.terminalState}')"; then
  case "$found" in
    "$NAME "?*)
      echo "JobSet $NAME has ended (${found#* }): it is deleted and made anew; the run" \
        "goes on from the volume."
      launch kubectl delete jobset "$NAME"
      ;;
    "$NAME"*)
      echo "JobSet $NAME runs: nothing done. Give another --name (and --work_dir after" \
        "--) for another run, or stop it: kubectl delete jobset $NAME"
      exit
      ;;
  esac
else
  exit 1
fi
printf '%s\n' "$manifest" | launch kubectl apply -f -
index=batch.kubernetes.io/job-completion-index=0
echo "log: kubectl logs -f -l jobset.sigs.k8s.io/jobset-name=$NAME,$index; state:" \
  "kubectl get jobset $NAME; stop: kubectl delete jobset $NAME"
