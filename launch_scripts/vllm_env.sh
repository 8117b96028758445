#!/usr/bin/env bash
# Makes the environment that vLLM's servers run in, apart from the trainer's.
# usage: bash launch_scripts/vllm_env.sh cpu|cuda [FOLDER]   (FOLDER: .venv-vllm)
# A folder of the other kind is refused; one of an earlier lock is made anew.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/.." && pwd)"
# shellcheck source=launch_scripts/_environment.sh
. "$here/_environment.sh"

kind="${1:-}"
folder="${2:-$root/.venv-vllm}"
lock="$here/locks/vllm-$kind.txt"
if [ -z "$kind" ] || [ ! -f "$lock" ]; then
  echo "usage: bash launch_scripts/vllm_env.sh cpu|cuda [FOLDER]" >&2
  exit 2
fi
plugin="$root/third_party/jaxagent_vllm"
sum() { cat "$@" | cksum | cut -d' ' -f1; }
made="$folder/.made-$kind-$(sum "$lock")"
plugged="$made-$(sum "$plugin"/*.py "$plugin"/*/*.py)"
for other in "$folder"/.made-*; do
  case "${other##*/}" in
    ".made-$kind-"* | '.made-*') ;;
    *)
      echo "error: $folder is not of the kind $kind (it has ${other##*/});" \
        "give another FOLDER: bash launch_scripts/vllm_env.sh $kind FOLDER," \
        "or delete it first." >&2
      exit 2
      ;;
  esac
done
[ ! -e "$plugged" ] || exit 0

pip() { "$folder/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }
make_folder() {
  local base
  base="$(find_python)"
  echo "making $folder with $("$base" --version) for vLLM ($kind)"
  rm -rf "$folder"
  "$base" -m venv "$folder"
  # The lock is whole: nothing is resolved, and what it leaves out stays out.
  pip install --no-deps --require-hashes -r "$lock" || {
    [ "$kind" != cpu ] || echo "error: the CPU lock is for Python 3.11" \
      "(PYTHON=/path/to/python3.11) and needs an index with PyTorch's CPU build" \
      "(PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu)" >&2
    exit 1
  }
  touch "$made"
}
[ -e "$made" ] || make_folder
pip install --no-deps --no-build-isolation --force-reinstall "$plugin"
touch "$plugged"
