#!/usr/bin/env bash
# Makes what the tests need and runs them.
# usage: [JAXAGENT_TEST_WORKERS=N] bash launch_scripts/test.sh [pytest arguments]
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=launch_scripts/_environment.sh
. "$here/_environment.sh"
# vLLM's servers have an environment of their own; the fast subset has none.
# It is made beside the tests' own and the first tests: who needs it waits for the
# process that makes it (tests/rollout/served.py).
if [ -z "${JAXAGENT_NO_INSTALL:-}" ] && [[ " $* " != *"not slow"* ]]; then
  bash "$here/vllm_env.sh" cpu &
  export JAXAGENT_TEST_VLLM=1 JAXAGENT_TEST_VLLM_MAKER=$!
  trap 'kill "$JAXAGENT_TEST_VLLM_MAKER" 2>/dev/null || true' EXIT
fi
make_environment "[dev,docker,ray]"
bash "$here/install_docker.sh"
cd "$here/.."
# The parity tests compare with transformers on PyTorch's CPU build.
if ! "$JAXAGENT_PYTHON" -c 'import torch' >/dev/null 2>&1; then
  "$JAXAGENT_PYTHON" -m pip install --quiet --disable-pip-version-check \
    torch==2.13.0
fi
# Two workers, a file each at a time, in the order of tests/conftest.py; tests that
# measure time run alone.
exec "$JAXAGENT_PYTHON" -m pytest -q -n "${JAXAGENT_TEST_WORKERS:-2}" \
  --dist loadfile --no-loadscope-reorder "$@"
