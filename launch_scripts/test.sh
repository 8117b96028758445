#!/usr/bin/env bash
# Makes what the tests need and runs them.
# usage: [JAXAGENT_TEST_WORKERS=N] [JAXAGENT_TEST_SLURM=1] bash launch_scripts/test.sh
#          [pytest arguments]
# -m slurm, or JAXAGENT_TEST_SLURM=1, runs the tests on SLURM, too, and installs it.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=launch_scripts/_environment.sh
. "$here/_environment.sh"
# vLLM's servers have an environment of their own; the fast subset has none.
# It is made beside the tests' own and the first tests: who needs it waits for the
# process that makes it (tests/rollout/served.py). One for CUDA is somebody's own: the
# tests then have theirs beside it.
if [ -z "${JAXAGENT_NO_INSTALL:-}" ] && [[ " $* " != *"not slow"* ]]; then
  folder=.venv-vllm
  for made in "$here/../$folder"/.made-cuda-*; do
    [ ! -e "$made" ] || folder=.venv-vllm-cpu
  done
  bash "$here/vllm_env.sh" cpu "$(cd "$here/.." && pwd)/$folder" &
  export JAXAGENT_TEST_VLLM=1 JAXAGENT_TEST_VLLM_MAKER=$!
  export JAXAGENT_TEST_VLLM_FOLDER="$folder"
  trap 'kill "$JAXAGENT_TEST_VLLM_MAKER" 2>/dev/null || true' EXIT
  # So have trackers.
  bash "$here/trackers_env.sh" >/dev/null &
  trackers=$!
fi
make_environment "[dev,docker,docs,live,ray,tutorial]"
bash "$here/install_docker.sh"
bash "$here/install_chromium.sh"
if [ -n "${trackers:-}" ]; then
  if wait "$trackers"; then
    export JAXAGENT_TRACKER_PYTHON="$here/../.venv-trackers/bin/python"
  else
    echo "the trackers could not be installed; their tests will say so" >&2
  fi
fi
if [ -n "${JAXAGENT_TEST_SLURM:-}" ] ||
  [[ " $* " == *" -m slurm "* || " $* " == *" -m=slurm "* ]]; then
  bash "$here/install_slurm.sh"
fi
cd "$here/.."
# The parity tests compare with transformers on PyTorch, on the CPU: any build of it
# will do (pip's default index has one for CUDA on Linux, of some GB).
if ! "$JAXAGENT_PYTHON" -c 'import torch' >/dev/null 2>&1; then
  "$JAXAGENT_PYTHON" -m pip install --quiet --disable-pip-version-check \
    torch==2.13.0
fi
"$JAXAGENT_PYTHON" -m ruff check --quiet .
"$JAXAGENT_PYTHON" -m ruff format --check --quiet . ||
  { echo "test.sh: format the files above with 'ruff format .'" >&2; exit 1; }
"$JAXAGENT_PYTHON" -m mypy --no-error-summary
# Two workers, a file each at a time, in the order of tests/conftest.py; tests that
# measure time run alone.
exec "$JAXAGENT_PYTHON" -m pytest -q -n "${JAXAGENT_TEST_WORKERS:-2}" \
  --dist loadfile --no-loadscope-reorder --durations=60 --durations-min=5 "$@"
