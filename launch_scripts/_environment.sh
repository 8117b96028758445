# Sourced by the scripts beside it: makes or reuses a virtual environment.
# usage: make_environment EXTRAS   (EXTRAS such as "" or "[dev]")
# shellcheck shell=bash

find_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11; do
    [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 || continue
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
      command -v "$candidate"
      return 0
    fi
  done
  echo "error: no Python >= 3.11 found (python3 is $(python3 --version 2>&1));" \
    "install one or set PYTHON=/path/to/python3.11" >&2
  return 1
}

# With the versions of locks/trainer.txt, which the tests run with; JAXAGENT_UNLOCKED=1
# takes the newest that setup.py allows.
# Readable by all whatever the umask: the sandbox's jobs run under user ids of
# their own, and read the packages.
make_environment() {
  local extras="$1" root python stamp mask
  mask="$(umask)"
  umask 022
  _make_environment || { umask "$mask"; return 1; }
  umask "$mask"
  JAXAGENT_PYTHON="$python"
}

_make_environment() {
  root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
  if [ -n "${VIRTUAL_ENV:-}" ]; then
    python="$VIRTUAL_ENV/bin/python"
  else
    if [ ! -x "$root/.venv/bin/python" ]; then
      local base
      base="$(find_python)" || return 1
      echo "making $root/.venv with $("$base" --version)"
      "$base" -m venv "$root/.venv" || {
        echo "error: python -m venv failed; on Debian: apt install python3-venv" >&2
        return 1
      }
    fi
    python="$root/.venv/bin/python"
  fi
  local lock="$root/launch_scripts/locks/trainer.txt"
  local locked=(-c "$lock")
  [ -z "${JAXAGENT_UNLOCKED:-}" ] || locked=()
  # Install once per content of setup.py and the lock, and per set of extras.
  stamp="$(dirname "$(dirname "$python")")/.jaxagent-$(
    cat "$root/setup.py" "$lock" | cksum | cut -d' ' -f1
  )${extras//[^a-z0-9]/-}${JAXAGENT_UNLOCKED:+-unlocked}"
  if [ ! -e "$stamp" ]; then
    echo "installing jaxagent$extras (once)"
    "$python" -m pip install --quiet --disable-pip-version-check \
      ${locked[@]+"${locked[@]}"} -e "$root$extras" || return 1
    touch "$stamp"
  fi
}
