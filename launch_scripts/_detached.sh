#!/usr/bin/env bash
# On one machine: a command without a terminal, one at a time in a folder.
# usage, in the folder: bash launch_scripts/_detached.sh start COMMAND... | status |
#   logs [LINES] | stop
# Its output goes to run.HOST.log there. The command holds a lock for as long as it lives, so
# that starting twice does nothing. Variables of the file run.env, `export NAME=VALUE` in
# lines, are its alone; whoever made the file removes it. `stop` sends SIGTERM and waits.
set -euo pipefail
here="$(hostname)"
# Of this host: the folder may be on a file system that several share.
lock=".run.$here.lock" pid=".run.$here.pid" log="run.$here.log" env="run.$here.env"

# held: whether a command lives.
held() { ! flock -n "$lock" true; }

case "${1:-}" in
  start)
    shift
    # For this host a copy of its own, which the command takes and removes.
    [ ! -f run.env ] || cp -p run.env "$env"
    exec 9>>"$lock"
    if ! flock -n 9; then
      rm -f "$env"
      echo "$here: it runs already (process $(cat "$pid" 2>/dev/null)): nothing done."
      exit 0
    fi
    # Descriptor 9, and the lock with it, go on to the command.
    setsid bash -c '
      if [ -f '"$env"' ]; then . ./'"$env"'; rm -f '"$env"'; fi
      echo "$(date -u +%FT%TZ) $(hostname): started"
      "$@" &
      echo $! >'"$pid"'
      status=0
      wait $! || status=$?
      echo "$(date -u +%FT%TZ) $(hostname): ended with status $status"
      rm -f '"$pid" detached "$@" </dev/null >>"$log" 2>&1 &
    echo "$here: started; log: $PWD/$log"
    ;;
  status)
    if held; then
      echo "$here: runs (process $(cat "$pid" 2>/dev/null)); $(tail -n 1 "$log")"
    elif [ -e "$log" ]; then
      echo "$here: does not run; $(tail -n 1 "$log")"
    else
      echo "$here: was never started in $PWD"
    fi
    ;;
  logs) tail -n "${2:-100}" -F "$log" ;;
  stop)
    if held; then
      kill -TERM "$(cat "$pid")"
      flock "$lock" true
      echo "$here: stopped; $(tail -n 1 "$log")"
    else
      echo "$here: does not run."
    fi
    ;;
  *)
    echo "error: '${1:-}' is none of start, status, logs, stop." >&2
    exit 2
    ;;
esac
