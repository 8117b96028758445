# Sourced by the findings beside it: packages, program, recorded, in that order.
# shellcheck shell=bash
set -euo pipefail
home="$(mktemp -d)"
trap 'rm -rf "$home"' EXIT

# packages NAME==VERSION...: a virtual environment of its own with these.
packages() {
  "${PYTHON:-python3}" -m venv "$home/venv"
  "$home/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

# program <<'PY': runs it in the temporary folder; its standard output is what is seen.
program() {
  cat >"$home/program.py"
  (cd "$home" && "$home/venv/bin/python" program.py >seen 2>errors) || {
    tail -n 20 "$home/errors" >&2
    echo "the program failed: not as recorded" >&2
    exit 1
  }
}

# recorded <<'SEEN': compares; the difference is printed and fails.
recorded() {
  if diff - "$home/seen"; then echo "as recorded"; else
    echo "not as recorded (< recorded, > seen now)" >&2
    exit 1
  fi
}
