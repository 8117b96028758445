# Sourced by the launchers beside it: flags, checks and --dry_run.
# shellcheck shell=bash
# usage: parse_launch "$@"; then: launch COMMAND...
# Understands --dry_run, --config=FILE.py[:VARIANT], --name=value for every name in
# the array OPTIONS (upper-cased into a variable) and --name for every one in FLAGS
# (1 in such a variable); what follows `--` is handed to jaxagent.main. Anything else
# stops with the list of choices.

DRY_RUN=0
FLAGS=()
CONFIG="configs/stepwise_ppo.py:qwen2.5-7b"
EXTRA=()
# The one that quickstart.sh installs into.
PYTHON="${VIRTUAL_ENV:-.venv}/bin/python"

# A vLLM server that the run starts is on GPU 0, which the trainer uses as well
# (unless config.rollout.vllm.devices says else), and would take 0.9 of it: shares
# of a GPU's memory that go together. `python -m jaxagent.plan --config=...` prints
# what the trainer needs. Without such a server set
# XLA_PYTHON_CLIENT_MEM_FRACTION=0.9 beforehand.
TRAINER_MEMORY="${XLA_PYTHON_CLIENT_MEM_FRACTION:-0.6}"
SERVER_MEMORY=0.3

parse_launch() {
  local argument name
  while [ $# -gt 0 ]; do
    argument="$1"
    shift
    case "$argument" in
      --dry_run) DRY_RUN=1 ;;
      --config=*) CONFIG="${argument#*=}" ;;
      --)
        EXTRA=("$@")
        break
        ;;
      --*=*)
        name="${argument%%=*}"
        name="${name#--}"
        if [[ " ${OPTIONS[*]} " != *" $name "* ]]; then
          _unknown "$argument"
          return 2
        fi
        printf -v "${name^^}" '%s' "${argument#*=}"
        ;;
      --*)
        name="${argument#--}"
        if [ -z "$name" ] || [[ " ${FLAGS[*]-} " != *" $name "* ]]; then
          _unknown "$argument"
          return 2
        fi
        printf -v "${name^^}" 1
        ;;
      *)
        _unknown "$argument"
        return 2
        ;;
    esac
  done
  if [ ! -f "${CONFIG%%:*}" ]; then
    echo "error: no config file '${CONFIG%%:*}'; choose one of:" \
      configs/*.py >&2
    return 2
  fi
}

_unknown() {
  local name names="--dry_run --config=FILE.py[:VARIANT]"
  for name in "${OPTIONS[@]}"; do names+=" --$name=VALUE"; done
  for name in ${FLAGS[@]+"${FLAGS[@]}"}; do names+=" --$name"; done
  echo "error: unknown argument '$1'; choose from: $names" \
    "(flags of jaxagent.main follow --)" >&2
}

# number NAME: the variable must hold a positive whole number.
number() {
  if ! [[ "${!1}" =~ ^[1-9][0-9]*$ ]]; then
    echo "error: --${1,,}='${!1}' must be a positive whole number." >&2
    return 2
  fi
}

# count NAME: the variable must hold a whole number, 0 or more.
count() {
  if ! [[ "${!1}" =~ ^(0|[1-9][0-9]*)$ ]]; then
    echo "error: --${1,,}='${!1}' must be a whole number, 0 or more." >&2
    return 2
  fi
}

# required NAME WHAT: the variable must not be empty.
required() {
  if [ -z "${!1}" ]; then
    echo "error: --${1,,}=VALUE is needed: $2." >&2
    return 2
  fi
}

# check_run FLAGS...: reads config and files here as a run with these flags does before
# its devices; what it refuses, it says, and returns the status of a run.
check_run() {
  if ! command -v "$PYTHON" >/dev/null 2>&1; then
    echo "error: --python='$PYTHON' is no interpreter here; make one with" \
      "launch_scripts/quickstart.sh, or give another." >&2
    return 2
  fi
  JAX_PLATFORMS=cpu "$PYTHON" -m jaxagent.main --check "$@" >/dev/null
}

# launch COMMAND...: runs it, or with --dry_run prints it and stops there.
launch() {
  if [ "$DRY_RUN" = 1 ]; then
    printf '%q ' "$@"
    printf '\n'
    return 0
  fi
  if ! command -v "$1" >/dev/null 2>&1; then
    echo "error: '$1' is not installed here; --dry_run prints the command." >&2
    return 127
  fi
  "$@"
}
